#include <nlohmann/json.hpp>

#include "ops/rms_norm.h"
#include "residual/designs.h"

namespace mhar::residual {
namespace {

class StandardPass : public Pass {
 public:
  void start(const at::Tensor& embedding) override { stream_ = embedding; }
  at::Tensor read(int64_t, const Norm& norm) override { return ops::rms_norm(stream_, norm.weight, norm.eps); }
  void write(int64_t, const at::Tensor& output) override { stream_ = stream_ + output; }

 private:
  at::Tensor stream_;
};

class Standard : public Design {
 public:
  explicit Standard(const Shape& shape) : shape_(shape) {}
  std::vector<ParameterSpec> parameters() const override { return {}; }
  void bind(const Lookup&) override {}
  std::unique_ptr<Pass> begin(const RoutingObserver&) const override { return std::make_unique<StandardPass>(); }
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
