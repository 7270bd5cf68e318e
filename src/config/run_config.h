#pragma once
#include <cstdint>
#include <string>

#include "config/model_config.h"

namespace mhar {

/// More would be a mistyped number: the pool alone would take minutes to start.
inline constexpr int64_t kMostThreads = 1024;

/// Every setting of a training run, one field per option of the table in options.cpp. Zero or empty means
/// "the scale's value" where the table says so; resolve() fills those in.
struct RunConfig {
  // model
  std::string scale = "tiny";
  std::string design = "mhar";
  int64_t vocabulary = 0, width = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, routing_heads = 0;
  bool tied = true;
  bool qk_norm = true;
  double rope_theta = 1e4, norm_eps = 1e-6;
  std::string read = "chunked";  ///< chunked or composed depth reads
  int64_t read_chunk = 0;        ///< 0: planned
  // data
  std::string data;  ///< DIR/NAME of a shard set
  int64_t sequence = 0, microbatch = 0, global_batch = 0;
  int64_t accumulate = 0;            ///< microbatches per update; another way to give global_batch, 0 once resolved
  int64_t validation_windows = 256;  ///< 0: all
  int64_t seed = 42;
  // optimisation
  int64_t steps = 20000;
  int64_t warm_up = -1;  ///< -1: a twentieth of steps, rounded up (1,000 of 20,000)
  double rate = 1e-3, rate_floor = 0.1, beta1 = 0.9, beta2 = 0.95, adam_eps = 1e-8, weight_decay = 0.1, clip = 1.0,
         z_loss = 0.0;
  std::string precision = "bf16";       ///< bf16 or fp32: parameters and compute
  std::string rounding = "stochastic";  ///< stochastic, nearest or master: how bf16 parameters take an update
  std::string moments = "parameters";   ///< parameters (their type) or fp32
  // run
  std::string run;  ///< run folder
  std::string device = "auto";
  int64_t threads = 0;  ///< 0: one per core
  bool cuda_graph = true;
  int64_t validate_every = 500, save_every = 1000, keep_last = 3, keep_every = 0, log_every = 10;
  std::string resume = "never";  ///< auto, never or a checkpoint folder
  bool fresh_data = false;       ///< accept another data set on resume and start it from its first window
  int64_t stop_after = 0;        ///< stop as on SIGTERM after this update; 0: never

  /// The scale's row with every override applied. Throws InputError for an unknown scale.
  ModelConfig model() const;
  int64_t accumulation() const { return global_batch / microbatch; }
};

/// Fills every "the scale's value" field in and refuses impossible combinations, naming the option to change
/// (design names are checked by the residual registry, the device by the trainer). Nothing is allocated before this.
RunConfig resolve(RunConfig config);

}  // namespace mhar
