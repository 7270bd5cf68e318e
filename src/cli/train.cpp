#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "cli/commands.h"
#include "config/options.h"
#include "residual/design.h"
#include "train/run.h"

namespace mhar::cli {
namespace {

struct Options {
  std::string config_file;
  std::map<std::string, std::string> given;  // option name to the text typed
  bool json = false;
};

// A run folder that was moved or copied still names its old place: going on there would not be what was meant.
void check_place(const fs::path& file, const fs::path& run) {
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  std::error_code ignored;
  if (!fs::is_directory(folder / "checkpoints", ignored) || fs::equivalent(folder, run, ignored)) return;
  throw InputError({"train", file.string(), fmt::format("run to be the run folder it lies in, {}", folder.string()),
                    "'" + run.string() + "'", "add --run with the folder that is meant"});
}

// The file first, then what was typed: an option overrides the file.
RunConfig configured(const Options& options) {
  RunConfig config;
  if (!options.config_file.empty()) read_toml(options.config_file, config);
  for (const auto& option : mhar::options()) {
    const auto found = options.given.find(option.name);
    if (found != options.given.end()) set_option(config, option, found->second);
  }
  for (const auto& [name, value] : {std::pair{"data", &config.data}, std::pair{"run", &config.run}}) {
    if (value->empty()) {
      throw InputError(
          {"train", fmt::format("option --{}", name), "a path", "nothing", fmt::format("add --{} PATH", name)});
    }
  }
  if (!options.config_file.empty() && !options.given.contains("run")) check_place(options.config_file, config.run);
  residual::find(config.design);
  return resolve(config);
}

void print_done(const nlohmann::json& event) {
  fmt::print("step {}: ", event.at("step").get<int64_t>());
  if (event.at("validation_loss").is_number()) {
    fmt::print("validation loss {:.4f}, mean of the last validations {:.4f}, ",
               event.at("validation_loss").get<double>(), event.at("validation_tail_mean").get<double>());
  }
  fmt::print("{:.0f} tokens/s\n{}\n", event.at("tokens_per_s").get<double>(),
             event.at("checkpoint").get<std::string>());
}

int run(const Options& options) {
  const RunConfig config = configured(options);
  const Ending ending = run_training(config, [&](const nlohmann::json& event) {
    if (options.json) {
      // A reader that went away must not end the run: the fault is reported when it is done.
      std::fputs((event.dump() + "\n").c_str(), stdout);
      std::fflush(stdout);
    } else if (event.at("event") == "done") {
      print_done(event);
    }
  });
  return ending == Ending::done ? kDone : kStopped;
}

std::string help_of(const Option& option, const RunConfig& defaults) {
  std::string help = option.help;
  if (!option.choices.empty()) help += fmt::format(": {}", fmt::join(option.choices, ", "));
  const std::string value = option_text(defaults, option);
  if (!value.empty()) help += " [" + value + "]";
  return help;
}

std::string design_help() {
  std::string text = "Designs:\n";
  for (const auto& entry : residual::registry()) text += fmt::format("  {:<10} {}\n", entry.name, entry.help);
  return text + "\nThe value in brackets is the default. A true-or-false option without a value means true.\n";
}

}  // namespace

Command add_train(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* command = app.add_subcommand("train", "Train a model, or go on with a run");
  command->add_option("--config", options->config_file,
                      "TOML file of `name = value` lines, names as the options below; options override it");
  command->add_flag("--json", options->json, "Print every event as one JSON line on standard output");
  const RunConfig defaults;
  for (const auto& option : mhar::options()) {
    const auto keep = [options, name = option.name](const CLI::results_t& values) {
      options->given[name] = values.back();
      return true;
    };
    auto* added = command->add_option("--" + option.name, keep, help_of(option, defaults))
                      ->group(option.group)
                      ->type_name("VALUE");
    added->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);  // as shells' users and their aliases expect
    if (std::holds_alternative<bool RunConfig::*>(option.field)) added->expected(0, 1)->default_str("true");
  }
  command->footer(design_help());
  return [options] { return run(*options); };
}

}  // namespace mhar::cli
