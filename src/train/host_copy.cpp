#include "train/host_copy.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace mhar {

HostCopy::HostCopy(const at::Tensor& source) {
  const auto options = at::TensorOptions(at::kCPU).dtype(source.scalar_type());
  host_ = at::empty(source.sizes(), options.pinned_memory(source.is_cuda()));
  host_.copy_(source, /*non_blocking=*/source.is_cuda());
  if (!source.is_cuda()) return;
  done_.emplace(at::kCUDA);
  done_->record(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(source.device()));
}

const at::Tensor& HostCopy::get() const {
  if (done_) done_->synchronize();
  return host_;
}

}  // namespace mhar
