#include "ops/cudnn_attention.h"

#include <torch/torch.h>

#include <map>
#include <mutex>
#include <tuple>

#include "base/error.h"
#include "kernels/attention/attention.h"
#include "ops/depth_engine.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using kernels::AttentionSizes;
using kernels::CudnnAttention;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Plan {
  std::unique_ptr<CudnnAttention> kernels;
  std::string refusal;
};

auto key_of(const AttentionSizes& z, int device) {
  return std::make_tuple(device, z.batch, z.tokens, z.heads, z.kv_heads, z.head_dim, z.type, z.query_pitch, z.key_pitch,
                         z.value_pitch, z.output_pitch, z.value_gradient_pitch, z.deterministic);
}

// One plan a shape and device for the life of the process: building one takes a second.
const Plan& plan_for(const AttentionSizes& z, at::Device device) {
  static std::mutex mutex;
  static std::map<decltype(key_of(z, 0)), Plan> plans;
  const std::lock_guard lock(mutex);
  auto& plan = plans[key_of(z, device.index())];
  if (!plan.kernels && plan.refusal.empty()) plan.kernels = CudnnAttention::build(z, plan.refusal);
  return plan;
}

AttentionSizes sizes_of(int64_t batch, int64_t tokens, int64_t heads, int64_t kv_heads, int64_t head_dim,
                        at::ScalarType storage) {
  const int64_t wide = heads * head_dim, narrow = kv_heads * head_dim;
  return {
      batch, tokens, heads,  kv_heads, head_dim, storage == at::kHalf ? kernels::Element::f16 : kernels::Element::bf16,
      wide,  narrow, narrow, wide,     narrow,   at::globalContext().deterministicAlgorithms()};
}

AttentionSizes sizes_of(const Tensor& q, const Tensor& k, const Tensor& v) {
  AttentionSizes z = sizes_of(q.size(0), q.size(1), q.size(2), k.size(2), q.size(3), q.scalar_type());
  z.query_pitch = q.stride(1), z.key_pitch = k.stride(1), z.value_pitch = v.stride(1);
  return z;
}

// Heads of a token, tokens and windows follow one another, at 16-byte addresses.
bool in_rows(const Tensor& x) {
  return x.stride(3) == 1 && x.stride(2) == x.size(3) && x.stride(0) == x.size(1) * x.stride(1) &&
         x.stride(1) % 8 == 0 && reinterpret_cast<uintptr_t>(x.const_data_ptr()) % 16 == 0;
}

void require_run(int status, const char* direction, const std::string& fault) {
  if (status == 0) return;
  throw std::runtime_error(describe({"attention", direction, "a launch of cuDNN that succeeds", fault,
                                     "report this with the first lines of the run's log"}));
}

struct Attention : torch::autograd::Function<Attention> {
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& k, const Tensor& v) {
    const AttentionSizes z = sizes_of(q, k, v);
    const auto& kernels = *plan_for(z, q.device()).kernels;
    Tensor output = at::empty({z.batch, z.tokens, z.heads, z.head_dim}, q.options());
    const Tensor statistics = at::empty({z.batch, z.heads, z.tokens}, q.options().dtype(at::kFloat));
    const Tensor workspace = at::empty({kernels.workspace_bytes()}, q.options().dtype(at::kByte));
    std::string fault;
    require_run(kernels.forward({q.const_data_ptr(), k.const_data_ptr(), v.const_data_ptr(), output.mutable_data_ptr(),
                                 statistics.mutable_data_ptr<float>()},
                                workspace.mutable_data_ptr(), depth_queue(q.device()), fault),
                "forward", fault);
    context->save_for_backward({q, k, v, output, statistics});
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &q = saved[0], &k = saved[1], &v = saved[2], &output = saved[3], &statistics = saved[4];
    const auto& kernels = *plan_for(sizes_of(q, k, v), q.device()).kernels;
    const Tensor gradient = gradients[0].contiguous();
    const Tensor dq = at::empty_strided(q.sizes(), q.strides(), q.options());
    const Tensor dk = at::empty_strided(k.sizes(), k.strides(), k.options()), dv = at::empty(v.sizes(), v.options());
    const Tensor workspace = at::empty({kernels.workspace_bytes()}, q.options().dtype(at::kByte));
    std::string fault;
    require_run(kernels.backward({q.const_data_ptr(), k.const_data_ptr(), v.const_data_ptr(), output.const_data_ptr(),
                                  gradient.const_data_ptr(), statistics.const_data_ptr<float>(), dq.mutable_data_ptr(),
                                  dk.mutable_data_ptr(), dv.mutable_data_ptr()},
                                 workspace.mutable_data_ptr(), depth_queue(q.device()), fault),
                "backward", fault);
    return {dq, dk, dv};
  }
};

}  // namespace

Tensor cudnn_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const bool halves = q.scalar_type() == at::kBFloat16 || q.scalar_type() == at::kHalf;
  if (!q.is_cuda() || !halves || q.size(1) < 2 || k.size(1) != q.size(1) || q.numel() == 0) return {};
  if (!in_rows(q) || !in_rows(k) || !in_rows(v)) return {};
  if (!plan_for(sizes_of(q, k, v), q.device()).kernels) return {};
  return Attention::apply(q, k, v);
}

std::string cudnn_attention_refuses(at::Device device, at::ScalarType storage, int64_t heads, int64_t kv_heads,
                                    int64_t head_dim, int64_t tokens) {
  if (!device.is_cuda()) return "device but CUDA's";
  if (storage != at::kBFloat16 && storage != at::kHalf) return "storage type but bf16 and fp16";
  return plan_for(sizes_of(1, tokens, heads, kv_heads, head_dim, storage), device).refusal;
}

}  // namespace mhar::ops
