#pragma once
#include <ATen/ATen.h>

#include <nlohmann/json.hpp>
#include <string>

#include "cli/commands.h"

namespace mhar::cli {

/// Measurements of `mhar bench`: a table on standard error, JSON lines on standard output.
Command add_bench_read(CLI::App& bench);
Command add_bench_step(CLI::App& bench);

/// The Python of a peer script where --python is left out: the checkout's own if there is one.
std::string default_python();

/// Adds "device", on a GPU "gpu" and "driver" where the driver's own tool is installed, and "version".
void describe_machine(at::Device device, nlohmann::ordered_json& line);

}  // namespace mhar::cli
