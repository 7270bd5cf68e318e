#include "train/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace mhar {
namespace {

[[noreturn]] void refuse(const fs::path& path, int code) {
  throw InputError({"write metrics", path.string(), "a line to be written", std::strerror(code),
                    "free space on the disk or check the folder's rights, then go on with --resume auto"});
}

// The lines of a run up to and including `step`; `finished` becomes true when a "done" is among them.
std::string kept_lines(const fs::path& path, int64_t step, bool& finished) {
  if (!fs::exists(path)) return {};
  const std::string text = read_text(path, "read metrics");
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    const auto line = nlohmann::json::parse(text.substr(begin, end - begin), nullptr, /*allow_exceptions=*/false);
    const auto at = line.is_object() ? line.value("step", nlohmann::json(0)) : nlohmann::json();
    if (at.is_number_integer() && at.get<int64_t>() <= step) {
      kept.append(text, begin, end - begin + 1);
      finished = finished || line.value("event", nlohmann::json()) == "done";
    }
    begin = end + 1;
  }
  return kept;
}

}  // namespace

Metrics::Metrics(const fs::path& run, int64_t step) : path_(run / "metrics.jsonl") {
  write_file_atomically(path_, kept_lines(path_, step, finished_));
  file_ = std::fopen(path_.c_str(), "ae");
  if (!file_) refuse(path_, errno);
}

Metrics::~Metrics() {
  if (file_) std::fclose(file_);
}

void Metrics::write(const nlohmann::json& object) {
  const std::string line = object.dump() + "\n";
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() || std::fflush(file_) != 0) refuse(path_, errno);
}

Progress::Progress(int64_t steps, int64_t every)
    : steps_(steps), every_(every), terminal_(isatty(STDERR_FILENO) != 0) {}

void Progress::step(int64_t step, double loss, double rate, double gradient_norm, double tokens_per_second,
                    double seconds_left) {
  if (!terminal_ && step % every_ != 0 && step != 1 && step != steps_) return;
  // Not fmt::print, which throws: a log that cannot be written must not end the run.
  const std::string line =
      fmt::format("step {}/{}  loss {:.4f}  rate {:.3g}  gradient norm {:.3f}  {:.0f} tokens/s  {} left", step, steps_,
                  loss, rate, gradient_norm, tokens_per_second, duration_text(seconds_left));
  if (terminal_) {
    std::fputs(("\r\033[K" + line).c_str(), stderr);
  } else {
    std::fputs((line + "\n").c_str(), stderr);
  }
  open_ = terminal_;
  std::fflush(stderr);
}

void Progress::finish() {
  if (open_) std::fputs("\n", stderr);
  open_ = false;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole >= 3600) return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  return fmt::format("{}s", whole);
}

}  // namespace mhar
