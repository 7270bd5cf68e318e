#include "ops/adamw.h"

#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "kernels/cuda_status.h"
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

void check(const AdamWBuffers& b) {
  const auto size = b.parameter.sizes();
  const auto one = [&](const char* name, const at::Tensor& tensor) {
    require_shape("adamw", name, tensor, size);
    if (tensor.is_contiguous() && tensor.device() == b.parameter.device()) return;
    throw std::invalid_argument(
        describe({"adamw", name, "a contiguous buffer on the parameters' device", "another", "copy it there"}));
  };
  one("parameter", b.parameter);
  one("gradient", b.gradient);
  one("moment1", b.moment1);
  one("moment2", b.moment2);
  if (b.master.defined()) one("master", b.master);
  if (b.moment1.scalar_type() != b.moment2.scalar_type()) {
    throw std::invalid_argument(describe({"adamw", "moments", "one type", "two", "make both of one type"}));
  }
}

}  // namespace

void adamw(const AdamWBuffers& b, kernels::AdamwArguments arguments) {
  check(b);
  arguments.parameter = b.parameter.data_ptr();
  arguments.gradient = b.gradient.const_data_ptr();
  arguments.moment1 = b.moment1.data_ptr();
  arguments.moment2 = b.moment2.data_ptr();
  arguments.master = b.master.defined() ? b.master.data_ptr<float>() : nullptr;
  arguments.parameter_type = element_of("parameter", b.parameter);
  arguments.gradient_type = element_of("gradient", b.gradient);
  arguments.moment_type = element_of("moment1", b.moment1);
  const int64_t count = b.parameter.numel();
  if (b.parameter.is_cuda()) {
    const c10::impl::VirtualGuardImpl guard(at::kCUDA);
    const int code = kernels::adamw_cuda({0, count}, arguments, guard.getStream(b.parameter.device()).native_handle());
    if (code != 0)
      throw std::runtime_error(std::string("adamw: the CUDA kernel failed: ") + kernels::cuda_error_text(code));
    return;
  }
  at::parallel_for(0, count, kGrain, [&](int64_t begin, int64_t end) {
    kernels::adamw_cpu({begin, end - begin}, arguments);
  });
}

}  // namespace mhar::ops
