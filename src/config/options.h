#pragma once
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "config/run_config.h"

namespace mhar {

/// One row of the options table: the same name on the command line (--NAME), in a TOML file and in messages.
struct Option {
  using Field = std::variant<std::string RunConfig::*, int64_t RunConfig::*, double RunConfig::*, bool RunConfig::*>;
  std::string name;
  Field field;
  std::string group;                 ///< heading in the help: Model, Data, Optimisation, Run
  std::string help;                  ///< with unit; the default is printed from RunConfig itself
  std::vector<std::string> choices;  ///< allowed words; empty: any
  bool mathematics = false;          ///< changing it on resume would change the numbers: refused
};

const std::vector<Option>& options();

/// Sets one option from text. Throws InputError naming the option, the wanted type or choices and the text.
void set_option(RunConfig& config, const Option& option, const std::string& text);
/// The option's value as it would be typed.
std::string option_text(const RunConfig& config, const Option& option);

/// Applies a TOML file of `name = value` lines (no tables) over `config`. Unknown keys, wrong types, broken or missing
/// files throw InputError with file, line and the closest known key.
void read_toml(const std::string& path, RunConfig& config);
/// The same from text; `origin` stands for the path in messages. The fuzz target's entry.
void parse_toml(const std::string& text, const std::string& origin, RunConfig& config);
/// All options as a TOML document that read_toml takes back unchanged.
std::string to_toml(const RunConfig& config);

/// A mathematics option whose value differs between two resolved configurations.
struct Difference {
  std::string option, stored, asked;
};
std::vector<Difference> mathematics_differences(const RunConfig& stored, const RunConfig& asked);

}  // namespace mhar
