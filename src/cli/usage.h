#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace mhar::cli {

/// Validators of options, for numbers and words. CLI11's own name limits of 300 digits and do not say what was wanted.
CLI::Validator whole_from(int64_t least, int64_t most = std::numeric_limits<int64_t>::max());
CLI::Validator number_from(double least);
CLI::Validator one_of(std::vector<std::string> words);

/// What is wrong with the command line, in one line of the form of every other error (base/error.h). `app` is the one
/// whose parse() threw.
std::string describe_usage(const CLI::App& app, const CLI::ParseError& error);

}  // namespace mhar::cli
