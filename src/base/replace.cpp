#include "base/replace.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "base/error.h"
#include "base/system_fault.h"

namespace mhar {
namespace {

constexpr std::string_view temporary_prefix = ".tmp-";  // being filled
constexpr std::string_view trash_prefix = ".trash-";    // being removed
constexpr std::string_view aside_prefix =
    ".old-";  // set aside for a moment; whole, and wanted back if its place is empty

fs::path beside(const Place& place, std::string_view prefix) {
  return place.parent / (std::string(prefix) + place.name + "-" + std::to_string(::getpid()));
}

void rename_or_throw(const fs::path& from, const fs::path& to, std::string_view operation) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    throw_system(operation, to, "to rename " + from.string() + " to it", errno);
}

/// Leftovers that cannot be removed now are found by the next remove_leftovers, so their errors are not errors of the
/// save.
void remove_quietly(const fs::path& path) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

void sync_file(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool flushed = file >= 0 && ::fsync(file) == 0;
  const int error = errno;
  if (file >= 0) ::close(file);
  if (!flushed) throw_system("flush file", path, "to flush it to the disk", error);
}

void sync_tree(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_symlink()) continue;
    if (entry.is_directory()) {
      sync_tree(entry.path());
    } else if (entry.is_regular_file()) {
      sync_file(entry.path());
    }
  }
  sync_folder(folder);
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw_system("create folder", folder, "to create it", error.value());
}

/// A leftover's own name ("step-1" of ".tmp-step-1-4711") when it has `prefix` and its process is gone or is this one.
std::string abandoned_name(const std::string& name, std::string_view prefix) {
  const size_t dash = name.rfind('-');
  if (!name.starts_with(prefix) || dash <= prefix.size() || dash + 1 == name.size()) return "";
  int process = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + dash + 1, end, process);
  if (error != std::errc() || stop != end || process <= 0) return "";
  const bool alive = process != ::getpid() && (::kill(process, 0) == 0 || errno == EPERM);
  return alive ? "" : name.substr(prefix.size(), dash - prefix.size());
}

}  // namespace

Place place_of(const fs::path& path, std::string_view operation) {
  fs::path plain = path;
  while (!plain.has_filename() && plain.has_relative_path()) plain = plain.parent_path();
  const std::string name = plain.filename().string();
  if (name.empty() || name == "." || name == "..") {
    throw InputError(Fault{std::string(operation), path.string(), "a path that ends in a name",
                           path.empty() ? "nothing" : "none", "add a name to the path"});
  }
  return {plain.has_parent_path() ? plain.parent_path() : fs::path("."), name};
}

fs::path temporary_beside(const fs::path& target, std::string_view operation) {
  return beside(place_of(target, operation), temporary_prefix);
}

void put_in_place(const fs::path& temporary, const fs::path& target, bool exchange) {
  const std::string operation = "write folder";
  const Place place = place_of(target, operation);
  const fs::path plain = place.parent / place.name;
  if (!is_there(plain)) {
    rename_or_throw(temporary, plain, operation);
    sync_folder(place.parent);
    return;
  }
  if (exchange && ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, plain.c_str(), RENAME_EXCHANGE) == 0) {
    sync_folder(place.parent);
    remove_quietly(temporary);
    return;
  }
  if (exchange && errno != EINVAL && errno != ENOSYS) throw_system(operation, plain, "to exchange it", errno);
  const fs::path aside = beside(place, aside_prefix);
  remove_quietly(aside);
  rename_or_throw(plain, aside, operation);
  if (::rename(temporary.c_str(), plain.c_str()) != 0) {
    const int error = errno;
    rename_or_throw(aside, plain, operation);
    throw_system(operation, plain, "to rename " + temporary.string() + " to it", error);
  }
  sync_folder(place.parent);
  remove_quietly(aside);
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  const std::string operation = "write file";
  const Place place = place_of(path, operation);
  const fs::path temporary = beside(place, temporary_prefix);
  try {
    FileWriter file(temporary);
    file.write(text);
    file.close();
    rename_or_throw(temporary, place.parent / place.name, operation);
  } catch (...) {
    remove_quietly(temporary);
    throw;
  }
  sync_folder(place.parent);
}

void write_folder_atomically(const fs::path& target, const std::function<void(const fs::path& temporary)>& fill) {
  const std::string operation = "write folder";
  const Place place = place_of(target, operation);
  const fs::path plain = place.parent / place.name;
  std::error_code ignored;
  if (is_there(plain) && !fs::is_directory(plain, ignored)) {
    throw InputError(Fault{operation, plain.string(), "a folder or nothing", "a file", "choose another name"});
  }
  make_folder(place.parent);
  const fs::path temporary = beside(place, temporary_prefix);
  remove_quietly(temporary);
  make_folder(temporary);
  try {
    fill(temporary);
    sync_tree(temporary);
    put_in_place(temporary, plain);
  } catch (...) {
    remove_quietly(temporary);
    throw;
  }
}

void remove_folder_atomically(const fs::path& folder) {
  const std::string operation = "remove folder";
  const Place place = place_of(folder, operation);
  const fs::path trash = beside(place, trash_prefix);
  if (!is_there(place.parent / place.name)) return;
  remove_quietly(trash);
  rename_or_throw(place.parent / place.name, trash, operation);
  sync_folder(place.parent);
  remove_quietly(trash);
}

int remove_leftovers(const fs::path& parent) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (const fs::directory_entry& entry : fs::directory_iterator(parent, error)) entries.push_back(entry.path());
  if (error && error != std::errc::no_such_file_or_directory) {
    throw_system("remove leftovers", parent, "a readable folder", error.value());
  }
  std::sort(entries.begin(), entries.end());
  int removed = 0;
  for (const fs::path& entry : entries) {
    const std::string name = entry.filename().string();
    const std::string aside = abandoned_name(name, aside_prefix);
    if (!aside.empty() && !is_there(parent / aside)) {
      rename_or_throw(entry, parent / aside, "restore folder");
      sync_folder(parent);
    } else if (!aside.empty() || !abandoned_name(name, temporary_prefix).empty() ||
               !abandoned_name(name, trash_prefix).empty()) {
      remove_quietly(entry);
      ++removed;
    }
  }
  return removed;
}

}  // namespace mhar
