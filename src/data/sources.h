#pragma once
#include <string>
#include <vector>

#include "base/file.h"
#include "data/shard_set.h"

namespace mhar::data {

/// The files that `sources` name, each once: files as given, folders walked in sorted order. Hidden entries, links to
/// folders, devices and the files of `output` itself are left out of a walk and reported in `skipped`. Throws
/// InputError for a source that is missing and a folder that cannot be read.
std::vector<fs::path> collect_files(const std::vector<fs::path>& sources, const SetPath& output,
                                    std::vector<std::string>& skipped);

}  // namespace mhar::data
