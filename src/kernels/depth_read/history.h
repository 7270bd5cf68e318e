#pragma once
// Drives the passes of depth_read.h over all sites of one forward pass and back: site r reads sources 0 .. r. The
// caller owns the memory and says when a source is there; which pass runs when follows from the chunk plan.
#include "kernels/depth_read/plan.h"

namespace mhar::kernels {

/// Memory of one pass over R sites, shapes as in depth_read.h.
struct DepthMemory {
  void* sources;     ///< [R, P, D]; after a chunk's backward its slots hold partial gradients
  void* mixes;       ///< [R, P, D]: o, and dO after the site's backward
  void* rho;         ///< S [R, P]
  void* lse;         ///< S [R, P, H]
  void* norm_rho;    ///< S [R, P]
  const void* keys;  ///< S [R, D]; row 0 is zero
  // for the backward pass alone
  void* deltas = nullptr;          ///< S [R, P, H]
  void* through_rho = nullptr;     ///< S [longest chunk, P, H]
  void* scratch = nullptr;         ///< DepthKernels::scratch_bytes
  void* key_gradients = nullptr;   ///< S [R, D]: dw; whole when source 0 is done; row 0 is to be ignored
  void* norm_gradients = nullptr;  ///< S [R, D]: whole when source 0 is done
};

struct DepthHistoryRun {
  const DepthKernels* kernels;
  DepthSizes sizes;
  int64_t sites;  ///< R: of the forward plan, or those that take part in the backward plan
  DepthPlan plan;
};

/// Source r has been written: computes o_r, and y_r where norm.weight is given (norm.rho is set here). Sites in order.
int depth_forward(const DepthHistoryRun& run, const DepthMemory& memory, int64_t site, DepthNorm norm, void* queue);

struct SiteGradient {
  const void* normed_gradient;  ///< dy [P, D]; dO where norm_weight is null
  const void* norm_weight;      ///< [D]
  void* source_gradient;        ///< ds_r [P, D]: written
};

/// Sites from run.sites - 1 down to 0: turns dy_r into dO_r and writes ds_r, to which all sites have then contributed.
int depth_backward(const DepthHistoryRun& run, const DepthMemory& memory, int64_t site, const SiteGradient& gradient,
                   void* queue);

}  // namespace mhar::kernels
