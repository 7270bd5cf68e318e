#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace mhar {

namespace fs = std::filesystem;

/// A whole file mapped read-only. Throws InputError when it is missing, unreadable or not a regular file.
class MappedFile {
 public:
  explicit MappedFile(const fs::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// The whole file as a string. Throws InputError naming `operation` and the path.
std::string read_text(const fs::path& path, std::string_view operation);

/// A file being written; every short write, full disk or I/O error throws InputError naming the path and the system's
/// word. Nothing is durable before close().
class FileWriter {
 public:
  explicit FileWriter(const fs::path& path);  ///< creates or truncates
  ~FileWriter();                              ///< closes without flushing to disk
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  void seek(uint64_t offset);  ///< from the start
  void close();                ///< flushes to the disk (fsync) and closes

 private:
  fs::path path_;
  int descriptor_ = -1;
};

/// Held while a process works in a folder: a second one gets an InputError. Gone with the process, however it ends; on
/// file systems without locks it holds nobody off.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

/// Flushes a folder's entries to the disk.
void sync_folder(const fs::path& folder);

/// Replaces the file `path` in one step: a reader sees the old text or the new one, never a part, also after a kill or
/// power cut.
void write_file_atomically(const fs::path& path, std::string_view text);

/// Fills a folder aside and puts it in place of `target` in one step; a `target` that exists is exchanged and then
/// removed. `fill` writes into the folder it is given; when it throws, the temporary folder is removed and `target` is
/// as before.
void write_folder_atomically(const fs::path& target, const std::function<void(const fs::path& temporary)>& fill);

/// Removes a folder so that a kill part-way never leaves it half there under its own name (renamed aside first).
void remove_folder_atomically(const fs::path& folder);

/// Removes what killed processes left in `parent`: the temporary names of the two functions above. Returns how many.
int remove_leftovers(const fs::path& parent);

}  // namespace mhar
