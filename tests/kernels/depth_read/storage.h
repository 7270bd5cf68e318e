#pragma once
// Buffers of any storage type on any device for the tests of the depth read: rounding, bits, guards and poison.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/bfloat16.h"
#include "kernels/element.h"

namespace mhar::kernels {

inline const char* name_of(Element type) {
  return type == Element::f64 ? "f64" : type == Element::f32 ? "f32" : type == Element::f16 ? "f16" : "bf16";
}

/// IEEE half precision by its definition: 10 bits behind the point, steps of 2^-24 below 2^-14, ties to even.
inline double float16_rounded(double value) {
  if (!(std::abs(value) < 65520)) return value + std::copysign(std::numeric_limits<double>::infinity(), value);
  const double step = std::ldexp(1.0, std::max(value == 0 ? -14 : std::ilogb(value), -14) - 10);
  return std::nearbyint(value / step) * step;
}

inline uint16_t float16_bits(double rounded) {
  const uint16_t sign = std::signbit(rounded) ? 0x8000 : 0;
  const double size = std::abs(rounded);
  if (std::isnan(size)) return sign | 0x7E00;
  if (std::isinf(size)) return sign | 0x7C00;
  if (size < std::ldexp(1.0, -14)) return sign | static_cast<uint16_t>(std::ldexp(size, 24));
  const int exponent = std::ilogb(size);
  return sign | static_cast<uint16_t>(((exponent + 15) << 10) + (std::ldexp(size, 10 - exponent) - 1024));
}

inline double float16_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 31  ? (fraction ? std::nan("") : std::numeric_limits<double>::infinity())
                      : exponent == 0 ? std::ldexp(fraction, -24)
                                      : std::ldexp(1024 + fraction, exponent - 25);
  return bits & 0x8000 ? -size : size;
}

/// What storing a number leaves of it.
inline double rounded(Element type, double value) {
  switch (type) {
    case Element::f64:
      return value;
    case Element::f32:
      return static_cast<float>(value);
    case Element::f16:
      return float16_rounded(static_cast<float>(value));
    default:
      return bfloat16_to_float(bfloat16_nearest(static_cast<float>(value)));
  }
}

/// Distance between neighbouring values of a type around a magnitude.
inline double ulp(Element type, double magnitude) {
  const int digits = type == Element::f64 ? 52 : type == Element::f32 ? 23 : type == Element::f16 ? 10 : 7;
  return magnitude == 0 ? 0 : std::ldexp(1.0, std::ilogb(magnitude) - digits);
}

/// Numbers as the bytes of their type. Equal means the same bits.
struct Values {
  Element type = Element::f32;
  std::vector<unsigned char> bytes;

  Values() = default;
  Values(Element element, int64_t count) : type(element), bytes(count * bytes_of(element)) {}
  Values(Element element, const std::vector<double>& all) : Values(element, static_cast<int64_t>(all.size())) {
    for (int64_t i = 0; i < count(); ++i) set(i, all[i]);
  }
  int64_t count() const { return static_cast<int64_t>(bytes.size()) / bytes_of(type); }
  double at(int64_t i) const {
    if (type == Element::f64) return get<double>(i);
    if (type == Element::f32) return get<float>(i);
    return type == Element::f16 ? float16_value(get<uint16_t>(i)) : bfloat16_to_float(get<uint16_t>(i));
  }
  void set(int64_t i, double value) {
    if (type == Element::f64) return put(i, value);
    if (type == Element::f32) return put(i, static_cast<float>(value));
    if (type == Element::bf16) return put(i, bfloat16_nearest(static_cast<float>(value)));
    put(i, float16_bits(rounded(type, value)));
  }
  std::vector<double> numbers() const {
    std::vector<double> all(count());
    for (int64_t i = 0; i < count(); ++i) all[i] = at(i);
    return all;
  }
  bool operator==(const Values&) const = default;

 private:
  template <typename T>
  T get(int64_t i) const {
    T value;
    std::memcpy(&value, &bytes[i * sizeof(T)], sizeof(T));
    return value;
  }
  template <typename T>
  void put(int64_t i, T value) {
    std::memcpy(&bytes[i * sizeof(T)], &value, sizeof(T));
  }
};

/// Where kernels run. `queue` goes to them as it is.
class Device {
 public:
  virtual ~Device() = default;
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* memory) = 0;
  virtual void upload(void* to, const void* from, int64_t bytes) = 0;
  virtual void download(void* to, const void* from, int64_t bytes) = 0;
  virtual void poison(void* memory, int64_t bytes) = 0;  ///< all bits set: a NaN in every type
  virtual int finish() { return 0; }                     ///< waits; what became of the work
  void* queue = nullptr;
};

class CpuDevice : public Device {
 public:
  void* allocate(int64_t bytes) override { return ::operator new(bytes, std::align_val_t(64)); }
  void release(void* memory) override { ::operator delete(memory, std::align_val_t(64)); }
  void upload(void* to, const void* from, int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);  // an empty vector has no address
  }
  void download(void* to, const void* from, int64_t bytes) override { upload(to, from, bytes); }
  void poison(void* memory, int64_t bytes) override { std::memset(memory, 0xFF, bytes); }
};

/// A poisoned buffer on a device; writes around its edges fail the test.
class Memory {
 public:
  Memory(Device& device, int64_t bytes) : device_(device), bytes_(bytes) {
    base_ = static_cast<char*>(device.allocate(bytes_ + 2 * kGuard));
    device.poison(base_, bytes_ + 2 * kGuard);
  }
  Memory(Device& device, const Values& values) : Memory(device, static_cast<int64_t>(values.bytes.size())) {
    write(values, 0);
  }
  ~Memory() {
    unsigned char guard[2 * kGuard];
    device_.download(guard, base_, kGuard);
    device_.download(guard + kGuard, base_ + kGuard + bytes_, kGuard);
    EXPECT_TRUE(std::all_of(guard, guard + kGuard, [](int byte) { return byte == 0xFF; })) << "written before a buffer";
    EXPECT_TRUE(std::all_of(guard + kGuard, guard + 2 * kGuard, [](int byte) { return byte == 0xFF; }))
        << "written behind a buffer";
    device_.release(base_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  void* at(int64_t byte = 0) const { return base_ + kGuard + byte; }
  void write(const Values& values, int64_t byte) {
    device_.upload(at(byte), values.bytes.data(), static_cast<int64_t>(values.bytes.size()));
  }
  Values read(Element type, int64_t count, int64_t byte = 0) const {
    Values values(type, count);
    device_.download(values.bytes.data(), at(byte), count * bytes_of(type));
    return values;
  }
  void poison(int64_t byte, int64_t count) { device_.poison(at(byte), count); }

 private:
  static constexpr int64_t kGuard = 128;
  Device& device_;
  int64_t bytes_;
  char* base_;
};

}  // namespace mhar::kernels
