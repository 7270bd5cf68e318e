#pragma once
#include <string>
#include <vector>

#include "data/manifest.h"

namespace mhar::data {

/// DIR/NAME of a shard set, taken apart; trailing separators and a trailing .json are dropped.
struct SetPath {
  fs::path folder;
  std::string name;
  fs::path manifest() const { return folder / (name + ".json"); }
  /// Shards of a split are STEM-00000.npy, STEM-00001.npy, ...
  std::string stem(const std::string& split) const { return split == "train" ? name : name + "-" + split; }
};
/// Throws InputError when no name is left.
SetPath set_path(const fs::path& prefix, const std::string& operation);

/// Files on disk that carry the set's names: the manifest and every shard, also those of an earlier larger set.
std::vector<fs::path> set_files(const SetPath& set);

/// Puts the finished files in `temporary` (every shard of `manifest`, on disk already) in place of the set's: writes
/// the manifest beside them, sets the old files aside, moves the new ones in with the manifest last, removes the old.
/// When a step fails, the old set is put back.
void replace_set(const SetPath& set, const fs::path& temporary, const Manifest& manifest);

/// 1234567 as a shard number: at least five digits.
std::string shard_file(const std::string& stem, int64_t number);

}  // namespace mhar::data
