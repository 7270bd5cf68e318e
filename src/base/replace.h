#pragma once
#include "base/file.h"

namespace mhar {

/// A path without trailing separators, split: the folder ("." when none is given) and the name in it. Throws InputError
/// when no name is left ("", "/", "a/..").
struct Place {
  fs::path parent;
  std::string name;
};
Place place_of(const fs::path& path, std::string_view operation);

/// parent/.tmp-NAME-PID: the name under which this process fills a file or folder before it takes the place of
/// `target`.
fs::path temporary_beside(const fs::path& target, std::string_view operation);

/// Moves the finished folder `temporary` to `target`; what stood there is removed afterwards. With `exchange` the two
/// swap in one step; without it, or on a file system that cannot, the old one is set aside first, and a kill between
/// the two renames is mended by remove_leftovers.
void put_in_place(const fs::path& temporary, const fs::path& target, bool exchange = true);

}  // namespace mhar
