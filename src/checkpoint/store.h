#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace mhar::checkpoint {

/// The checkpoints/ folder of a run: step-00001000/ and so on, each complete or absent.
class Store {
 public:
  explicit Store(fs::path folder) : folder_(std::move(folder)) {}

  /// Writes a checkpoint in one step through `fill` (see write_folder_atomically); the same step may be saved again.
  /// After `fill`, a files.json with every file's size is added: what check_complete() checks. Cleans first. Returns
  /// the checkpoint's folder.
  fs::path save(int64_t step, const std::function<void(const fs::path& temporary)>& fill);

  /// Removes what a killed save left and puts a checkpoint that it had set aside back; returns how many were removed.
  /// For the process that owns the run alone, before newest(): another one could meet a save under way.
  int clean();

  /// Steps there are, ascending, whether complete or not.
  std::vector<int64_t> steps() const;
  fs::path path(int64_t step) const;

  /// The newest checkpoint whose files all have their recorded sizes; incomplete ones are passed over and reported in
  /// `skipped` (path and reason). None: no checkpoint.
  std::optional<fs::path> newest(std::vector<std::string>& skipped) const;

  /// Keeps the newest `last` complete checkpoints and those whose step is a multiple of `every` (0: none); removes the
  /// other complete ones. Incomplete ones count for nothing and stay: nothing that a user may want to look at is lost.
  void prune(int64_t last, int64_t every);

 private:
  fs::path folder_;
};

/// Throws InputError naming the file that is missing or has another size than files.json says. A folder without
/// files.json (a Hugging Face model) passes.
void check_complete(const fs::path& checkpoint);

}  // namespace mhar::checkpoint
