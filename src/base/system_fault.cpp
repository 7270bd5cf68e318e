#include "base/system_fault.h"

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace mhar {

std::string remedy_for(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
      return "free space on this disk or choose a folder on another one";
    case EFBIG:
      return "raise the file size limit (ulimit -f) or choose another file system";
    case EACCES:
    case EPERM:
      return "give yourself permission for this path or choose another one";
    case EROFS:
      return "choose a folder on a disk that can be written to";
    case ENOENT:
      return "check the path";
    case ENOTDIR:
      return "check the path: one of its folders is a file";
    case EISDIR:
      return "name a file, not a folder";
    case ENAMETOOLONG:
      return "choose a shorter name";
    case EMFILE:
    case ENFILE:
      return "raise the limit of open files (ulimit -n)";
    case EPIPE:
      return "let the reading program take all of it";
    case EIO:
      return "check the disk";
    case ENOMEM:
      return "free memory or raise its limit (ulimit -v)";
    default:
      return "check the path and its disk";
  }
}

void throw_system(std::string_view operation, const std::filesystem::path& path, std::string_view wanted, int error) {
  throw InputError(
      Fault{std::string(operation), path.string(), std::string(wanted), std::strerror(error), remedy_for(error)});
}

}  // namespace mhar
