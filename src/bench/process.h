#pragma once
#include <functional>
#include <string>
#include <vector>

namespace mhar::bench {

/// Runs a program (looked up on PATH), hands over the lines of its standard output as they come, and waits for its end.
/// Returns its exit code, 128 + N after signal N, or 127 where it could not be started. Standard error is shared.
int run_program(const std::vector<std::string>& words, const std::function<void(const std::string&)>& take_line);

}  // namespace mhar::bench
