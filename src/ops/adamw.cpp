#include "ops/adamw.h"

#include <ATen/Parallel.h>

#include "ops/depth_engine.h"
#include "ops/shapes.h"

namespace mhar::ops {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements a task; below this a thread costs more than it saves

kernels::Element element_of(const char* argument, const at::Tensor& tensor) {
  if (tensor.scalar_type() == at::kFloat) return kernels::Element::f32;
  if (tensor.scalar_type() == at::kBFloat16) return kernels::Element::bf16;
  throw std::invalid_argument(
      describe({"adamw", argument, "fp32 or bf16", c10::toString(tensor.scalar_type()), "convert the buffer"}));
}

void require_size(const char* argument, const at::Tensor& tensor, size_t bytes, at::Device device) {
  if (tensor.defined() && tensor.device() == device && tensor.is_contiguous() && tensor.nbytes() >= bytes) return;
  throw std::invalid_argument(describe({"adamw", argument, std::to_string(bytes) + " bytes on the parameters' device",
                                        "others", "make it with make_adamw_step() or make_clip_report()"}));
}

void check(const AdamWBuffers& b) {
  const auto one = [&](const char* name, const at::Tensor& tensor) {
    if (!tensor.is_same(b.gradient)) require_shape("adamw", name, tensor, b.parameter.sizes());
    if (tensor.is_contiguous() && tensor.device() == b.parameter.device()) return;
    throw std::invalid_argument(
        describe({"adamw", name, "a contiguous buffer on the parameters' device", "another", "copy it there"}));
  };
  one("parameter", b.parameter);
  one("gradient", b.gradient);
  one("moment1", b.moment1);
  one("moment2", b.moment2);
  if (b.master.defined()) one("master", b.master);
  if (b.gradient.dim() != 1 || b.gradient_from % 8 != 0 || b.gradient_from < 0 ||
      b.gradient_from + b.gradient.numel() > b.parameter.numel()) {
    throw std::invalid_argument(
        describe({"adamw", "gradient", c10::str("a piece of ", b.parameter.sizes()),
                  c10::str(b.gradient.sizes(), " from ", b.gradient_from), "cut it out of that"}));
  }
  require_size("step", b.step, sizeof(kernels::AdamwStep), b.parameter.device());
  if (b.clip.defined()) require_size("clip", b.clip, sizeof(kernels::Clip), b.parameter.device());
  if (b.moment1.scalar_type() != b.moment2.scalar_type()) {
    throw std::invalid_argument(describe({"adamw", "moments", "one type", "two", "make both of one type"}));
  }
}

}  // namespace

at::Tensor make_adamw_step(at::Device device) {
  return at::zeros({static_cast<int64_t>(sizeof(kernels::AdamwStep))}, at::TensorOptions(device).dtype(at::kByte));
}

void set_adamw_step(const at::Tensor& memory, const kernels::AdamwStep& step) {
  // Pageable memory of a few bytes is copied before the call returns, so that nobody has to keep it.
  const at::Tensor bytes = at::from_blob(const_cast<kernels::AdamwStep*>(&step), {sizeof step}, at::kByte);
  memory.copy_(bytes, /*non_blocking=*/true);
}

void adamw(const AdamWBuffers& b, kernels::AdamwArguments arguments) {
  check(b);
  arguments.parameter = b.parameter.data_ptr();
  arguments.gradient = b.gradient.const_data_ptr();
  arguments.gradient_from = b.gradient_from;
  arguments.moment1 = b.moment1.data_ptr();
  arguments.moment2 = b.moment2.data_ptr();
  arguments.master = b.master.defined() ? b.master.data_ptr<float>() : nullptr;
  arguments.parameter_type = element_of("parameter", b.parameter);
  arguments.gradient_type = element_of("gradient", b.gradient);
  arguments.moment_type = element_of("moment1", b.moment1);
  arguments.step = reinterpret_cast<const kernels::AdamwStep*>(b.step.const_data_ptr());
  arguments.clip = b.clip.defined() ? reinterpret_cast<const kernels::Clip*>(b.clip.const_data_ptr()) : nullptr;
  const int64_t from = b.gradient_from, count = b.gradient.numel();
  if (b.parameter.is_cuda()) {
    return require_launched("adamw", kernels::adamw_cuda({from, count}, arguments, depth_queue(b.parameter.device())));
  }
  at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    kernels::adamw_cpu({from + begin, end - begin}, arguments);
  });
}

}  // namespace mhar::ops
