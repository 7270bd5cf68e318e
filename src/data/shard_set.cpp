#include "data/shard_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "base/replace.h"
#include "base/system_fault.h"

namespace mhar::data {
namespace {

/// True for "STEM-00012.npy".
bool is_shard(std::string_view file, std::string_view stem) {
  constexpr std::string_view ending = ".npy";
  if (!file.starts_with(stem) || !file.ends_with(ending) || file.size() < stem.size() + 6 + ending.size()) return false;
  const std::string_view number = file.substr(stem.size(), file.size() - stem.size() - ending.size());
  return number.front() == '-' && number.find_first_not_of("0123456789", 1) == std::string_view::npos;
}

/// Renames that can be taken back.
class Moves {
 public:
  void move(const fs::path& from, const fs::path& to) {
    if (std::rename(from.c_str(), to.c_str()) != 0) {
      throw_system("replace shards", to, "to rename " + from.string() + " to it", errno);
    }
    done_.emplace_back(from, to);
  }
  void undo() {
    for (auto move = done_.rbegin(); move != done_.rend(); ++move) {
      std::rename(move->second.c_str(), move->first.c_str());
    }
  }

 private:
  std::vector<std::pair<fs::path, fs::path>> done_;
};

}  // namespace

SetPath set_path(const fs::path& prefix, const std::string& operation) {
  Place place = place_of(prefix, operation);
  if (place.name.ends_with(".json") && place.name.size() > 5) place.name.resize(place.name.size() - 5);
  return {place.parent, place.name};
}

std::string shard_file(const std::string& stem, int64_t number) { return fmt::format("{}-{:05}.npy", stem, number); }

std::vector<fs::path> set_files(const SetPath& set) {
  std::vector<fs::path> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(set.folder, error)) {
    const std::string file = entry.path().filename().string();
    if (file == set.name + ".json" || is_shard(file, set.stem("train")) || is_shard(file, set.stem("validation"))) {
      files.push_back(set.folder / file);
    }
  }
  if (error && error.value() != ENOENT) throw_system("read folder", set.folder, "a readable folder", error.value());
  std::sort(files.begin(), files.end());
  return files;
}

void replace_set(const SetPath& set, const fs::path& temporary, const Manifest& manifest) {
  const fs::path written = temporary / set.manifest().filename();
  write_file_atomically(written, to_json(manifest));
  const fs::path aside = temporary / ".old";
  std::error_code error;
  fs::create_directory(aside, error);
  if (error) throw_system("replace shards", aside, "to create it", error.value());
  Moves moves;
  try {
    const fs::path old = set.manifest();
    // Without a manifest the files are no set: nobody reads old and new shards as one, whenever this stops.
    if (fs::exists(old, error)) moves.move(old, aside / old.filename());
    for (const fs::path& file : set_files(set)) moves.move(file, aside / file.filename());
    for (const Split* split : {&manifest.train, &manifest.validation}) {
      for (const Shard& shard : split->shards) moves.move(temporary / shard.file, set.folder / shard.file);
    }
    sync_folder(set.folder);
    moves.move(written, old);
  } catch (...) {
    moves.undo();
    throw;
  }
  sync_folder(set.folder);
}

}  // namespace mhar::data
