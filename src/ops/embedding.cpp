#include "ops/embedding.h"

#include <torch/torch.h>

#include "kernels/embedding/embedding.h"
#include "ops/place.h"
#include "ops/pointwise.h"
#include "ops/shapes.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor whole_gradient(const Tensor& gradient, const Tensor& ids, int64_t rows) {
  return at::embedding_dense_backward(gradient, ids, rows, /*padding_idx=*/-1, /*scale_grad_by_freq=*/false);
}

void add_rows(const Tensor& table_gradient, const Tensor& ids, const Tensor& gradient) {
  const auto& kernels = kernels::embedding_kernels_cuda();
  const kernels::EmbeddingSizes z{ids.numel(), gradient.size(1), element_of(gradient.scalar_type())};
  if (!gradient.is_cuda() || kernels.refuses(z) || table_gradient.size(0) > INT32_MAX) {
    table_gradient.add_(whole_gradient(gradient, ids, table_gradient.size(0)));
    return;
  }
  const auto [sorted, order] = ids.to(at::kInt).sort(/*stable=*/true, 0, false);  // half the digits to go through
  const Tensor scratch = at::empty({kernels.scratch_bytes(z)}, gradient.options().dtype(at::kByte));
  const kernels::EmbeddingBackward b{sorted.const_data_ptr<int32_t>(), order.const_data_ptr<int64_t>(),
                                     gradient.const_data_ptr(), table_gradient.data_ptr(), scratch.data_ptr()};
  require_launched("embedding backward", kernels.backward(z, b, depth_queue(gradient.device())));
}

struct Embedding : torch::autograd::Function<Embedding> {
  // `place` is a std::vector on purpose: autograd then takes it as a value and not as an input.
  static Tensor forward(AutogradContext* context, const Tensor& table, const std::vector<Tensor>& place,
                        const Tensor& ids) {
    context->save_for_backward({table, ids});
    context->saved_data["place"] = place;
    return at::embedding(table, ids);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &table = saved[0], &ids = saved[1];
    if (at::GradMode::is_enabled()) {  // to be differentiated once more
      return {whole_gradient(gradients[0], ids, table.size(0)), Tensor(), Tensor()};
    }
    Tensor& sum = table.mutable_grad();
    if (!sum.defined()) {
      sum = context->saved_data["place"].toTensorVector()[0];
      claim(sum);
      sum.zero_();
    }
    add_rows(sum, ids, gradients[0].contiguous());
    return variable_list(3);
  }
};

}  // namespace

Tensor embedding(const LinearWeight& table, const Tensor& ids) {
  require_shape("embedding", "table", table.value, {table.value.size(0), table.value.size(-1)});
  require_shape("embedding", "ids", ids, {ids.numel()});
  if (!table.place.defined()) return at::embedding(table.value, ids);
  require_shape("embedding", "place", table.place, table.value.sizes());
  return Embedding::apply(table.value, std::vector<Tensor>{table.place}, ids);
}

}  // namespace mhar::ops
