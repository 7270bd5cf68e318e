#include "data/prepare.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/hash.h"
#include "base/replace.h"
#include "base/system_fault.h"
#include "data/random.h"
#include "data/shard_set.h"
#include "data/shard_writer.h"
#include "data/sources.h"

namespace mhar::data {
namespace {

constexpr const char* operation = "prepare data";
constexpr uint32_t end_of_text = 256;

/// A folder for files that are not finished; gone at the end, whatever happens.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)) {
    std::error_code error;
    fs::remove_all(path_, error);
    fs::create_directories(path_, error);
    if (error) throw_system(operation, path_, "to create it", error.value());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// Takes documents in order and deals them out to the two splits.
class ByteSet {
 public:
  ByteSet(const PrepareOptions& options, const SetPath& set, const fs::path& folder)
      : options_(options),
        train_(folder, set.stem("train"), 2, options.shard_tokens),
        validation_(folder, set.stem("validation"), 2, options.shard_tokens) {}

  /// Returns why the file is not a document, or nothing.
  std::string add(const fs::path& path) {
    MappedFile file(path);
    const std::span<const std::byte> bytes = file.bytes();
    if (bytes.empty()) return "empty";
    if (std::memchr(bytes.data(), 0, bytes.size()) != nullptr) return "binary (holds a zero byte)";
    hash_.update(bytes);
    hash_.update(std::array{std::byte{0}});
    if (documents_++ == 0) {
      first_.emplace(std::move(file));
      return "";
    }
    write_first(in_validation(options_.seed, 0, options_.validation_fraction));
    write(bytes, in_validation(options_.seed, static_cast<uint64_t>(documents_ - 1), options_.validation_fraction));
    return "";
  }

  Manifest finish() {
    write_first(false);
    manifest_.seed = static_cast<int64_t>(options_.seed);
    manifest_.validation_fraction = options_.validation_fraction;
    manifest_.source_hash = hash_.hex();
    manifest_.train.shards = train_.finish();
    manifest_.validation.shards = validation_.finish();
    manifest_.unigram_bits_per_byte = unigram();
    return manifest_;
  }

  int64_t documents() const { return documents_; }

 private:
  /// The first document waits for a second: alone, it is training text whatever the split rule says of the pair.
  void write_first(bool validation) {
    if (first_) write(first_->bytes(), validation);
    first_.reset();
  }

  void write(std::span<const std::byte> bytes, bool validation) {
    ShardWriter& writer = validation ? validation_ : train_;
    Split& split = validation ? manifest_.validation : manifest_.train;
    std::array<uint32_t, 4096> ids;
    for (size_t at = 0; at < bytes.size(); at += ids.size()) {
      const size_t count = std::min(ids.size(), bytes.size() - at);
      for (size_t i = 0; i < count; ++i) {
        ids[i] = static_cast<uint32_t>(bytes[at + i]);
        ++counts_[ids[i]];
      }
      writer.append(std::span(ids).first(count));
    }
    writer.append(std::array{end_of_text});
    ++counts_[end_of_text];
    ++split.documents;
    split.bytes += static_cast<int64_t>(bytes.size());
    split.tokens += static_cast<int64_t>(bytes.size()) + 1;
  }

  double unigram() const {
    const auto tokens = static_cast<double>(manifest_.train.tokens + manifest_.validation.tokens);
    double bits = 0.0;
    for (const int64_t count : counts_) {
      if (count > 0) bits -= static_cast<double>(count) * std::log2(static_cast<double>(count) / tokens);
    }
    return bits / static_cast<double>(manifest_.train.bytes + manifest_.validation.bytes);
  }

  const PrepareOptions& options_;
  ShardWriter train_, validation_;
  Manifest manifest_;
  Hash hash_;
  std::array<int64_t, 257> counts_{};
  std::optional<MappedFile> first_;
  int64_t documents_ = 0;
};

void check(const PrepareOptions& options, const SetPath& set) {
  if (!(options.validation_fraction >= 0.0 && options.validation_fraction < 1.0)) {
    throw InputError(Fault{"option --validation-fraction", "", "at least 0 and below 1",
                           fmt::format("{}", options.validation_fraction), "choose a fraction such as 0.05"});
  }
  if (options.seed > uint64_t{INT64_MAX}) {
    throw InputError(
        Fault{"option --seed", "", "a number below 2^63", std::to_string(options.seed), "choose a smaller one"});
  }
  if (options.shard_tokens < 1) {
    throw InputError(Fault{"option --shard-tokens", "", "at least 1", std::to_string(options.shard_tokens),
                           "choose a larger number"});
  }
  if (set.name.ends_with("-validation")) {
    throw InputError(Fault{"option --out", set.name, "a name that does not end in -validation",
                           "one whose shards another set's validation shards could overwrite", "choose another name"});
  }
}

}  // namespace

PrepareResult prepare_bytes(const PrepareOptions& options) {
  const SetPath set = set_path(options.prefix, operation);
  check(options, set);
  PrepareResult result;
  const std::vector<fs::path> files = collect_files(options.sources, set, result.skipped);
  std::error_code error;
  fs::create_directories(set.folder, error);
  if (error) throw_system(operation, set.folder, "to create it", error.value());
  remove_leftovers(set.folder);
  const TemporaryFolder temporary(temporary_beside(set.folder / set.name, operation));
  ByteSet bytes(options, set, temporary.path());
  for (const fs::path& file : files) {
    const std::string reason = bytes.add(file);
    if (!reason.empty()) result.skipped.push_back(file.string() + ": " + reason);
  }
  if (bytes.documents() == 0) {
    throw InputError(Fault{operation, options.sources.empty() ? "" : options.sources.front().string(),
                           "at least one file with text",
                           fmt::format("{} files, {} left out", files.size(), result.skipped.size()),
                           "name text files or folders that hold some"});
  }
  result.manifest = bytes.finish();
  replace_set(set, temporary.path(), result.manifest);
  return result;
}

}  // namespace mhar::data
