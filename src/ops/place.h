#pragma once
#include <ATen/ATen.h>

namespace mhar::ops {

// The places of gradients are tensors whose memory may be given back between updates: shape, strides and views of one
// another stay, and whoever writes one first claims memory for all that share its storage. So gradients can lie where
// activations were.

/// Gives the memory of a storage back to its allocator. No view of it may be read or written until claim().
void release(const at::Tensor& any_view);
/// Memory, with whatever is in it, if there is none.
void claim(const at::Tensor& any_view);
bool claimed(const at::Tensor& any_view);

}  // namespace mhar::ops
