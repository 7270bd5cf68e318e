#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <csignal>
#include <exception>
#include <filesystem>
#include <new>

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
  fmt::print(stderr, "mhar: {}\n", message);
  return code;
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
  for (auto add : {add_data, add_train, add_eval, add_generate, add_info}) {
    Command run = add(app);
    entries.push_back({app.get_subcommands([](CLI::App*) { return true; }).back(), std::move(run)});
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help or version was asked for
    fmt::print(stderr, "mhar: {}\n", describe_usage(app, error));
    return kBadInput;
  }
  for (const auto& entry : entries) {
    if (entry.app->parsed()) return entry.run();
  }
  return kBadInput;
}

}  // namespace
}  // namespace mhar::cli

int main(int argc, char** argv) {
  // A full disk or a closed pipe has to come back as an error with a message, not as a signal.
  std::signal(SIGXFSZ, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
  spdlog::set_default_logger(spdlog::stderr_color_mt("mhar"));
  spdlog::set_pattern("%H:%M:%S %^%l%$ %v");
  try {
    return mhar::cli::main(argc, argv);
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
  } catch (const std::exception& error) {
    return mhar::cli::report(error.what(), mhar::cli::kFault);
  }
}
