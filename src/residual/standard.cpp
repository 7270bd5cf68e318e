#include <nlohmann/json.hpp>

#include "ops/add_norm.h"
#include "residual/designs.h"

namespace mhar::residual {
namespace {

class StandardPass : public Pass {
 public:
  StandardPass(Norms norms, double eps) : norms_(std::move(norms)), eps_(eps) {}

  void start(const at::Tensor& embedding) override { stream_ = embedding; }
  at::Tensor read(int64_t site) override {
    if (!output_.defined()) return ops::rms_norm_rows(stream_, norms_[site], eps_);
    const auto [sum, normed] = ops::add_rms_norm(stream_, output_, norms_[site], eps_);
    stream_ = sum;
    output_.reset();
    return normed;
  }
  // The addition waits for the norm that follows it.
  void write(int64_t, const at::Tensor& output) override { output_ = output; }

 private:
  Norms norms_;
  double eps_;
  at::Tensor stream_, output_;  // output_: of the newest sublayer, until it is added
};

class Standard : public Design {
 public:
  explicit Standard(const Shape& shape) : shape_(shape) {}
  std::vector<ParameterSpec> parameters() const override { return {}; }
  void bind(const Lookup&) override {}
  std::unique_ptr<Pass> begin(Norms norms, const RoutingObserver&) const override {
    return std::make_unique<StandardPass>(std::move(norms), shape_.eps);
  }
  // The stream after every sublayer and the embedding: each is the input of one norm.
  int64_t kept_bytes(int64_t tokens, int64_t element_bytes) const override {
    return shape_.sites() * tokens * shape_.width * element_bytes;
  }
  int64_t read_flops(int64_t tokens) const override { return 2 * shape_.layers * tokens * shape_.width; }
  void describe(nlohmann::json&) const override {}

 private:
  Shape shape_;
};

}  // namespace

std::unique_ptr<Design> make_standard(const Shape& shape) { return std::make_unique<Standard>(shape); }

}  // namespace mhar::residual
