#pragma once
#include "bench/step_profile.h"
#include "bench/timing.h"
#include "config/run_config.h"

namespace mhar::bench {

struct StepRequest {
  RunConfig config;  ///< resolved
  at::Device device = at::kCPU;
  Effort effort;
};

/// Bytes of the device's allocator; all 0 on the CPU, where they are not counted.
struct StepMemory {
  int64_t peak = 0;        ///< most allocated at once, from before the model was made
  int64_t steps_peak = 0;  ///< the same of the timed steps; what a replayed graph works in was allocated before
  int64_t reserved = 0;    ///< most taken from the device
};

/// Training steps of one design.
struct StepTimes {
  Spread ms;                             ///< from the start of one step to that of the next, on the device
  double wall_ms = 0;                    ///< mean, from an idle device to an idle device
  double first_loss = 0, last_loss = 0;  ///< nats: of the first warm-up step, and of the last timed one
  int64_t parameters = 0;
  int64_t read_flops = 0;        ///< of the depth reads or residual additions of a step's forward passes
  int64_t routing_heads = 0;     ///< 0 without depth reads
  std::string attention, reads;  ///< the kernels in use; `reads` is empty without depth reads
  bool replayed = false;         ///< as one CUDA graph
  StepMemory memory;
};

/// Times the Trainer that `mhar train` uses on random tokens, which it hands out and fetches as a run does. The host is
/// ahead of the device as there. Throws what the Trainer throws, and c10::OutOfMemoryError.
StepTimes time_steps(const StepRequest& request);

/// Where the time of such steps goes, by a trainer of its own: measured after all that is timed, since what CUPTI
/// leaves behind may slow launches down. `effort.repeat` plays no part.
StepProfile profile_steps(const StepRequest& request);

}  // namespace mhar::bench
