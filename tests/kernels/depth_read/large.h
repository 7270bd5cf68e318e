#pragma once
// Field case 39: more elements than 32 bits count, too many for the reference as a whole.
#include "kernels/depth_read/cases.h"

namespace mhar::kernels {

/// R sources of which most tokens are equal; the first and the last token are drawn, and must come out as they do in a
/// history of these two tokens alone.
inline void expect_large(const Subject& subject, const DepthSizes& z, int64_t sites, int64_t chunk) {
  DepthSizes two = z;
  two.tokens = 2;
  const Problem problem = draw_problem(two, sites, {sites, true, 2, 61});
  const Outcome wanted = subject.run(problem, chunk, chunk);
  const int64_t P = z.tokens, D = z.width, value = z.value_bytes(), token = P * z.statistic_bytes();
  const int64_t head = token * z.heads, row = D * z.statistic_bytes(), narrow = D * bytes_of(z.type);
  const Element statistic = statistic_type(z.type);
  Device& device = subject.device;
  const DepthPlan plan = plan_of(subject.kernels, problem, chunk, chunk);
  const int64_t longest = *std::max_element(plan.backward.begin(), plan.backward.end());

  Values common(z.type, z.values());
  for (int64_t i = 0; i < z.values(); ++i) common.set(i, static_cast<double>(i * 7919 % 1999) / 1000 - 1);
  const auto fill = [&](const Memory& memory, int64_t byte, const std::vector<double>& ends) {
    const Values all(z.type, ends);
    char* to = static_cast<char*>(memory.at(byte));
    device.upload(to, common.bytes.data(), value);
    device.upload(to, all.bytes.data(), narrow);
    device.upload(to + value - narrow, all.bytes.data() + narrow, narrow);
  };
  const auto expect_ends = [&](const char* what, const Memory& memory, int64_t byte, const Values& right) {
    const Values first = memory.read(z.type, D, byte), last = memory.read(z.type, D, byte + value - narrow);
    for (int64_t d = 0; d < D; ++d) {
      ASSERT_NEAR(first.at(d), right.at(d), 4 * ulp(z.type, 4)) << what << ", first token, channel " << d;
      ASSERT_NEAR(last.at(d), right.at(D + d), 4 * ulp(z.type, 4)) << what << ", last token, channel " << d;
    }
  };
  Memory sources(device, sites * value), mixes(device, sites * value), rho(device, sites * token);
  Memory lse(device, sites * head), norm_rho(device, sites * token), keys(device, sites * row);
  Memory weight(device, narrow), output(device, value), dy(device, value), ds(device, value);
  Memory deltas(device, sites * head), through_rho(device, longest * head), key_gradients(device, sites * row);
  Memory norm_gradients(device, sites * row), scratch(device, subject.kernels.scratch_bytes(z, sites, longest));
  DepthMemory memory{sources.at(), mixes.at(), rho.at(), lse.at(), norm_rho.at(), keys.at()};
  memory.deltas = deltas.at(), memory.through_rho = through_rho.at(), memory.scratch = scratch.at();
  memory.key_gradients = key_gradients.at(), memory.norm_gradients = norm_gradients.at();
  for (int64_t r = 0; r < sites; ++r)
    keys.write(Values(statistic, r ? problem.key(r) : std::vector<double>(D)), r * row);
  for (int64_t r = 0; r < sites; ++r) {
    weight.write(Values(z.type, problem.input.norm_weights[r]), 0);
    fill(sources, r * value, problem.input.sources[r]);
    output.poison(0, value);
    expect_done(device,
                depth_forward({&subject.kernels, z, sites, plan}, memory, r, {weight.at(), output.at()}, device.queue));
    expect_ends("o", mixes, r * value, wanted.mixes[r]);
    expect_ends("y", output, 0, wanted.outputs[r]);
  }
  for (int64_t r = sites - 1; r >= 0; --r) {
    weight.write(Values(z.type, problem.input.norm_weights[r]), 0);
    fill(dy, 0, problem.input.output_gradients[r]);
    ds.poison(0, value);
    expect_done(device, depth_backward({&subject.kernels, z, sites, plan}, memory, r, {dy.at(), weight.at(), ds.at()},
                                       device.queue));
    expect_ends("ds", ds, 0, wanted.source_gradients[r]);
  }
  const Values dw = key_gradients.read(statistic, (sites - 1) * D, row);
  for (int64_t i = 0; i < dw.count(); ++i) ASSERT_TRUE(std::isfinite(dw.at(i))) << "dw, element " << i;
}

}  // namespace mhar::kernels
