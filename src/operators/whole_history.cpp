// mhar::depth_reads: every site of a history at once, on the chunked engine. Site r reads sources 0 .. r.
#include <torch/library.h>
#include <torch/torch.h>

#include "operators/checks.h"
#include "operators/find.h"
#include "ops/depth_engine.h"
#include "ops/precision.h"
#include "ops/shapes.h"

namespace mhar::operators {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

/// Buffers and plan of one call.
struct Call {
  Tensor sources, keys, output_gains;  ///< [R, P, D], [R, D] with row 0 zero, [R, D] or undefined
  kernels::DepthHistoryRun run;
  kernels::DepthMemory memory{};
  int64_t longest;
  at::TensorOptions statistics;

  Call(const Tensor& given, const Tensor& queries, const Tensor& gains, int64_t heads, double eps,
       const OptionalTensor& norm) {
    check_history(given, queries, gains, heads);
    sources = given.contiguous();
    const int64_t R = sources.size(0), P = sources.size(1), D = sources.size(2);
    if (norm) {
      ops::require_shape("mhar::depth_reads", "output_gains", *norm, {R, D});
      output_gains = norm->contiguous();
    }
    const auto type = sources.scalar_type();
    const ops::DepthReads reads{R, D, heads, eps};
    const ops::DepthEngine engine = ops::depth_engine(reads, P, type, sources.device());
    if (!engine.kernels) {
      throw std::invalid_argument(describe({"mhar::depth_reads", "sources", "a shape and type the engine takes",
                                            engine.passed_over, "use mhar::depth_read, one site at a time"}));
    }
    statistics = sources.options().dtype(ops::compute_type(type));
    keys = queries.to(statistics).mul(gains.to(statistics)).contiguous();
    keys[0].zero_();  // one source leaves no choice, and a key of zero makes its read exact
    run = {engine.kernels, ops::depth_sizes(reads, P, type), R, ops::depth_plan(engine, reads, R, P, type)};
    longest = *std::max_element(run.plan.backward.begin(), run.plan.backward.end());
    memory.sources = sources.data_ptr();
    memory.keys = keys.data_ptr();
  }

  const void* gain_of(int64_t site) const {
    return output_gains.defined() ? output_gains[site].const_data_ptr() : nullptr;
  }
  void keep(const Tensor& mixes, const Tensor& rho, const Tensor& lse, const Tensor& norm_rho) {
    memory.mixes = mixes.data_ptr();
    memory.rho = rho.data_ptr();
    memory.lse = lse.data_ptr();
    memory.norm_rho = norm_rho.data_ptr();
  }
};

// The normed output (empty where there is no norm), the mixes, and the statistics rho, lse and 1/rms of the mixes.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> forward(const Tensor& sources, const Tensor& queries,
                                                           const Tensor& gains, int64_t heads, double eps,
                                                           const OptionalTensor& output_gains) {
  Call call(sources, queries, gains, heads, eps, output_gains);
  const int64_t R = sources.size(0), P = sources.size(1);
  const Tensor mixes = at::empty(sources.sizes(), call.sources.options());
  const Tensor output = at::empty(output_gains ? sources.sizes() : at::IntArrayRef{0}, call.sources.options());
  const Tensor rho = at::empty({R, P}, call.statistics), lse = at::empty({R, P, heads}, call.statistics);
  const Tensor norm_rho = at::empty({output_gains ? R : 0, P}, call.statistics);
  call.keep(mixes, rho, lse, norm_rho);
  for (int64_t r = 0; r < R; ++r) {
    kernels::DepthNorm norm{call.gain_of(r), output_gains ? output[r].data_ptr() : nullptr, nullptr};
    ops::require_launched("depth read forward",
                          kernels::depth_forward(call.run, call.memory, r, norm, ops::depth_queue(sources.device())));
  }
  return {output, mixes, rho, lse, norm_rho};
}

// Works on copies of sources and mixes, since the engine overwrites both: may run again.
std::tuple<Tensor, Tensor, Tensor, Tensor> backward(const Tensor& gradient, const Tensor& sources,
                                                    const Tensor& queries, const Tensor& gains, const Tensor& mixes,
                                                    const Tensor& rho, const Tensor& lse, const Tensor& norm_rho,
                                                    int64_t heads, double eps, const OptionalTensor& output_gains) {
  const Tensor spent = sources.clone(at::MemoryFormat::Contiguous), dO = mixes.clone();
  Call call(spent, queries, gains, heads, eps, output_gains);
  const int64_t R = sources.size(0), P = sources.size(1), D = sources.size(2);
  call.keep(dO, rho, lse, norm_rho);
  const Tensor deltas = at::empty({R, P, heads}, call.statistics);
  const Tensor through_rho = at::empty({call.longest, P, heads}, call.statistics);
  const Tensor scratch = at::empty({call.run.kernels->scratch_bytes(call.run.sizes, R, call.longest)},
                                   call.sources.options().dtype(at::kByte));
  const Tensor dkeys = at::empty({R, D}, call.statistics), dnorms = at::empty({R, D}, call.statistics);
  call.memory.deltas = deltas.data_ptr();
  call.memory.through_rho = through_rho.data_ptr();
  call.memory.scratch = scratch.data_ptr();
  call.memory.key_gradients = dkeys.data_ptr();
  call.memory.norm_gradients = dnorms.data_ptr();
  const Tensor dy = gradient.contiguous();
  const Tensor dsources = at::empty(sources.sizes(), call.sources.options());
  for (int64_t r = R - 1; r >= 0; --r) {
    const kernels::SiteGradient site{dy[r].const_data_ptr(), call.gain_of(r), dsources[r].data_ptr()};
    ops::require_launched("depth read backward",
                          kernels::depth_backward(call.run, call.memory, r, site, ops::depth_queue(sources.device())));
  }
  dkeys[0].zero_();
  return {dsources, dkeys.mul(gains).to(queries.scalar_type()), dkeys.mul(queries).to(gains.scalar_type()),
          output_gains ? dnorms.to(output_gains->scalar_type()) : at::empty({0}, gains.options())};
}

