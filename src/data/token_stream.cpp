#include "data/token_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/error.h"
#include "base/hash.h"
#include "data/shard_set.h"

namespace mhar::data {
namespace {

const Shard* find_hash(const Manifest& manifest, const std::string& hash) {
  for (const Split* split : {&manifest.train, &manifest.validation}) {
    for (const Shard& shard : split->shards) {
      if (shard.hash == hash) return &shard;
    }
  }
  return nullptr;
}

/// The set's shards on disk that its manifest does not know: where a renamed one may have gone.
std::string unlisted(const SetPath& set, const Manifest& manifest) {
  std::string names;
  for (const fs::path& path : set_files(set)) {
    const std::string file = path.filename().string();
    const auto is_this = [&](const Shard& shard) { return shard.file == file; };
    if (path.extension() != ".npy" || std::ranges::any_of(manifest.train.shards, is_this) ||
        std::ranges::any_of(manifest.validation.shards, is_this)) {
      continue;
    }
    names += (names.empty() ? "" : ", ") + file;
  }
  return names;
}

TokenFile open_shard(const SetPath& set, const Manifest& manifest, const Shard& shard) {
  const fs::path path = set.folder / shard.file;
  constexpr const char* operation = "load tokens";
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
    const std::string others = unlisted(set, manifest);
    throw InputError(Fault{operation, path.string(), "the shard that the manifest names",
                           others.empty() ? "no such file" : "no such file, but " + others + ", which it does not name",
                           "give the shard its name back or prepare the text again"});
  }
  TokenFile file(path);
  if (file.size() != shard.tokens) {
    throw InputError(Fault{operation, path.string(), fmt::format("{} tokens as in the manifest", shard.tokens),
                           std::to_string(file.size()), "prepare the text again"});
  }
  const std::string hash = hash_hex(file.payload());
  if (hash != shard.hash) {
    const Shard* other = find_hash(manifest, hash);
    throw InputError(Fault{operation, path.string(), fmt::format("the tokens of {} (hash {})", shard.file, shard.hash),
                           other != nullptr ? fmt::format("those of {} (hash {})", other->file, hash) : "hash " + hash,
                           other != nullptr ? "give the shards their names back or prepare the text again"
                                            : "the file was changed or damaged: prepare the text again"});
  }
  return file;
}

}  // namespace

TokenStream::TokenStream(const fs::path& prefix, const Manifest& manifest, const std::string& split,
                         int64_t vocabulary) {
  if (split != "train" && split != "validation") throw std::invalid_argument("TokenStream: no split " + split);
  const SetPath set = set_path(prefix, "load tokens");
  for (const Shard& shard : (split == "train" ? manifest.train : manifest.validation).shards) {
    TokenFile file = open_shard(set, manifest, shard);
    const int64_t largest = file.largest();
    if (largest >= vocabulary) {
      throw InputError(
          Fault{"load tokens", (set.folder / shard.file).string(),
                fmt::format("ids below the model's vocabulary of {}", vocabulary), fmt::format("id {}", largest),
                fmt::format("set --vocabulary to {} (the data's) or prepare the text with the model's tokenizer",
                            std::max(manifest.tokenizer.vocabulary, largest + 1))});
    }
    starts_.push_back(size_);
    size_ += file.size();
    files_.push_back(std::move(file));
  }
}

void TokenStream::copy(int64_t begin, std::span<int64_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  if (begin < 0 || count > size_ || begin > size_ - count) throw std::out_of_range("TokenStream::copy: past the end");
  auto shard = static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin());
  while (!out.empty()) {
    const TokenFile& file = files_[shard - 1];
    const int64_t from = begin - starts_[shard - 1];
    const auto piece = static_cast<size_t>(std::min(file.size() - from, static_cast<int64_t>(out.size())));
    file.copy(from, out.first(piece));
    out = out.subspan(piece);
    begin += static_cast<int64_t>(piece);
    ++shard;
  }
}

int64_t window_count(int64_t tokens, int64_t sequence) {
  return tokens < 1 || sequence < 1 ? 0 : (tokens - 1) / sequence;
}

}  // namespace mhar::data
