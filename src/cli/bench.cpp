#include "cli/bench.h"

#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "base/version.h"
#include "bench/process.h"

namespace mhar::cli {

std::string default_python() {
  const char* project = ".venv/bin/python";
  return std::filesystem::exists(project) ? project : "python3";
}

void describe_machine(at::Device device, nlohmann::ordered_json& line) {
  line["device"] = device.str();
  if (device.is_cuda()) {
    std::string found;
    bench::run_program({"nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "-i",
                        std::to_string(device.index())},
                       [&](const std::string& text) { found = text; });
    if (const size_t comma = found.find(", "); comma != std::string::npos) {
      line["gpu"] = found.substr(0, comma);
      line["driver"] = found.substr(comma + 2);
    }
  }
  line["version"] = version();
}

Command add_bench(CLI::App& app) {
  auto* command = app.add_subcommand("bench", "Measures parts of a training step against what this machine can do");
  command->require_subcommand(1);
  std::vector<std::pair<CLI::App*, Command>> measurements;
  for (const auto add : {add_bench_read, add_bench_step}) {
    Command run = add(*command);
    measurements.emplace_back(command->get_subcommands([](CLI::App*) { return true; }).back(), std::move(run));
  }
  return [measurements] {
    for (const auto& [measurement, run] : measurements) {
      if (measurement->parsed()) return run();
    }
    return static_cast<int>(kBadInput);
  };
}

}  // namespace mhar::cli
