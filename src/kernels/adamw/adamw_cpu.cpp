#include <algorithm>
#include <cmath>

#include "kernels/adamw/adamw.h"
#include "kernels/adamw/update.h"
#include "kernels/bfloat16.h"
#include "kernels/random.h"

namespace mhar::kernels {
namespace {

// Elements per block: five fp32 rows of it stay in the first cache, and every loop below is long enough to be
// vectorised. Working on fp32 rows needs one loop per number type instead of one instance per combination of types.
constexpr int64_t kBlock = 512;

void load(Element type, const void* base, int64_t first, int64_t count, float* row) {
  if (type == Element::f32) {
    std::copy_n(static_cast<const float*>(base) + first, count, row);
    return;
  }
  const uint16_t* values = static_cast<const uint16_t*>(base) + first;
  for (int64_t i = 0; i < count; ++i) row[i] = bfloat16_to_float(values[i]);
}

void store(Element type, void* base, int64_t first, int64_t count, const float* row) {
  if (type == Element::f32) {
    std::copy_n(row, count, static_cast<float*>(base) + first);
    return;
  }
  uint16_t* values = static_cast<uint16_t*>(base) + first;
  for (int64_t i = 0; i < count; ++i) values[i] = bfloat16_nearest(row[i]);
}

void store_stochastic(const AdamwArguments& arguments, int64_t first, int64_t count, const float* row) {
  RandomBlock random[kBlock / 4 + 1];
  const int64_t first_block = first / 4, blocks = (first + count + 3) / 4 - first_block;
  for (int64_t b = 0; b < blocks; ++b)
    random[b] = random_block(arguments.seed, arguments.step->update, first_block + b);
  uint16_t* values = static_cast<uint16_t*>(arguments.parameter) + first;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = first + i - 4 * first_block;
    values[i] = bfloat16_stochastic(row[i], random[at / 4].word[at % 4]);
  }
}

}  // namespace

AdamwStep adamw_step(double rate, double decay, double beta1, double beta2, int64_t update) {
  const double t = static_cast<double>(update);
  return {static_cast<float>(1.0 - rate * decay), static_cast<float>(-rate / (1.0 - std::pow(beta1, t))),
          static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(beta2, t))), static_cast<uint64_t>(update)};
}

void adamw_cpu(const AdamwSizes& sizes, const AdamwArguments& arguments) {
  if (arguments.clip && arguments.clip->stopped) return;
  const AdamwScalars scalars(arguments);
  const AdamwStep& step = *arguments.step;
  const float clip = arguments.clip ? arguments.clip->factor : 1.0f;
  const bool stochastic =
      arguments.rounding == Rounding::stochastic && arguments.parameter_type == Element::bf16 && !arguments.master;
  float parameter[kBlock], gradient[kBlock], moment1[kBlock], moment2[kBlock];
  const int64_t end = sizes.begin + sizes.count;
  for (int64_t first = sizes.begin; first < end; first += kBlock) {
    const int64_t count = std::min(kBlock, end - first);
    if (arguments.master) {
      load(Element::f32, arguments.master, first, count, parameter);
    } else {
      load(arguments.parameter_type, arguments.parameter, first, count, parameter);
    }
    load(arguments.gradient_type, arguments.gradient, first - arguments.gradient_from, count, gradient);
    load(arguments.moment_type, arguments.moment1, first, count, moment1);
    load(arguments.moment_type, arguments.moment2, first, count, moment2);
    for (int64_t i = 0; i < count; ++i) {
      adamw_update(scalars, step, clip, gradient[i], parameter[i], moment1[i], moment2[i], AnyOperands());
    }
    store(arguments.moment_type, arguments.moment1, first, count, moment1);
    store(arguments.moment_type, arguments.moment2, first, count, moment2);
    if (arguments.master) store(Element::f32, arguments.master, first, count, parameter);
    if (stochastic) {
      store_stochastic(arguments, first, count, parameter);
    } else {
      store(arguments.parameter_type, arguments.parameter, first, count, parameter);
    }
  }
}

}  // namespace mhar::kernels
