#pragma once
#include <ATen/ATen.h>

#include <functional>
#include <vector>

namespace mhar::ops {

/// For the backward pass: work that nothing behind it in that pass waits for, such as the GEMM of a weight's gradient.
/// On a GPU it is queued on a stream beside the current one and fills what that leaves idle, between kernels and where
/// their last blocks run out; elsewhere it is done at once. `used` are the tensors it reads: they are held until it is
/// done, since their memory would be given to what is queued next. The backward call returns with its stream behind
/// all such work. One backward call at a time on a device.
void run_beside(at::Device device, std::vector<at::Tensor> used, const std::function<void()>& work);

}  // namespace mhar::ops
