#pragma once
#include "kernels/depth_read/depth_read.h"

namespace mhar::kernels {
namespace {  // a copy for each unit: those of different levels of instructions must not share one

/// Runs body(begin, end) over [0, items) by `queue`, a ParallelFor, or at once where it is null.
template <typename Body>
void in_parallel(void* queue, int64_t items, const Body& body) {
  if (items <= 0) return;
  if (!queue) return body(0, items);
  auto* pool = static_cast<ParallelFor*>(queue);
  pool->run(
      pool->self, items,
      [](void* context, int64_t begin, int64_t end) { (*static_cast<const Body*>(context))(begin, end); },
      const_cast<Body*>(&body));
}

}  // namespace
}  // namespace mhar::kernels
