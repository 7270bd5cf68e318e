#include "data/sources.h"

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/error.h"
#include "base/system_fault.h"

namespace mhar::data {
namespace {

class Walk {
 public:
  Walk(const SetPath& output, std::vector<std::string>& skipped) : skipped_(skipped) {
    std::error_code ignored;
    for (const fs::path& file : set_files(output)) own_.insert(fs::canonical(file, ignored));
  }

  void source(const fs::path& path) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (!fs::exists(status)) throw_system("read text", path, "a file or folder", error ? error.value() : ENOENT);
    if (fs::is_directory(status)) {
      folder(path);
    } else {
      file(path);
    }
  }

  std::vector<fs::path> files;

 private:
  void folder(const fs::path& path) {
    std::error_code error;
    std::vector<fs::directory_entry> entries;
    for (auto entry = fs::directory_iterator(path, error); !error && entry != fs::directory_iterator();
         entry.increment(error)) {
      entries.push_back(*entry);
    }
    if (error) throw_system("read text", path, "a readable folder", error.value());
    std::sort(entries.begin(), entries.end());
    for (const fs::directory_entry& entry : entries) visit(entry);
  }

  void visit(const fs::directory_entry& entry) {
    std::error_code ignored;
    const fs::path& path = entry.path();
    if (path.filename().string().starts_with('.')) {
      skip(path, "hidden");
    } else if (entry.is_directory(ignored)) {
      // Followed, a link to a folder above would never end.
      entry.is_symlink(ignored) ? skip(path, "a link to a folder") : folder(path);
    } else if (!entry.is_regular_file(ignored)) {
      skip(path, "not a regular file");
    } else if (own_.contains(fs::canonical(path, ignored))) {
      skip(path, "part of the shard set being written");
    } else {
      file(path);
    }
  }

  void file(const fs::path& path) {
    std::error_code ignored;
    // The same document twice could stand in both splits.
    if (!seen_.insert(fs::canonical(path, ignored)).second) return skip(path, "named twice");
    files.push_back(path);
  }

  void skip(const fs::path& path, const std::string& reason) { skipped_.push_back(path.string() + ": " + reason); }

  std::vector<std::string>& skipped_;
  std::set<fs::path> own_, seen_;
};

}  // namespace

std::vector<fs::path> collect_files(const std::vector<fs::path>& sources, const SetPath& output,
                                    std::vector<std::string>& skipped) {
  Walk walk(output, skipped);
  for (const fs::path& path : sources) walk.source(path);
  return walk.files;
}

}  // namespace mhar::data
