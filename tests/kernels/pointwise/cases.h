#pragma once
// What the tests of norm, qk_rope and swiglu share. They run on any device; a seed gives the same numbers on all.
#include <random>

#include "kernels/depth_read/harness.h"

namespace mhar::kernels {

inline constexpr Element kStorage[] = {Element::f32, Element::bf16};

/// Normal numbers of a storage type.
inline Values draw(Element type, int64_t count, uint64_t seed, double mean = 0, double deviation = 1) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> distribution(mean, deviation);
  Values values(type, count);
  for (int64_t i = 0; i < count; ++i) values.set(i, distribution(generator));
  return values;
}

inline std::vector<float> floats(const Values& values) {
  std::vector<float> all(values.count());
  for (int64_t i = 0; i < values.count(); ++i) all[i] = static_cast<float>(values.at(i));
  return all;
}

/// Memory of a device whose values start `shift` elements behind a 16-byte boundary.
struct Shifted {
  int64_t byte;
  Memory memory;
  Shifted(Device& device, Element type, int64_t count, int64_t shift)
      : byte(shift * bytes_of(type)), memory(device, count * bytes_of(type) + byte) {}
  Shifted(Device& device, const Values& values, int64_t shift) : Shifted(device, values.type, values.count(), shift) {
    memory.write(values, byte);
  }
  void* at() const { return memory.at(byte); }
  Values read(Element type, int64_t count) const { return memory.read(type, count, byte); }
};

/// Adds one output to a comparison: `loops` are the reference's in fp32, stored here.
inline void compare(Measured& rule, const Values& got, const std::vector<float>& loops,
                    const std::vector<double>& exact) {
  std::vector<double> stored(loops.size());
  for (size_t i = 0; i < loops.size(); ++i) stored[i] = rounded(got.type, loops[i]);
  rule.add(
      got.type, largest(exact), [&](size_t i) { return got.at(static_cast<int64_t>(i)); }, stored, exact);
}

// Runs the parts in pieces and out of order, as threads may.
struct OutOfOrder {
  int64_t pieces;
  static void run(void* self, int64_t items, void (*body)(void* context, int64_t begin, int64_t end), void* context) {
    const int64_t pieces = std::min(static_cast<OutOfOrder*>(self)->pieces, items);
    for (int64_t i = pieces - 1; i >= 0; --i) body(context, i * items / pieces, (i + 1) * items / pieces);
  }
};

}  // namespace mhar::kernels
