#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "ops/depth_history.h"
#include "ops/depth_read.h"
#include "ops/rms_norm.h"
#include "residual/designs.h"

namespace mhar::residual {
namespace {

// The names of the published code, so that its checkpoints load here and ours there.
std::string site_prefix(int64_t site, int64_t sites) {
  if (site == sites - 1) return "model.final_res_";
  return fmt::format("model.layers.{}.{}_res_", site / 2, site % 2 == 0 ? "attn" : "mlp");
}

struct Site {
  at::Tensor query, gain;
};

ops::DepthReads reads_of(const Shape& shape) {
  return {shape.sites(), shape.width, shape.heads, shape.eps, shape.read_chunk};
}

ops::DepthEngine engine_for(const Shape& shape, int64_t tokens, at::ScalarType type, at::Device device) {
  if (shape.composed_reads) return {nullptr, "as asked for"};
  return ops::depth_engine(reads_of(shape), tokens, type, device);
}

// Every read on its own, of tensor operations.
class ComposedPass : public Pass {
 public:
  ComposedPass(const std::vector<Site>& sites, const Shape& shape, Norms norms, RoutingObserver observer)
      : sites_(sites), shape_(shape), norms_(std::move(norms)), observer_(std::move(observer)) {}

  void start(const at::Tensor& embedding) override { append(embedding); }

  at::Tensor read(int64_t site) override {
    const at::Tensor key = ops::depth_key(sites_[site].query, sites_[site].gain);
    if (observer_) observer_(site, ops::depth_weights(sources_, key, shape_.heads));
    const at::Tensor mix = ops::depth_read(sources_, key, shape_.heads);
    return ops::rms_norm(mix.to(storage_), norms_[site], shape_.eps);
  }

  void write(int64_t, const at::Tensor& output) override { append(output); }

 private:
  void append(const at::Tensor& source) {
    storage_ = source.scalar_type();
    sources_.push_back(ops::depth_source(source, shape_.eps));
  }

  const std::vector<Site>& sites_;
  Shape shape_;
  Norms norms_;
  RoutingObserver observer_;
  std::vector<ops::DepthSource> sources_;
  at::ScalarType storage_ = at::kFloat;
};

// All reads on the chunked engine: a sublayer's output is written into its slot, and the read that follows takes it.
class ChunkedPass : public Pass {
 public:
  ChunkedPass(ops::DepthHistory history, RoutingObserver observer)
      : history_(std::move(history)), observer_(std::move(observer)) {}

  void start(const at::Tensor& embedding) override { newest_ = embedding; }

  at::Tensor read(int64_t site) override {
    at::Tensor normed = history_.step(newest_);
    if (observer_) observer_(site, history_.weights(site));
    return normed;
  }

  at::Tensor slot(int64_t site) override { return history_.slot(site + 1); }
  void write(int64_t, const at::Tensor& output) override { newest_ = output; }

 private:
  ops::DepthHistory history_;
  RoutingObserver observer_;
  at::Tensor newest_;
};

// Which of the two serves is known with the shape of the embedding.
class DepthPass : public Pass {
 public:
  DepthPass(const std::vector<Site>& sites, const Shape& shape, Norms norms, RoutingObserver observer)
      : sites_(sites), shape_(shape), norms_(std::move(norms)), observer_(std::move(observer)) {}

  void start(const at::Tensor& embedding) override {
    const auto engine = engine_for(shape_, embedding.size(0), embedding.scalar_type(), embedding.device());
    if (engine.kernels) {
      ops::DepthHistory history(engine, reads_of(shape_), embedding.size(0), embedding.scalar_type(),
                                embedding.device());
      std::vector<at::Tensor> queries, gains;
      for (const Site& site : sites_) queries.push_back(site.query), gains.push_back(site.gain);
      history.open(queries, gains, norms_);
      pass_ = std::make_unique<ChunkedPass>(std::move(history), observer_);
    } else {
      if (!shape_.composed_reads) {
        TORCH_WARN_ONCE("mhar: depth reads are ", engine.name());
      }
      pass_ = std::make_unique<ComposedPass>(sites_, shape_, norms_, observer_);
    }
    pass_->start(embedding);
  }

