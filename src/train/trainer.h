#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "config/schedule.h"
#include "model/decoder.h"
#include "train/batches.h"
#include "train/optimizer.h"
#include "train/state.h"

namespace mhar {

/// What one update did.
struct StepResult {
  int64_t step = 0;          ///< number of the update, from 1
  int64_t counted = 0;       ///< targets; 0: nothing counted, no update was made
  double loss = 0;           ///< mean over the counted targets of the global batch, nats
  double gradient_norm = 0;  ///< before clipping
  double rate = 0;
};

/// The loop's inside: model, optimizer and position, one update at a time. Files and logs are Run's (train/run.h).
class Trainer {
 public:
  /// `config` resolved. Parameters start from config.seed.
  Trainer(const RunConfig& config, at::Device device, BatchSource batches);

  /// Forward, backward, clip, update. A loss or gradient that is not finite throws RunError naming step and microbatch,
  /// with parameters, moments and state as after the step before.
  StepResult step();

  /// Model, optimizer and state as files of a checkpoint folder.
  void save(const fs::path& folder) const;
  /// Takes model and optimizer back, and `stored` (read_state of the folder) but for its configuration: this trainer's
  /// own counts. Throws InputError.
  void restore(const fs::path& folder, TrainState stored);

  Decoder& model() { return model_; }
  const Decoder& model() const { return model_; }
  TrainState& state() { return state_; }
  const TrainState& state() const { return state_; }

  /// Parameters whose bits are those of the start. For step 100.
  std::vector<std::string> unmoved() const;

 private:
  struct Gradient {
    at::Tensor sum;  // laid out like the parameters
    double loss = 0, norm = 0;
    std::vector<double> losses;  // of each microbatch, summed over its targets
  };
  Gradient accumulate(const std::vector<Batch>& batches, int64_t counted);
  double add_microbatch(const Batch& batch, int64_t counted, Gradient& total);
  [[noreturn]] void refuse_non_finite(const std::vector<Batch>& batches, int64_t counted, const Gradient& total);

  RunConfig config_;
  Decoder model_;
  Optimizer optimizer_;
  Schedule schedule_;
  BatchSource batches_;
  TrainState state_;
  at::Tensor wide_gradient_;  // fp32 sum over microbatches, when there are several
};

/// The global L2 norm over a flat gradient, in fp32.
double global_norm(const at::Tensor& gradient);

}  // namespace mhar
