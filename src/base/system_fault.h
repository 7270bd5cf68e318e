#pragma once
#include <filesystem>
#include <string>
#include <string_view>

namespace mhar {

/// Throws InputError for a failed system call: `error` is its errno, in the system's own word and with what to do about
/// it.
[[noreturn]] void throw_system(std::string_view operation, const std::filesystem::path& path, std::string_view wanted,
                               int error);

/// What a user can do about errno `error`; never empty.
std::string remedy_for(int error);

}  // namespace mhar
