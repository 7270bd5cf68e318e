#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "base/error.h"
#include "base/system_fault.h"

namespace mhar {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }

 private:
  int value_;
};

constexpr std::string_view write_operation = "write file";

}  // namespace

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  constexpr std::string_view operation = "open file";
  // Without O_NONBLOCK a named pipe would wait for a writer before it could be refused.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw_system(operation, path, "a readable file", errno);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw_system(operation, path, "a readable file", errno);
  if (!S_ISREG(status.st_mode)) {
    throw InputError(Fault{std::string(operation), path.string(), "a regular file",
                           S_ISDIR(status.st_mode) ? "a folder" : "a device or pipe", "name a file"});
  }
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) throw_system(operation, path, "to map it into memory", errno);
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, size_t{0})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

std::string read_text(const fs::path& path, std::string_view operation) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) throw_system(operation, path, "a readable file", errno);
  std::string text;
  std::string piece(size_t{1} << 16, '\0');
  while (true) {
    const ssize_t count = ::read(file.get(), piece.data(), piece.size());
    if (count == 0) return text;
    if (count > 0) {
      text.append(piece, 0, static_cast<size_t>(count));
    } else if (errno != EINTR) {
      throw_system(operation, path, "a readable file", errno);
    }
  }
}

FileWriter::FileWriter(const fs::path& path) : path_(path) {
  // A limit on file sizes (ulimit -f) would otherwise kill the process in the middle of a save; ignored, write() says
  // EFBIG.
  static const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  static_cast<void>(previous);
  descriptor_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw_system(write_operation, path, "to create it", errno);
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
    if (count > 0) {
      bytes = bytes.subspan(static_cast<size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      throw_system(write_operation, path_, "to write " + std::to_string(bytes.size()) + " more bytes",
                   count == 0 ? EIO : errno);
    }
  }
}

void FileWriter::write(std::string_view text) { write(std::as_bytes(std::span(text.data(), text.size()))); }

void FileWriter::seek(uint64_t offset) {
  if (::lseek(descriptor_, static_cast<off_t>(offset), SEEK_SET) < 0) {
    throw_system(write_operation, path_, "to go to byte " + std::to_string(offset), errno);
  }
}

void FileWriter::close() {
  if (::fsync(descriptor_) != 0) throw_system(write_operation, path_, "to flush it to the disk", errno);
  // The number is given back even when close() fails (Linux), so it is never closed twice.
  if (::close(std::exchange(descriptor_, -1)) != 0) throw_system(write_operation, path_, "to close it", errno);
}

FolderLock::FolderLock(const fs::path& folder) {
  constexpr std::string_view operation = "lock folder";
  descriptor_ = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor_ < 0) throw_system(operation, folder, "a folder that can be read", errno);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(descriptor_);
  throw InputError(Fault{std::string(operation), folder.string(), "a folder that no other process works in",
                         "one that another process holds", "wait until it has ended, or choose another folder"});
}

FolderLock::~FolderLock() { ::close(descriptor_); }

void sync_folder(const fs::path& folder) {
  constexpr std::string_view operation = "flush folder";
  const Descriptor file(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (file.get() < 0) throw_system(operation, folder, "a folder", errno);
  // Some network file systems cannot flush folders and say EINVAL: nothing more can be done there.
  if (::fsync(file.get()) != 0 && errno != EINVAL) throw_system(operation, folder, "to flush it to the disk", errno);
}

}  // namespace mhar
