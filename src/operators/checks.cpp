#include "operators/checks.h"

#include "ops/shapes.h"

namespace mhar::operators {
namespace {

constexpr const char* kName = "mhar::depth_read";

void check_heads(int64_t heads, int64_t width) {
  if (heads >= 1 && width % heads == 0) return;
  throw std::invalid_argument(describe({kName, "heads", "a divisor of the width " + std::to_string(width),
                                        std::to_string(heads), "choose another number of routing heads"}));
}

void check_kind(const char* argument, const at::Tensor& tensor, const at::Tensor& like) {
  if (tensor.scalar_type() == like.scalar_type() && tensor.device() == like.device()) return;
  throw std::invalid_argument(describe({kName, argument, c10::str(like.scalar_type(), " on ", like.device()),
                                        c10::str(tensor.scalar_type(), " on ", tensor.device()), "convert it"}));
}

void check_dimensions(const at::Tensor& sources, int64_t wanted) {
  if (sources.dim() == wanted) return;
  throw std::invalid_argument(describe({kName, "sources", std::to_string(wanted) + " dimensions",
                                        c10::str("shape ", sources.sizes()), "flatten batch and position"}));
}

}  // namespace

void check_site(at::TensorList sources, const at::Tensor& query, const at::Tensor& gain, int64_t heads) {
  if (sources.empty()) {
    throw std::invalid_argument(describe({kName, "sources", "at least one", "none", "start with the embedding"}));
  }
  check_dimensions(sources[0], 2);
  const int64_t width = sources[0].size(1);
  check_heads(heads, width);
  for (const at::Tensor& source : sources) {
    ops::require_shape(kName, "sources", source, sources[0].sizes());
    check_kind("sources", source, sources[0]);
  }
  ops::require_shape(kName, "query", query.reshape({-1}), {width});
  ops::require_shape(kName, "gain", gain, {width});
  check_kind("query", query, sources[0]);
  check_kind("gain", gain, sources[0]);
}

void check_history(const at::Tensor& sources, const at::Tensor& queries, const at::Tensor& gains, int64_t heads) {
  check_dimensions(sources, 3);
  check_heads(heads, sources.size(2));
  if (sources.size(0) < 1) {
    throw std::invalid_argument(describe({kName, "sources", "at least one", "none", "start with the embedding"}));
  }
  for (const auto& [name, tensor] : {std::pair<const char*, const at::Tensor&>{"queries", queries}, {"gains", gains}}) {
    ops::require_shape(kName, name, tensor, {sources.size(0), sources.size(2)});
    check_kind(name, tensor, sources);
  }
}

}  // namespace mhar::operators
