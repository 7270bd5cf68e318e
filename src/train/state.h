#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "config/run_config.h"
#include "data/manifest.h"

namespace mhar {

/// Everything of a run beside its tensors: state.json. The random state is whole in seed and step, since every random
/// number is a function of them.
struct TrainState {
  int64_t step = 0;        ///< updates done
  int64_t tokens = 0;      ///< targets counted so far
  int64_t next_batch = 0;  ///< position of the sampler
  double train_loss = 0;   ///< of the last update
  int64_t threads = 0;
  std::string device;               ///< cpu or the GPU's name
  std::string program;              ///< version that wrote it
  std::string data_hash;            ///< Manifest::hash()
  std::vector<std::string> shards;  ///< the training split's file names, to say what changed
  data::Tokenizer tokenizer;
  RunConfig config;                                     ///< resolved
  std::vector<std::pair<int64_t, double>> validations;  ///< step and loss of the last eleven
  std::map<std::string, std::string> initial_hashes;    ///< bits of each parameter at the start, until step 100

  /// Mean of the last eleven validations; NaN when there was none.
  double validation_tail_mean() const;
};

/// How many validations the reported mean is over (the published number: steps 15k to 20k, every 500).
inline constexpr size_t kValidationTail = 11;

void write_state(const fs::path& folder, const TrainState& state);
/// Throws InputError for a missing, broken or foreign state.json.
TrainState read_state(const fs::path& folder);

}  // namespace mhar
