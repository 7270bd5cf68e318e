#pragma once
// The tests of clip, for any device.
#include <limits>

#include "kernels/clip/clip.h"
#include "kernels/pointwise/cases.h"
#include "reference/adamw.h"

namespace mhar::kernels {

struct ClipRun {
  int (*squares)(const ClipPiece&, void* queue);
  int (*finish)(const ClipArguments&, void* queue);
};
inline constexpr ClipRun kClipCpu{clip_squares_cpu, clip_cpu}, kClipCuda{clip_squares_cuda, clip_cuda};

inline Clip run_clip(ClipRun run, Device& device, const Values& gradient, double limit,
                     const std::vector<double>& losses = {}, int32_t stopped = 0, int64_t shift = 0) {
  const Shifted memory(device, gradient, shift);
  const int64_t ranges = clip_ranges(gradient.count());
  const Memory places(device, Values(Element::f32, losses)), partials(device, ranges * 4);
  const Memory state(device, sizeof(Clip));
  Clip clip{0, 0, stopped};
  device.upload(state.at(), &clip, sizeof clip);
  auto* sums = static_cast<float*>(partials.at());
  expect_done(device, run.squares({memory.at(), gradient.type, gradient.count(), sums}, device.queue));
  const ClipArguments a{.partials = sums,
                        .ranges = ranges,
                        .losses = static_cast<const float*>(places.at()),
                        .microbatches = static_cast<int64_t>(losses.size()),
                        .limit = limit,
                        .clip = static_cast<Clip*>(state.at())};
  expect_done(device, run.finish(a, device.queue));
  device.download(&clip, state.at(), sizeof clip);
  return clip;
}

inline double norm_of(const Values& gradient) {
  double squares = 0;
  for (int64_t i = 0; i < gradient.count(); ++i) squares += gradient.at(i) * gradient.at(i);
  return std::sqrt(squares);
}

inline void expect_clips(ClipRun run, Device& device) {
  for (const Element type : kStorage) {
    for (const int64_t count : {0, 1, 7, 8, 4097, 16384, 16385, 100'003, 17'000'000}) {
      SCOPED_TRACE(std::string(name_of(type)) + " " + std::to_string(count));
      const Values gradient = draw(type, count, 4);
      const double norm = norm_of(gradient);
      for (const int64_t shift : {0, 1}) {
        const Clip clip = run_clip(run, device, gradient, 10, {1, 2}, 0, shift);
        EXPECT_NEAR(clip.norm, norm, 2e-6 * norm);
        EXPECT_NEAR(clip.factor, reference::clip_factor(norm, 10), 2e-6);
        EXPECT_EQ(clip.stopped, 0);
      }
      EXPECT_EQ(run_clip(run, device, gradient, norm * 1.01 + 1).factor, 1.0f);
    }
  }
  // A sum of squares in bf16 would stop growing at 256.
  EXPECT_EQ(run_clip(run, device, draw(Element::bf16, 1 << 20, 1, 1, 0), 1).norm, 1024.0f);
}

inline void expect_stops(ClipRun run, Device& device) {
  const double infinity = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const Values finite = draw(Element::f32, 50'000, 4);
  EXPECT_EQ(run_clip(run, device, finite, 1, {1, infinity}).stopped, 1);
  EXPECT_EQ(run_clip(run, device, finite, 1, {nan, 1}).stopped, 1);
  EXPECT_EQ(run_clip(run, device, finite, 1, {1, 1}, 1).stopped, 1) << "for good";
  for (const double bad : {nan, -infinity, 1e25}) {
    for (const int64_t place : {0, 20'000, 49'999}) {
      Values gradient = finite;
      gradient.set(place, bad);
      EXPECT_EQ(run_clip(run, device, gradient, 1, {1, 1}).stopped, 1) << bad << " " << place;
    }
  }
}

}  // namespace mhar::kernels
