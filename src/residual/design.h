#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/parameter.h"

namespace mhar::residual {

/// What a design may know of the model it serves. Sites: 2 per layer (attention, MLP) and one before the final norm.
struct Shape {
  int64_t width = 0;   ///< D
  int64_t layers = 0;  ///< L
  int64_t heads = 0;   ///< H asked for, 0: the design's default
  int64_t kv_heads = 0;
  double eps = 1e-6;            ///< of every RMSNorm, depth keys included
  bool composed_reads = false;  ///< depth reads of tensor operations instead of the chunked engine
  int64_t read_chunk = 0;       ///< sites of a chunk of that engine; 0: planned

  int64_t sites() const { return 2 * layers + 1; }
};

/// The weights [D] of the RMSNorms that follow the reads, one per site. A pass knows them from the start so that it can
/// fuse norm and read and give their gradients together.
using Norms = std::vector<at::Tensor>;

/// Called at each read of a depth design with the site's softmax weights [sources, P, H]. For maps and probes.
using RoutingObserver = std::function<void(int64_t site, const at::Tensor& weights)>;

/// One forward pass over the depth. Verbs in this order: start, then read and write for every sublayer, then one last
/// read. P tokens, [P, D] everywhere.
class Pass {
 public:
  virtual ~Pass() = default;
  /// Source 0, or the first value of the stream.
  virtual void start(const at::Tensor& embedding) = 0;
  /// The normed input of sublayer `site`; site 2L feeds the output head.
  virtual at::Tensor read(int64_t site) = 0;
  /// Where the output GEMM of sublayer `site` may write its result; undefined when the design does not care.
  virtual at::Tensor slot(int64_t /*site*/) { return {}; }
  /// The raw output of sublayer `site`.
  virtual void write(int64_t site, const at::Tensor& output) = 0;
};

using Lookup = std::function<at::Tensor(const std::string& name)>;

/// How sublayers are joined over depth: what each reads and where its output goes. Owns the definition of its
/// parameters.
class Design {
 public:
  virtual ~Design() = default;
  /// Its own parameters, in a fixed order.
  virtual std::vector<ParameterSpec> parameters() const = 0;
  /// Takes the tensors of parameters(); called once, before the first pass.
  virtual void bind(const Lookup& lookup) = 0;
  /// Starts a forward pass. `observer` is empty in training.
  virtual std::unique_ptr<Pass> begin(Norms norms, const RoutingObserver& observer) const = 0;
  /// How reads of P tokens run, for logs: the kernels in use and why no faster ones; empty without depth reads.
  virtual std::string reads(int64_t /*tokens*/, at::ScalarType, at::Device) const { return {}; }
  /// Routing heads in use; 0 for a design without depth reads.
  virtual int64_t heads() const { return 0; }
  /// Bytes kept from the forward to the backward pass for P tokens, beyond what sublayers keep.
  virtual int64_t kept_bytes(int64_t tokens, int64_t element_bytes) const = 0;
  /// Floating-point operations of all reads of a forward pass, multiply and add counted apart.
  virtual int64_t read_flops(int64_t tokens) const = 0;
  /// The design's own keys of a checkpoint's config.json (docs/method.md, section 12).
  virtual void describe(nlohmann::json& config) const = 0;
};

/// A row of the registry.
struct Entry {
  std::string name;          ///< --design NAME
  std::string help;          ///< one line
  std::string attnres_mode;  ///< its name in config.json; empty for a plain Qwen3 or Llama checkpoint
  std::unique_ptr<Design> (*make)(const Shape& shape);
};

const std::vector<Entry>& registry();
/// Throws InputError listing the designs there are.
const Entry& find(const std::string& name);
/// The entry whose attnres_mode is `mode`. Throws InputError listing the modes there are.
const Entry& find_mode(const std::string& mode);

/// "layer 3 attention", "layer 3 mlp" or "final": how a site is called in reports and messages.
std::string site_name(int64_t site, int64_t sites);

}  // namespace mhar::residual
