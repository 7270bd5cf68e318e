#include "config/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace mhar {
namespace {

constexpr int64_t largest_extent = std::numeric_limits<int32_t>::max();
constexpr int64_t most_parameters = int64_t{1} << 40;

[[noreturn]] void refuse(const std::string& option, const std::string& wanted, const std::string& got,
                         const std::string& remedy) {
  throw InputError({"option --" + option, "", wanted, got, remedy});
}

void check_extent(const std::string& option, int64_t value) {
  if (value < 1 || value > largest_extent) {
    refuse(option, fmt::format("a whole number from 1 to {}", largest_extent), fmt::format("{}", value),
           fmt::format("change --{}", option));
  }
}

void check_divides(const std::string& whole_option, int64_t whole, const std::string& part_option, int64_t part) {
  if (whole % part != 0) {
    refuse(part_option, fmt::format("a divisor of --{} {}", whole_option, whole), fmt::format("{}", part),
           fmt::format("change --{} or --{}", part_option, whole_option));
  }
}

void check_positive(const std::string& option, double value) {
  if (!std::isfinite(value) || value <= 0.0) {
    refuse(option, "a finite number above 0", fmt::format("{}", value), fmt::format("change --{}", option));
  }
  if (!fits_fp32(value)) {
    refuse(option, "a number that fp32 holds", fmt::format("{}", value), fmt::format("change --{}", option));
  }
}

void check_rope(const RopeScaling& rope) {
  const std::string operation = "rotary scaling";
  const std::string remedy = "correct rope_parameters in the checkpoint's config.json";
  const auto fail = [&](const char* argument, const char* wanted, const std::string& got) {
    throw InputError({operation, argument, wanted, got, remedy});
  };
  if (rope.kind != "default" && rope.kind != "linear" && rope.kind != "llama3") {
    fail("rope_type", "default, linear or llama3", rope.kind);
  }
  if (rope.kind == "default") return;
  if (!std::isfinite(rope.factor) || rope.factor < 1.0)
    fail("factor", "a number from 1", fmt::format("{}", rope.factor));
  if (rope.kind != "llama3") return;
  const double low = rope.low_frequency_factor, high = rope.high_frequency_factor;
  if (!std::isfinite(low) || !std::isfinite(high) || low <= 0.0 || high <= low) {
    fail("low_freq_factor, high_freq_factor", "0 < low < high", fmt::format("{}, {}", low, high));
  }
  if (rope.original_length < 1) {
    fail("original_max_position_embeddings", "1 or more positions", fmt::format("{}", rope.original_length));
  }
}

/// Parameters of embedding, head, attention and MLP; wide enough for extents of 31 bits.
__int128 parameter_count(const ModelConfig& c) {
  const auto wide = [](int64_t n) { return static_cast<__int128>(n); };
  const __int128 attention = wide(c.width) * c.head_dim * (2 * c.heads + 2 * c.kv_heads);
  const __int128 mlp = 3 * wide(c.width) * c.ffn;
  return wide(c.vocabulary) * c.width * (c.tied ? 1 : 2) + (attention + mlp) * c.layers;
}

ModelConfig dimensions(int64_t vocabulary, int64_t width, int64_t layers, int64_t heads, int64_t kv_heads,
                       int64_t head_dim, int64_t ffn, int64_t sequence) {
  ModelConfig c;
  c.vocabulary = vocabulary;
  c.width = width;
  c.layers = layers;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = head_dim;
  c.ffn = ffn;
  c.sequence = sequence;
  return c;
}

}  // namespace

bool fits_fp32(double value) {
  const double size = std::abs(value);
  return size == 0.0 || (size >= std::numeric_limits<float>::min() && size <= std::numeric_limits<float>::max());
}

const std::vector<Scale>& scales() {
  constexpr int64_t qwen3 = 151936, bytes = 257;  // vocabularies
  static const std::vector<Scale> table = {
      //                   V     D     L  heads kv  dim    F     T     microbatch, global batch
      {"100m", dimensions(qwen3, 512, 12, 8, 4, 64, 1536, 2048), 8, 64},
      {"350m", dimensions(qwen3, 1024, 24, 16, 8, 64, 4096, 1024), 4, 32},
      {"1b", dimensions(qwen3, 1280, 36, 16, 8, 80, 5120, 1024), 2, 32},
      {"d768", dimensions(qwen3, 768, 12, 12, 4, 64, 2304, 2048), 8, 64},
      {"tiny", dimensions(bytes, 128, 4, 4, 2, 32, 384, 256), 8, 8},
      // About 1.05 million tokens an update: 256 windows of 4096.
      {"8b", dimensions(qwen3, 4096, 32, 32, 8, 128, 14336, 4096), 2, 256},
  };
  return table;
}

const Scale& find_scale(const std::string& name) {
  std::vector<std::string> names;
  for (const Scale& scale : scales()) {
    if (scale.name == name) return scale;
    names.push_back(scale.name);
  }
  refuse("scale", fmt::format("one of {}", fmt::join(names, ", ")), "'" + name + "'", "change --scale");
}

void validate(const ModelConfig& c) {
  check_extent("vocabulary", c.vocabulary);
  check_extent("width", c.width);
  check_extent("layers", c.layers);
  check_extent("heads", c.heads);
  check_extent("kv-heads", c.kv_heads);
  check_extent("head-dim", c.head_dim);
  check_extent("ffn", c.ffn);
  check_extent("sequence", c.sequence);
  if (c.routing_heads < 0) {
    refuse("routing-heads", "1 or more, or 0 for the design's default", fmt::format("{}", c.routing_heads),
           "change --routing-heads");
  }
  check_divides("heads", c.heads, "kv-heads", c.kv_heads);
  if (c.head_dim % 2 != 0) {
    refuse("head-dim", "an even number (rotary positions turn pairs)", fmt::format("{}", c.head_dim),
           "change --head-dim, or --width and --heads that give it");
  }
  if (c.routing_heads > 0) check_divides("width", c.width, "routing-heads", c.routing_heads);
  check_positive("rope-theta", c.rope_theta);
  check_positive("norm-eps", c.norm_eps);
  if (c.read_chunk < 0 || c.read_chunk > 16) {
    refuse("read-chunk", "1 to 16, or 0 for a planned one", fmt::format("{}", c.read_chunk), "change --read-chunk");
  }
  check_rope(c.rope);
  if (parameter_count(c) > most_parameters) {
    refuse("width", fmt::format("at most {} parameters", most_parameters),
           fmt::format("more, from --vocabulary {} --width {} --layers {} --heads {} --head-dim {} --ffn {}",
                       c.vocabulary, c.width, c.layers, c.heads, c.head_dim, c.ffn),
           "make one of them smaller");
  }
}

}  // namespace mhar
