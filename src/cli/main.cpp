#include <c10/util/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <system_error>

#include "base/error.h"
#include "base/system_fault.h"
#include "base/version.h"
#include "cli/commands.h"
#include "cli/usage.h"

namespace mhar::cli {
namespace {

struct Entry {
  CLI::App* app;
  Command run;
};

int report(const std::string& message, ExitCode code) {
  // Not fmt::print, which throws where standard error cannot be written to.
  std::fputs(fmt::format("mhar: {}\n", message).c_str(), stderr);
  return code;
}

/// The number of a closed standard stream would go to the next file opened, and what is printed would land in it.
void open_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) < 0) ::open("/dev/null", stream == STDIN_FILENO ? O_RDONLY : O_WRONLY);
  }
}

int output_lost(int error) {
  const std::string reason = error != 0 ? std::generic_category().message(error) : "an error";
  return report(describe({"write output", "standard output", "all lines to be written", reason, remedy_for(error)}),
                kBadInput);
}

/// Output that a full disk or a closed pipe swallowed must not look like success. A loss noticed earlier left no
/// reason.
int checked(int code) {
  if (code != kDone) return code;
  errno = 0;
  if (std::fflush(stdout) != 0) return output_lost(errno);
  return std::ferror(stdout) != 0 ? output_lost(0) : code;
}

int out_of_memory() {
  return report(describe({"allocate memory", "", "as much as model and batch need", "too little on this machine",
                          "lower --microbatch (train) or --batch (eval), or use a smaller model"}),
                kBadInput);
}

int main(int argc, char** argv) {
  CLI::App app{"mhar: train, evaluate and sample Transformers whose residual stream is attention over depth"};
  app.set_version_flag("--version", version());
  app.require_subcommand(1);
  app.set_help_all_flag("--help-all", "Help of every subcommand");
  std::vector<Entry> entries;
  for (auto add : {add_data, add_train, add_eval, add_generate, add_info, add_bench}) {
    Command run = add(app);
    entries.push_back({app.get_subcommands([](CLI::App*) { return true; }).back(), std::move(run)});
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help or version was asked for
    return report(describe_usage(app, error), kBadInput);
  }
  for (const auto& entry : entries) {
    if (entry.app->parsed()) return entry.run();
  }
  return kBadInput;
}

}  // namespace
}  // namespace mhar::cli

int main(int argc, char** argv) {
  mhar::cli::open_standard_streams();
  // A full disk or a closed pipe has to come back as an error with a message, not as a signal.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  spdlog::set_default_logger(spdlog::stderr_color_mt("mhar"));
  spdlog::set_pattern("%H:%M:%S %^%l%$ %v");
  try {
    return mhar::cli::checked(mhar::cli::main(argc, argv));
  } catch (const mhar::InputError& error) {
    return mhar::cli::report(error.what(), mhar::cli::kBadInput);
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string path = error.path1().string(), reason = error.code().message();
    return mhar::cli::report(
        mhar::describe({"open", path, "a path that can be used", reason, mhar::remedy_for(error.code().value())}),
        mhar::cli::kBadInput);
  } catch (const std::bad_alloc&) {
    return mhar::cli::out_of_memory();
  } catch (const c10::Error& error) {
    const std::string what = error.what_without_backtrace();
    const bool memory =
        what.find("not enough memory") != std::string::npos || what.find("out of memory") != std::string::npos;
    return memory ? mhar::cli::out_of_memory() : mhar::cli::report(what, mhar::cli::kFault);
  } catch (const std::system_error& error) {
    if (std::ferror(stdout) != 0) return mhar::cli::output_lost(error.code().value());
    return mhar::cli::report(error.what(), mhar::cli::kFault);
  } catch (const std::exception& error) {
    return mhar::cli::report(error.what(), mhar::cli::kFault);
  }
}
