#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace mhar {

/// How rotary frequencies are stretched for long contexts, as in a checkpoint's rope_parameters.
struct RopeScaling {
  std::string kind = "default";  ///< default, linear or llama3
  double factor = 1.0;
  double low_frequency_factor = 1.0;   ///< llama3
  double high_frequency_factor = 4.0;  ///< llama3
  int64_t original_length = 8192;      ///< llama3, positions
};

/// The decoder's dimensions and choices (docs/method.md, section 9). Letters: V, D, L, F as there.
struct ModelConfig {
  std::string design = "standard";  ///< a name of the residual registry
  int64_t vocabulary = 0;           ///< V
  int64_t width = 0;                ///< D
  int64_t layers = 0;               ///< L
  int64_t heads = 0;                ///< query heads
  int64_t kv_heads = 0;             ///< key/value heads
  int64_t head_dim = 0;             ///< channels of one attention head
  int64_t ffn = 0;                  ///< F, width of the MLP's inside
  int64_t routing_heads = 0;  ///< H asked for; 0: the design's own default (key/value heads for multi-head designs)
  int64_t sequence = 0;       ///< T of training: positions a checkpoint promises to know
  double norm_eps = 1e-6;
  double rope_theta = 1e4;
  RopeScaling rope;
  bool tied = true;     ///< embedding and output head share one matrix
  bool qk_norm = true;  ///< RMSNorm on each query and key head (Qwen3 has it, Llama has not)
  // How depth reads are computed; no part of a checkpoint.
  bool composed_reads = false;  ///< of tensor operations instead of the chunked engine
  int64_t read_chunk = 0;       ///< sites of a chunk of that engine; 0: planned

  int64_t sites() const { return 2 * layers + 1; }
};

/// A row of the method's table of scales.
struct Scale {
  std::string name;
  ModelConfig model;
  int64_t microbatch;    ///< sequences per process and pass
  int64_t global_batch;  ///< sequences per update
};

/// Whether fp32, which every setting ends in, holds `value` as more than 0 and less than infinity; 0 is held.
bool fits_fp32(double value);

const std::vector<Scale>& scales();
/// Throws InputError listing the names there are.
const Scale& find_scale(const std::string& name);

/// Refuses impossible combinations before anything is allocated; the InputError names the option to change.
void validate(const ModelConfig& config);

}  // namespace mhar
