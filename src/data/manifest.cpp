#include "data/manifest.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/hash.h"
#include "data/shard_set.h"

namespace mhar::data {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* format_name = "mhar-tokens";
constexpr int64_t format_version = 1;

/// Typed access to one JSON object; every surprise is an InputError that names the key.
class Object {
 public:
  Object(const Json& json, std::string where, const std::string& origin)
      : json_(json), where_(std::move(where)), origin_(origin) {
    if (!json_.is_object()) refuse("", "an object", json_.type_name());
  }

  std::string text(const char* key) const {
    const Json& value = at(key, "a string");
    if (!value.is_string()) refuse(key, "a string", value.type_name());
    return value.get<std::string>();
  }
  /// A whole number in [least, 2^63).
  int64_t integer(const char* key, int64_t least) const {
    const std::string wanted = fmt::format("a whole number of at least {}", least);
    const Json& value = at(key, wanted);
    if (!value.is_number_integer()) refuse(key, wanted, value.is_number() ? value.dump() : value.type_name());
    if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX}) refuse(key, wanted, value.dump());
    const auto number = value.get<int64_t>();
    if (number < least) refuse(key, wanted, value.dump());
    return number;
  }
  double number(const char* key) const {
    const Json& value = at(key, "a number of at least 0");
    if (!value.is_number()) refuse(key, "a number of at least 0", value.type_name());
    if (!(value.get<double>() >= 0.0)) refuse(key, "a number of at least 0", value.dump());
    return value.get<double>();
  }
  Object object(const char* key) const { return {at(key, "an object"), where_ + key + ".", origin_}; }
  const Json& list(const char* key) const {
    const Json& value = at(key, "a list");
    if (!value.is_array()) refuse(key, "a list", value.type_name());
    return value;
  }
  [[noreturn]] void refuse(const std::string& key, const std::string& wanted, const std::string& got) const {
    throw InputError(Fault{"read manifest", origin_, fmt::format("\"{}{}\" to be {}", where_, key, wanted), got,
                           "prepare the text again with mhar data or python -m mhar.data"});
  }
  const std::string& where() const { return where_; }

 private:
  const Json& at(const char* key, const std::string& wanted) const {
    const auto found = json_.find(key);
    if (found == json_.end()) refuse(key, wanted, "nothing");
    return *found;
  }
  const Json& json_;
  std::string where_;
  const std::string& origin_;
};

Split read_split(const Object& object, const std::string& origin) {
  Split split;
  split.tokens = object.integer("tokens", 0);
  split.documents = object.integer("documents", 0);
  split.bytes = object.integer("bytes", 0);
  int64_t left = split.tokens;
  for (const Json& json : object.list("shards")) {
    const Object entry(json, fmt::format("{}shards[{}].", object.where(), split.shards.size()), origin);
    Shard shard{entry.text("file"), entry.integer("tokens", 0), entry.text("hash")};
    const bool plain = !shard.file.empty() &&
                       shard.file.find_first_of(std::string_view("/\0", 2)) == std::string::npos && shard.file != "." &&
                       shard.file != "..";
    // A manifest from elsewhere must not make us read outside its own folder.
    if (!plain) entry.refuse("file", "the name of a file beside the manifest", "\"" + shard.file + "\"");
    if (shard.tokens > left) entry.refuse("tokens", "at most the split's tokens", std::to_string(shard.tokens));
    left -= shard.tokens;
    split.shards.push_back(std::move(shard));
  }
  if (left != 0) object.refuse("tokens", "the sum over its shards", std::to_string(split.tokens));
  return split;
}

Tokenizer read_tokenizer(const Object& object) {
  Tokenizer tokenizer{object.text("kind"), object.text("name"), object.text("hash"), object.integer("vocabulary", 1),
                      object.integer("end_of_text", 0)};
  if (tokenizer.kind != "bytes" && tokenizer.kind != "huggingface") {
    object.refuse("kind", "bytes or huggingface", "\"" + tokenizer.kind + "\"");
  }
  if (tokenizer.end_of_text >= tokenizer.vocabulary) {
    object.refuse("end_of_text", fmt::format("below the vocabulary of {}", tokenizer.vocabulary),
                  std::to_string(tokenizer.end_of_text));
  }
  return tokenizer;
}

OrderedJson write_split(const Split& split) {
  OrderedJson shards = OrderedJson::array();
  for (const Shard& shard : split.shards) {
    shards.push_back({{"file", shard.file}, {"tokens", shard.tokens}, {"hash", shard.hash}});
  }
  return {{"tokens", split.tokens}, {"documents", split.documents}, {"bytes", split.bytes}, {"shards", shards}};
}

}  // namespace

std::string Manifest::hash() const {
  OrderedJson identity = {{"kind", tokenizer.kind},
                          {"hash", tokenizer.hash},
                          {"vocabulary", tokenizer.vocabulary},
                          {"end_of_text", tokenizer.end_of_text},
                          {"train", write_split(train)}};
  const std::string text = identity.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return hash_hex(std::as_bytes(std::span(text)));
}

std::string to_json(const Manifest& manifest) {
  const Tokenizer& tokenizer = manifest.tokenizer;
  const OrderedJson json = {{"format", format_name},
                            {"version", format_version},
                            {"tokenizer",
                             {{"kind", tokenizer.kind},
                              {"name", tokenizer.name},
                              {"hash", tokenizer.hash},
                              {"vocabulary", tokenizer.vocabulary},
                              {"end_of_text", tokenizer.end_of_text}}},
                            {"seed", manifest.seed},
                            {"validation_fraction", manifest.validation_fraction},
                            {"unigram_bits_per_byte", manifest.unigram_bits_per_byte},
                            {"source_hash", manifest.source_hash},
                            {"train", write_split(manifest.train)},
                            {"validation", write_split(manifest.validation)}};
  try {
    return json.dump(2) + "\n";
  } catch (const Json::exception&) {
    throw InputError(Fault{"write manifest", "", "names in UTF-8", "a shard name that is not", "choose another --out"});
  }
}

Manifest parse_manifest(const std::string& json, const std::string& origin) {
  Json parsed;
  try {
    parsed = Json::parse(json);
  } catch (const Json::exception& error) {
    throw InputError(Fault{"read manifest", origin, "JSON", error.what(),
                           "prepare the text again with mhar data or python -m mhar.data"});
  }
  const Object root(parsed, "", origin);
  if (!parsed.contains("format") || parsed["format"] != format_name) {
    root.refuse("format", fmt::format("\"{}\"", format_name),
                parsed.contains("format") ? parsed["format"].dump(-1, ' ', true) : "nothing");
  }
  const int64_t version = root.integer("version", 0);
  if (version != format_version)
    root.refuse("version", std::to_string(format_version), "version " + std::to_string(version));
  Manifest manifest;
  manifest.tokenizer = read_tokenizer(root.object("tokenizer"));
  manifest.seed = root.integer("seed", 0);
  manifest.validation_fraction = root.number("validation_fraction");
  manifest.unigram_bits_per_byte = root.number("unigram_bits_per_byte");
  manifest.source_hash = root.text("source_hash");
  manifest.train = read_split(root.object("train"), origin);
  manifest.validation = read_split(root.object("validation"), origin);
  return manifest;
}

Manifest read_manifest(const fs::path& prefix) {
  const fs::path path = set_path(prefix, "read manifest").manifest();
  return parse_manifest(read_text(path, "read manifest"), path.string());
}

void write_manifest(const fs::path& prefix, const Manifest& manifest) {
  write_file_atomically(set_path(prefix, "write manifest").manifest(), to_json(manifest));
}

}  // namespace mhar::data
