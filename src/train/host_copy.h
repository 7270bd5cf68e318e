#pragma once
#include <ATen/ATen.h>
#include <c10/core/Event.h>

#include <optional>

namespace mhar {

/// A tensor's values on their way to the host. From a GPU nobody waits for them but get(): they go into pinned memory
/// in the order of the current stream, and `source` may be overwritten by what is queued later.
class HostCopy {
 public:
  explicit HostCopy(const at::Tensor& source);

  bool there() const { return !done_ || done_->query(); }
  /// Waits until they are there. A failure of the device's work shows here.
  const at::Tensor& get() const;

 private:
  at::Tensor host_;
  std::optional<c10::Event> done_;
};

}  // namespace mhar
