#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "config/options.h"

namespace mhar {

/// The message of the InputError that `action` throws; empty when it throws none.
template <typename Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

inline const Option& option(const std::string& name) {
  return *std::find_if(options().begin(), options().end(), [&](const Option& o) { return o.name == name; });
}

/// A configuration with options set as on a command line.
inline RunConfig with(const std::vector<std::pair<std::string, std::string>>& settings) {
  RunConfig config;
  for (const auto& [name, text] : settings) set_option(config, option(name), text);
  return config;
}

inline std::string refusal(const std::vector<std::pair<std::string, std::string>>& settings) {
  return message_of([&] { resolve(with(settings)); });
}

}  // namespace mhar
