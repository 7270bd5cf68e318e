#pragma once
#include <torch/torch.h>

#include <random>

#include "base/file.h"
#include "base/hash.h"
#include "residual/design.h"
#include "train/trainer.h"

namespace mhar::test {

/// A run small enough for a test: 2 layers of width 32, windows of 16 tokens, fp32 on the CPU.
inline RunConfig small_config(const std::string& design, int64_t steps = 20) {
  RunConfig config;
  config.scale = "tiny";
  config.design = design;
  config.width = 32;
  config.layers = 2;
  config.heads = 2;
  config.kv_heads = 2;
  config.head_dim = 16;
  config.ffn = 64;
  config.sequence = 16;
  config.microbatch = 4;
  config.global_batch = 4;
  config.steps = steps;
  config.warm_up = 4;
  config.rate = 1e-2;
  config.precision = "fp32";
  config.device = "cpu";
  return resolve(config);
}

/// One microbatch of letters that follow a rule, so that there is something to learn; a function of `number` alone.
inline Batch letters(int64_t number, int64_t rows, int64_t sequence) {
  std::mt19937_64 random(static_cast<uint64_t>(number) * 2654435761u + 1);
  at::Tensor tokens = at::empty({rows, sequence + 1}, at::kLong);
  for (int64_t row = 0; row < rows; ++row) {
    int64_t state = static_cast<int64_t>(random() % 26);
    for (int64_t t = 0; t <= sequence; ++t) {
      tokens[row][t] = 97 + state;
      state = (state * 5 + static_cast<int64_t>(random() % 3)) % 26;
    }
  }
  return {tokens.slice(1, 0, sequence).clone(), tokens.slice(1, 1).clone().view({-1}), rows * sequence};
}

inline BatchSource letter_source(const RunConfig& config) {
  return [rows = config.microbatch, parts = config.accumulation(), sequence = config.sequence](int64_t index) {
    std::vector<Batch> batches;
    for (int64_t part = 0; part < parts; ++part) batches.push_back(letters(index * parts + part, rows, sequence));
    return batches;
  };
}

/// Hash of every tensor that training changes.
inline std::string state_hash(const Trainer& trainer, const fs::path& scratch) {
  fs::create_directories(scratch);
  trainer.save(scratch);
  Hash hash;
  for (const char* file : {"model.safetensors", "optimizer.safetensors"})
    hash.update(MappedFile(scratch / file).bytes());
  return hash.hex();
}

inline std::vector<std::string> design_names() {
  std::vector<std::string> names;
  for (const auto& entry : residual::registry()) names.push_back(entry.name);
  return names;
}

}  // namespace mhar::test
