#pragma once
#include <CLI/CLI.hpp>
#include <functional>

namespace mhar::cli {

/// Exit codes of the program, as the README's table of commands promises.
enum ExitCode { kDone = 0, kFault = 1, kBadInput = 2, kStopped = 3 };

/// Adds a subcommand; the returned function runs it after parsing and gives the exit code.
using Command = std::function<int()>;
Command add_data(CLI::App& app);
Command add_train(CLI::App& app);
Command add_eval(CLI::App& app);
Command add_generate(CLI::App& app);
Command add_info(CLI::App& app);
Command add_bench(CLI::App& app);

}  // namespace mhar::cli