at::TensorOptions statistics_of(const Tensor& sources) {
  return sources.options().dtype(ops::compute_type(sources.scalar_type()));
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> forward_meta(const Tensor& sources, const Tensor&, const Tensor&,
                                                                int64_t heads, double,
                                                                const OptionalTensor& output_gains) {
  const auto R = sources.sym_size(0), P = sources.sym_size(1);
  const auto like = [&] { return at::empty_symint(sources.sym_sizes(), sources.options()); };
  const auto options = statistics_of(sources);
  return {output_gains ? like() : at::empty({0}, sources.options()), like(), at::empty_symint({R, P}, options),
          at::empty_symint({R, P, heads}, options), at::empty_symint({output_gains ? R : c10::SymInt(0), P}, options)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> backward_meta(const Tensor&, const Tensor& sources, const Tensor& queries,
                                                         const Tensor& gains, const Tensor&, const Tensor&,
                                                         const Tensor&, const Tensor&, int64_t, double,
                                                         const OptionalTensor& output_gains) {
  return {at::empty_symint(sources.sym_sizes(), sources.options()), at::empty_like(queries), at::empty_like(gains),
          output_gains ? at::empty_like(*output_gains) : at::empty({0}, gains.options())};
}

Tensor output_of(const std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>& results, bool normed) {
  return normed ? std::get<0>(results) : std::get<1>(results);
}

struct DepthReads : torch::autograd::Function<DepthReads> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& sources, const Tensor& queries,
                        const Tensor& gains, int64_t heads, double eps, const OptionalTensor& output_gains) {
    at::AutoDispatchBelowADInplaceOrView below;
    static const auto op = find<decltype(operators::forward)>("mhar::depth_reads_forward");
    const auto results = op.call(sources, queries, gains, heads, eps, output_gains);
    const auto& [normed, mixes, rho, lse, norm_rho] = results;
    context->save_for_backward({sources, queries, gains, mixes, rho, lse, norm_rho, output_gains.value_or(Tensor())});
    context->saved_data["heads"] = heads;
    context->saved_data["eps"] = eps;
    return output_of(results, output_gains.has_value());
  }

  static std::vector<Tensor> backward(torch::autograd::AutogradContext* context, std::vector<Tensor> gradients) {
    const auto s = context->get_saved_variables();
    static const auto op = find<decltype(operators::backward)>("mhar::depth_reads_backward");
    const auto [dsources, dqueries, dgains, doutput] =
        op.call(gradients[0], s[0], s[1], s[2], s[3], s[4], s[5], s[6], context->saved_data["heads"].toInt(),
                context->saved_data["eps"].toDouble(), s[7].defined() ? OptionalTensor(s[7]) : std::nullopt);
    return {dsources, dqueries, dgains, Tensor(), Tensor(), s[7].defined() ? doutput : Tensor()};
  }
};

Tensor differentiable(const Tensor& sources, const Tensor& queries, const Tensor& gains, int64_t heads, double eps,
                      const OptionalTensor& output_gains) {
  return DepthReads::apply(sources, queries, gains, heads, eps, output_gains);
}

Tensor plain(const Tensor& sources, const Tensor& queries, const Tensor& gains, int64_t heads, double eps,
             const OptionalTensor& output_gains) {
  static const auto op = find<decltype(operators::forward)>("mhar::depth_reads_forward");
  return output_of(op.call(sources, queries, gains, heads, eps, output_gains), output_gains.has_value());
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(mhar, m) {
  m.def(
      "depth_reads(Tensor sources, Tensor queries, Tensor gains, int heads, float eps=1e-06, Tensor? "
      "output_gains=None) "
      "-> Tensor");
  m.def(
      "depth_reads_forward(Tensor sources, Tensor queries, Tensor gains, int heads, float eps, Tensor? output_gains) "
      "-> "
      "(Tensor, Tensor, Tensor, Tensor, Tensor)");
  m.def(
      "depth_reads_backward(Tensor gradient, Tensor sources, Tensor queries, Tensor gains, Tensor mixes, Tensor rho, "
      "Tensor lse, Tensor norm_rho, int heads, float eps, Tensor? output_gains) -> (Tensor, Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(mhar, CompositeExplicitAutograd, m) {
  m.impl("depth_reads", plain);
  m.impl("depth_reads_forward", forward);
  m.impl("depth_reads_backward", backward);
}
TORCH_LIBRARY_IMPL(mhar, Autograd, m) { m.impl("depth_reads", differentiable); }
TORCH_LIBRARY_IMPL(mhar, Meta, m) {
  m.impl("depth_reads_forward", forward_meta);
  m.impl("depth_reads_backward", backward_meta);
}

}  // namespace mhar::operators
