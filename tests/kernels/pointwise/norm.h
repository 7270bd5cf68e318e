#pragma once
#include "kernels/norm/norm.h"
#include "kernels/pointwise/cases.h"
#include "reference/rms_norm.h"

namespace mhar::kernels {

struct NormCase {
  NormSizes sizes;
  bool add = true, other = true;  ///< with an output to add; with a gradient that comes another way
  bool in_place = false;          ///< the sum over the stream, the gradient over the other one
  int64_t shift = 0;
  uint64_t seed = 1;
};

struct NormOutcome {
  Values sum, normed, rho, dx, dweight;
  bool operator==(const NormOutcome&) const = default;
};

struct NormInput {
  Values stream, output, weight, dy, other;

  explicit NormInput(const NormCase& c) {
    const Element type = c.sizes.type;
    const int64_t D = c.sizes.width, count = c.sizes.rows * D;
    stream = draw(type, count, c.seed, 0, 3), output = draw(type, count, c.seed + 1, 0.5, 1);
    weight = draw(type, D, c.seed + 2, 1, 0.3);
    dy = draw(type, count, c.seed + 3), other = draw(type, count, c.seed + 4, 0, 2);
    if (D > 4) weight.set(3, 0);
  }
};

inline NormOutcome run_norm(const NormKernels& kernels, Device& device, const NormCase& c) {
  const NormSizes& z = c.sizes;
  const int64_t D = z.width, count = z.rows * D;
  const NormInput input(c);
  Shifted stream(device, input.stream, c.shift), output(device, input.output, c.shift);
  Shifted weight(device, input.weight, c.shift), dy(device, input.dy, c.shift), other(device, input.other, c.shift);
  Shifted sum(device, z.type, count, c.shift), normed(device, z.type, count, c.shift);
  Shifted dx(device, z.type, count, c.shift), dweight(device, z.type, D, c.shift);
  Memory rho(device, z.rows * 4), scratch(device, kernels.scratch_bytes(z));

  NormForward f{.x = stream.at(), .weight = weight.at(), .normed = normed.at(), .rho = static_cast<float*>(rho.at())};
  if (c.add) f.output = output.at(), f.sum = c.in_place ? stream.at() : sum.at();
  expect_done(device, kernels.forward(z, f, device.queue));
  NormBackward b{.normed_gradient = dy.at(),
                 .x = c.add ? f.sum : f.x,
                 .weight = weight.at(),
                 .rho = f.rho,
                 .x_gradient = c.in_place ? (c.other ? other.at() : dy.at()) : dx.at(),
                 .weight_gradient = dweight.at(),
                 .scratch = scratch.at()};
  if (c.other) b.sum_gradient = other.at();
  expect_done(device, kernels.backward(z, b, device.queue));
  const auto result = [&](const void* place) {
    for (const Shifted* one : {&stream, &sum, &dx, &other, &dy}) {
      if (one->at() == place) return one->read(z.type, count);
    }
    return Values();
  };
  return {result(b.x), normed.read(z.type, count), rho.read(Element::f32, z.rows), result(b.x_gradient),
          dweight.read(z.type, D)};
}

/// The sum exactly, y exactly given rho, the rest by the tolerance rule over several draws.
inline void expect_norm(const NormKernels& kernels, Device& device, NormCase c) {
  const NormSizes& z = c.sizes;
  const int64_t P = z.rows, D = z.width;
  SCOPED_TRACE(std::string(name_of(z.type)) + " P " + std::to_string(P) + " D " + std::to_string(D) +
               (c.add ? " add" : "") + (c.other ? " other" : "") + " shift " + std::to_string(c.shift));
  Measured outputs, inputs, weights;
  for (int i = 0; i < (P * D < 4000 ? 8 : 1); ++i, c.seed += 100) {
    const NormInput in(c);
    const NormOutcome got = run_norm(kernels, device, c);
    const reference::RmsNormSizes sizes{P, D, z.eps};
    for (int64_t j = 0; j < P * D; ++j) {
      const float added = static_cast<float>(in.stream.at(j)) + static_cast<float>(in.output.at(j));
      ASSERT_EQ(got.sum.at(j), c.add ? rounded(z.type, added) : in.stream.at(j)) << j;
      const float normalised = static_cast<float>(got.sum.at(j)) * static_cast<float>(got.rho.at(j / D));
      const float y = static_cast<float>(rounded(z.type, normalised)) * static_cast<float>(in.weight.at(j % D));
      ASSERT_EQ(got.normed.at(j), rounded(z.type, y)) << j;
    }
    const auto run = [&]<typename T>(const std::vector<T>& x, const std::vector<T>& w, const std::vector<T>& dy,
                                     const std::vector<T>& other) {
      auto norm = reference::rms_norm<T>(sizes, x, w);
      auto gradients = reference::rms_norm_backward<T>(sizes, x, w, norm, dy);
      for (size_t j = 0; c.other && j < other.size(); ++j) gradients.x[j] += other[j];
      return std::make_pair(norm, gradients);
    };
    const auto exact = run(got.sum.numbers(), in.weight.numbers(), in.dy.numbers(), in.other.numbers());
    const auto loops = run(floats(got.sum), floats(in.weight), floats(in.dy), floats(in.other));
    compare(outputs, got.normed, loops.first.output, exact.first.output);
    compare(inputs, got.dx, loops.second.x, exact.second.x);
    compare(weights, got.dweight, loops.second.weight, exact.second.weight);
  }
  outputs.expect("y");
  inputs.expect("dx");
  weights.expect("dweight");
}

inline void expect_norms(const NormKernels& kernels, Device& device) {
  for (const Element type : kStorage) {
    for (const int64_t width : {1, 8, 40, 123, 512, 1000, 1024, 1032, 1280, 2048, 2056, 4096}) {
      for (const int64_t rows : {0, 1, 7, 33}) {
        expect_norm(kernels, device, {{rows, width, type, 1e-6}});
        expect_norm(kernels, device, {{rows, width, type, 0.25}, false, false});
      }
    }
    expect_norm(kernels, device, {{33, 512, type, 1e-6}, true, false, true});
    expect_norm(kernels, device, {{33, 1280, type, 1e-6}, true, true, true});
    expect_norm(kernels, device, {{33, 512, type, 1e-6}, true, true, false, 1});
    expect_norm(kernels, device, {{5000, 64, type, 1e-6}});
  }
}

inline void expect_norm_same_bits(const NormKernels& kernels, Device& device, int times) {
  for (const Element type : kStorage) {
    for (const int64_t width : {123, 512, 1280}) {
      const NormCase c{{3000, width, type, 1e-6}};
      const NormOutcome first = run_norm(kernels, device, c);
      for (int i = 0; i < times; ++i) EXPECT_TRUE(run_norm(kernels, device, c) == first) << width;
    }
  }
}

}  // namespace mhar::kernels
