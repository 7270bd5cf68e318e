// Attention through cuDNN's graph interface. cuDNN itself comes with LibTorch and is looked up at run time, so that a
// machine without it falls back instead of failing to start.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>
#include <dlfcn.h>

#include <cmath>
#include <unordered_map>

#include "kernels/attention/attention.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}

namespace mhar::kernels {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using Places = std::unordered_map<int64_t, void*>;

enum Name : int64_t { kQuery = 1, kKey, kValue, kOutput, kStatistics, kOutputGradient, kDq, kDk, kDv };

void* place(const void* data) { return const_cast<void*>(data); }

struct Layout {
  std::vector<int64_t> sizes, strides;
};

Layout heads_of(const AttentionSizes& z, int64_t heads, int64_t pitch) {
  return {{z.batch, heads, z.tokens, z.head_dim}, {z.tokens * pitch, z.head_dim, pitch, 1}};
}
Layout statistics_of(const AttentionSizes& z) {
  return {{z.batch, z.heads, z.tokens, 1}, {z.heads * z.tokens, z.tokens, 1, 1}};
}

class Plans : public CudnnAttention {
 public:
  ~Plans() override {
    if (handle_ != nullptr) fe::detail::destroy_handle(handle_);
  }

  /// Empty, or what cuDNN says against it.
  std::string make(const AttentionSizes& z) {
    if (fe::detail::create_handle(&handle_) != CUDNN_STATUS_SUCCESS) return "device that cuDNN can be started on";
    const Layout query = heads_of(z, z.heads, z.query_pitch), key = heads_of(z, z.kv_heads, z.key_pitch);
    const Layout value = heads_of(z, z.kv_heads, z.value_pitch), output = heads_of(z, z.heads, z.output_pitch);
    const float scale = static_cast<float>(1 / std::sqrt(static_cast<double>(z.head_dim)));
    start(forward_, z.type);
    auto [o, statistics] =
        forward_.sdpa(input(forward_, kQuery, query), input(forward_, kKey, key), input(forward_, kValue, value),
                      fe::graph::SDPA_attributes()
                          .set_name("attention")
                          .set_generate_stats(true)
                          .set_attn_scale(scale)
                          .set_causal_mask(true));
    leave(o, kOutput, output);
    leave(statistics, kStatistics, statistics_of(z));
    statistics->set_data_type(fe::DataType_t::FLOAT);
    if (std::string fault = finish(forward_); !fault.empty()) return fault;

    start(backward_, z.type);
    const Tensor given = input(backward_, kStatistics, statistics_of(z));
    given->set_data_type(fe::DataType_t::FLOAT);
    auto [dq, dk, dv] = backward_.sdpa_backward(input(backward_, kQuery, query), input(backward_, kKey, key),
                                                input(backward_, kValue, value), input(backward_, kOutput, output),
                                                input(backward_, kOutputGradient, output), given,
                                                fe::graph::SDPA_backward_attributes()
                                                    .set_name("attention backward")
                                                    .set_attn_scale(scale)
                                                    .set_causal_mask(true)
                                                    .set_deterministic_algorithm(z.deterministic));
    leave(dq, kDq, query), leave(dk, kDk, key);
    leave(dv, kDv, heads_of(z, z.kv_heads, z.value_gradient_pitch));
    return finish(backward_);
  }

  int64_t workspace_bytes() const override { return workspace_; }

  int forward(const AttentionForward& p, void* workspace, void* queue, std::string& fault) const override {
    Places places{{kQuery, place(p.query)},
                  {kKey, place(p.key)},
                  {kValue, place(p.value)},
                  {kOutput, p.output},
                  {kStatistics, p.statistics}};
    return run(forward_, places, workspace, queue, fault);
  }

  int backward(const AttentionBackward& p, void* workspace, void* queue, std::string& fault) const override {
    Places places{{kQuery, place(p.query)},
                  {kKey, place(p.key)},
                  {kValue, place(p.value)},
                  {kOutput, place(p.output)},
                  {kOutputGradient, place(p.output_gradient)},
                  {kStatistics, place(p.statistics)},
                  {kDq, p.query_gradient},
                  {kDk, p.key_gradient},
                  {kDv, p.value_gradient}};
    return run(backward_, places, workspace, queue, fault);
  }

 private:
  static void start(fe::graph::Graph& graph, Element type) {
    graph.set_io_data_type(type == Element::bf16 ? fe::DataType_t::BFLOAT16 : fe::DataType_t::HALF)
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
  }
  static Tensor input(fe::graph::Graph& graph, Name name, const Layout& layout) {
    return graph.tensor(fe::graph::Tensor_attributes().set_uid(name).set_dim(layout.sizes).set_stride(layout.strides));
  }
  static void leave(const Tensor& tensor, Name name, const Layout& layout) {
    tensor->set_output(true).set_uid(name).set_dim(layout.sizes).set_stride(layout.strides);
  }
  std::string finish(fe::graph::Graph& graph) {
    auto status = graph.build(handle_, {fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK});
    if (status.is_bad()) return "such shape (" + status.get_message() + ")";
    int64_t bytes = 0;
    if (graph.get_workspace_size(bytes).is_bad()) return "such shape (no workspace size)";
    workspace_ = std::max(workspace_, bytes);
    return {};
  }
  int run(const fe::graph::Graph& graph, Places& places, void* workspace, void* queue, std::string& fault) const {
    if (fe::detail::set_stream(handle_, static_cast<cudaStream_t>(queue)) != CUDNN_STATUS_SUCCESS) {
      fault = "cuDNN refused the stream";
      return 1;
    }
    auto status = graph.execute(handle_, places, workspace);
    if (status.is_good()) return 0;
    fault = status.get_message();
    return 1;
  }

  cudnnHandle_t handle_ = nullptr;
  mutable fe::graph::Graph forward_, backward_;
  int64_t workspace_ = 0;
};

bool loaded() {
  static const bool found = [] {
    fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_GLOBAL);
    return fe::cudnn_dlhandle != nullptr;
  }();
  return found;
}

}  // namespace

std::unique_ptr<CudnnAttention> CudnnAttention::build(const AttentionSizes& z, std::string& refusal) {
  if (z.type != Element::bf16 && z.type != Element::f16) {
    refusal = "storage type but bf16 and fp16";
  } else if (!loaded()) {
    refusal = "machine without libcudnn.so.9";
  } else {
    try {
      auto plans = std::make_unique<Plans>();
      refusal = plans->make(z);
      if (refusal.empty()) return plans;
    } catch (const std::exception& fault) {  // the interface throws where a symbol of cuDNN is missing
      refusal = std::string("cuDNN of this version (") + fault.what() + ")";
    }
  }
  return nullptr;
}

}  // namespace mhar::kernels