  at::Tensor read(int64_t site) override { return pass_->read(site); }
  at::Tensor slot(int64_t site) override { return pass_->slot(site); }
  void write(int64_t site, const at::Tensor& output) override { pass_->write(site, output); }

 private:
  const std::vector<Site>& sites_;
  Shape shape_;
  Norms norms_;
  RoutingObserver observer_;
  std::unique_ptr<Pass> pass_;
};

class Depth : public Design {
 public:
  Depth(const Shape& shape, std::string mode) : shape_(shape), mode_(std::move(mode)) {
    if (shape_.heads < 1 || shape_.width % shape_.heads != 0) {
      throw InputError({"make the depth reads", "option --routing-heads",
                        fmt::format("a divisor of the width {}", shape_.width), std::to_string(shape_.heads),
                        "change --routing-heads or --width"});
    }
  }

  std::vector<ParameterSpec> parameters() const override {
    std::vector<ParameterSpec> all;
    for (int64_t site = 0; site < shape_.sites(); ++site) {
      const std::string prefix = site_prefix(site, shape_.sites());
      // One source leaves the first site nothing to choose: neither its query nor its gain has a data gradient, but the
      // gain starts at one and decays.
      all.push_back({prefix + "proj.weight", {1, shape_.width}, {}, site > 0});
      all.push_back({prefix + "norm.weight", {shape_.width}, {Initial::Pattern::ones, 0.0}});
    }
    return all;
  }

  void bind(const Lookup& lookup) override {
    for (int64_t site = 0; site < shape_.sites(); ++site) {
      const std::string prefix = site_prefix(site, shape_.sites());
      sites_.push_back({lookup(prefix + "proj.weight"), lookup(prefix + "norm.weight")});
    }
  }

  std::unique_ptr<Pass> begin(Norms norms, const RoutingObserver& observer) const override {
    return std::make_unique<DepthPass>(sites_, shape_, std::move(norms), observer);
  }

  std::string reads(int64_t tokens, at::ScalarType type, at::Device device) const override {
    return engine_for(shape_, tokens, type, device).name();
  }

  int64_t heads() const override { return shape_.heads; }

  // Sources and mixes in the storage type, and three statistics of each read. Composed reads keep an fp32 copy of each
  // source, and all logits and weights instead.
  int64_t kept_bytes(int64_t tokens, int64_t element_bytes) const override {
    const int64_t sites = shape_.sites(), pairs = sites * (sites + 1) / 2;
    const int64_t values = sites * shape_.width * 2 * element_bytes;
    if (!shape_.composed_reads) return tokens * (values + sites * (2 + shape_.heads) * 4);
    const int64_t copy = element_bytes < 4 ? sites * shape_.width * 4 : 0;
    return tokens * (values + copy + pairs * 2 * shape_.heads * 4);
  }

  // Per site and source: a product and sum for the logit, and one for the mix.
  int64_t read_flops(int64_t tokens) const override {
    const int64_t sites = shape_.sites();
    return sites * (sites + 1) / 2 * tokens * shape_.width * 4;
  }

  void describe(nlohmann::json& config) const override {
    config["attnres_mode"] = mode_;
    config["attnres_num_heads"] = shape_.heads;
  }

 private:
  Shape shape_;
  std::string mode_;
  std::vector<Site> sites_;
};

}  // namespace

std::unique_ptr<Design> make_single(const Shape& shape) {
  Shape one = shape;
  one.heads = 1;
  return std::make_unique<Depth>(one, "full");
}

std::unique_ptr<Design> make_multi_head(const Shape& shape) {
  Shape many = shape;
  if (many.heads == 0) many.heads = many.kv_heads;
  return std::make_unique<Depth>(many, "full_mh");
}

}  // namespace mhar::residual
