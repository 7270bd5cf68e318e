#pragma once
#include <cstdint>
#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/file.h"

namespace mhar {

/// metrics.jsonl of a run: one object a line, one line a step or event.
class Metrics {
 public:
  /// Opens RUN/metrics.jsonl for appending. On resume, lines of steps after `step` (-1: all), and a line cut short by a
  /// kill, are dropped first: they will be written again.
  Metrics(const fs::path& run, int64_t step);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  /// Whether the lines that were kept end a run: a "done" event is among them.
  bool finished() const { return finished_; }

  /// Writes one line and hands it to the system. Throws InputError when the disk is full.
  void write(const nlohmann::json& object);

 private:
  fs::path path_;
  std::FILE* file_ = nullptr;
  bool finished_ = false;
};

/// One line of progress on standard error: rewritten in place on a terminal, otherwise one line every `every` steps.
class Progress {
 public:
  Progress(int64_t steps, int64_t every);
  void step(int64_t step, double loss, double rate, double gradient_norm, double tokens_per_second,
            double seconds_left);
  /// Ends a rewritten line, so that a log line can follow.
  void finish();

 private:
  int64_t steps_, every_;
  bool terminal_, open_ = false;
};

/// "1h 02m", "3m 10s" or "12s".
std::string duration_text(double seconds);

}  // namespace mhar
