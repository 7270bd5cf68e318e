#pragma once
#include <deque>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "config/schedule.h"
#include "model/decoder.h"
#include "train/batches.h"
#include "train/host_copy.h"
#include "train/optimizer.h"
#include "train/recorded_update.h"
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
///
/// The host only queues an update: losses, norm and whether they are finite stay on the device, which skips every
/// update from the first on that is not. Their copies come back later, so on a GPU the host may be an update ahead of
/// what it knows.
class Trainer {
 public:
  /// `config` resolved. Parameters start from config.seed.
  Trainer(const RunConfig& config, at::Device device, BatchSource batches);

  /// Forward, backward, clip, update: queued, on the CPU done. Waits for an older update where two are under way.
  void launch();
  /// The oldest update under way, as soon as its numbers are there or after waiting for them; state() is then that
  /// after it. Nothing: none is, or they are not there yet. A loss or gradient that was not finite throws RunError
  /// naming step and microbatch, with parameters, moments and state as after the step before.
  std::optional<StepResult> result(bool wait);
  /// Both: launches an update and waits for it, with no other under way.
  StepResult step();

  /// Whether results are still to come.
  bool under_way() const { return !launched_.empty(); }
  /// Updates made, those under way included.
  int64_t launched_steps() const;
  /// Whether updates are replayed as one CUDA graph by now.
  bool replays() const { return recorded_.recorded(); }

  /// Model, optimizer and state as files of a checkpoint folder. No update may be under way (std::logic_error).
  void save(const fs::path& folder) const;
  /// Takes model and optimizer back, and `stored` (read_state of the folder) but for its configuration: this trainer's
  /// own counts. Throws InputError.
  void restore(const fs::path& folder, TrainState stored);

  Decoder& model() { return model_; }
  const Decoder& model() const { return model_; }
  TrainState& state() { return state_; }
  const TrainState& state() const { return state_; }

  /// Parameters whose bits are those of the start. For step 100, with no update under way.
  std::vector<std::string> unmoved() const;

 private:
  struct Launched {
    StepResult result;
    std::vector<Batch> batches;
    std::optional<HostCopy> report;  // none where nothing was counted
  };
  void prepare(const StepResult& step, size_t microbatches);
  at::Tensor report_of(size_t microbatches) const;
  void update(const std::vector<Batch>& batches);
  std::vector<GradientPiece> accumulate(const std::vector<Batch>& batches);
  const std::vector<GradientPiece>& add_microbatch(const Batch& batch, const at::Tensor& loss);
  [[noreturn]] void refuse_non_finite(const Launched& failed);

  RunConfig config_;
  Decoder model_;
  Optimizer optimizer_;
  Schedule schedule_;
  BatchSource batches_;
  TrainState state_;
  std::deque<Launched> launched_;
  RecordedUpdate recorded_;
  // On the device, at addresses that stay:
  at::Tensor wide_gradient_;  // fp32 sum over microbatches, when there are several
  at::Tensor loss_scale_;     // 1 / counted targets of the update
  at::Tensor report_;         // ops::make_clip_report
};

/// The global L2 norm over a gradient in pieces, in fp32.
double global_norm(const std::vector<at::Tensor>& pieces);

}  // namespace mhar
