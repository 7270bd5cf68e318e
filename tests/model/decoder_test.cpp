// The decoder as a whole: laws, and its gradients against differences of the loss.
#include "model/decoder.h"

#include "base/error.h"
#include "model/helpers.h"
#include "model/names.h"
#include "ops/token_loss.h"
#include "reference/swiglu.h"
#include "residual/design.h"

namespace mhar {
namespace {

using at::Tensor;
using namespace mhar::testing;

TEST(Decoder, IsCausal) {
  for (const auto& entry : residual::registry()) {
    const Decoder model = small_model(small_config(entry.name));
    const Tensor text = some_ids(1, 9, 37);
    Tensor other = text.clone();
    other[0][6] = (other[0][6] + 1) % 37;
    const Tensor one = model.hidden(text), two = model.hidden(other);
    EXPECT_TRUE(at::allclose(one.slice(0, 0, 6), two.slice(0, 0, 6), 0, 1e-14)) << entry.name;
    for (int64_t t = 6; t < 9; ++t)
      EXPECT_FALSE(at::allclose(one[t], two[t], 0, 1e-6)) << entry.name << ", position " << t;
  }
}

TEST(Decoder, WindowsDoNotSeeOneAnother) {
  for (const auto& entry : residual::registry()) {
    const Decoder model = small_model(small_config(entry.name));
    const Tensor text = some_ids(3, 7, 37), all = model.hidden(text);
    ASSERT_EQ(all.sizes(), at::IntArrayRef({21, 16}));
    for (int64_t b = 0; b < 3; ++b) {
      EXPECT_TRUE(at::allclose(model.hidden(text.slice(0, b, b + 1)), all.slice(0, 7 * b, 7 * b + 7), 0, 1e-12))
          << entry.name;
    }
  }
}

TEST(Decoder, HeadIsTheEmbeddingWhenTied) {
  const Decoder tied = small_model(small_config("standard"));
  EXPECT_EQ(tied.head().value.data_ptr(), tied.parameters().get(names::kEmbedding).data_ptr());
  ModelConfig config = small_config("standard");
  config.tied = false;
  const Decoder untied = small_model(config);
  EXPECT_EQ(untied.head().value.data_ptr(), untied.parameters().get(names::kHead).data_ptr());
  const Tensor hidden = normal({3, 16}, 1);
  EXPECT_TRUE(at::allclose(untied.logits(hidden), hidden.mm(untied.head().value.t()), 0, 1e-14));
}

// One layer whose attention is silenced leaves the MLP of the embedding: Eq. 19 by the reference's loops.
TEST(Decoder, MlpFollowsTheReference) {
  Decoder model = small_model(small_config("standard", 1));
  const torch::NoGradGuard no_gradient;
  const auto weight = [&](const char* name) { return model.parameters().get(names::in_layer(0, name)); };
  weight(names::kAttentionOutput).zero_();
  const Tensor text = some_ids(1, 5, 37),
               stream = model.parameters().get(names::kEmbedding).index_select(0, text.view({-1}));
  const auto norm = [](const Tensor& x, const Tensor& gain) {
    return x * at::rsqrt(x.square().mean(-1, true) + 1e-6) * gain;
  };
  const Tensor x = norm(stream, weight(names::kMlpNorm));
  const auto inside = reference::swiglu<double>(values<double>(x.mm(weight(names::kGate).t())),
                                                values<double>(x.mm(weight(names::kUp).t())));
  const Tensor out = stream + at::tensor(inside, at::kDouble).view({5, 24}).mm(weight(names::kDown).t());
  EXPECT_TRUE(at::allclose(model.hidden(text), norm(out, model.parameters().get(names::kFinalNorm)), 0, 1e-12));
}

// Case 56, through every operation of a block at once: norms, attention, MLP and reads.
TEST(Decoder, UpstreamGradientsOfAnyLayout) {
  for (const auto& entry : residual::registry()) {
    for (const Tensor& dO : awkward_views({10, 16}, at::kFloat)) {
      Tensor gradients[2];
      for (int i = 0; i < 2; ++i) {
        Decoder model = small_model(small_config(entry.name), at::kFloat);
        gradients[i] = flat_gradient(model.parameters());
        model.hidden(some_ids(2, 5, 37)).backward(i == 0 ? dO : dO.contiguous().clone());
      }
      EXPECT_TRUE(at::equal(gradients[0], gradients[1])) << entry.name;
    }
  }
}

// fp32 runs on the fused kernels, fp64 is composed of tensor operations.
TEST(Decoder, FusedFollowsComposed) {
  for (const auto& entry : residual::registry()) {
    for (const bool qk_norm : {true, false}) {
      ModelConfig config = small_config(entry.name, 3);
      config.qk_norm = qk_norm;
      Decoder composed = small_model(config, at::kDouble), fused = small_model(config, at::kFloat);
      const auto run = [&](Decoder& model) {
        model.parameters().gradient();
        const Tensor hidden = model.hidden(some_ids(2, 7, 37));
        hidden.backward(normal(hidden.sizes(), 5).to(hidden.scalar_type()));
        return hidden;
      };
      {
        const at::NoGradGuard no_gradient;
        for (size_t i = 0; i < fused.parameters().specs().size(); ++i) {
          composed.parameters().view(i).copy_(fused.parameters().view(i));
        }
      }
      EXPECT_LE(relative_distance(run(fused), values<double>(run(composed))), 1e-6) << entry.name;
      for (size_t i = 0; i < fused.parameters().specs().size(); ++i) {
        const auto exact = values<double>(composed.parameters().view(i).grad());
        EXPECT_LE(relative_distance(fused.parameters().view(i).grad(), exact), 1e-5)
            << entry.name << ", " << fused.parameters().specs()[i].name;
      }
    }
  }
}

// Case 31. The gradient's norm over a group of parameters is the loss's slope along the gradient's direction.
TEST(Decoder, EveryBlockHasItsWholeGradient) {
  constexpr int64_t layers = 24;
  for (const auto& entry : residual::registry()) {
    Decoder model(small_config(entry.name, layers), at::kDouble, at::kCPU);
    model.parameters().initialise(42);
    {
      const at::NoGradGuard no_gradient;
      for (size_t i = 0; i < model.parameters().specs().size(); ++i) {
        const std::string& name = model.parameters().specs()[i].name;
        if (name.ends_with("res_proj.weight")) model.parameters().view(i).copy_(normal({1, 16}, i, at::kDouble, 0.3));
      }
    }
    const Tensor ids = some_ids(1, 12, 37), targets = ids.add(5).remainder(37).view({-1});
    const auto loss = [&](bool differentiable) {
      return ops::token_loss(model.hidden(ids), model.head().value, targets,
                             {.weight = 1.0 / 12, .differentiable = differentiable})
          .objective;
    };
    const Tensor gradient = flat_gradient(model.parameters());
    loss(true).backward();
    std::vector<double> norms;
    for (int64_t group = -1; group < layers; ++group) {  // -1: embedding, final norm and final read
      Tensor direction = at::zeros_like(gradient);
      for (size_t i = 0; i < model.parameters().specs().size(); ++i) {
        const std::string& name = model.parameters().specs()[i].name;
        const bool in = group < 0 ? !name.starts_with("model.layers.") : name.starts_with(names::in_layer(group, ""));
        if (in) model.parameters().part(direction, i).copy_(model.parameters().part(gradient, i));
      }
      const double norm = direction.norm().item<double>(), step = 1e-5;
      const at::NoGradGuard no_gradient;
      const auto at_offset = [&](double offset) {
        model.parameters().flat().add_(direction, offset / norm);
        const double value = loss(false).item<double>();
        model.parameters().flat().sub_(direction, offset / norm);
        return value;
      };
      EXPECT_NEAR((at_offset(step) - at_offset(-step)) / (2 * step) / norm, 1.0, 0.01)
          << entry.name << ", block " << group;
      if (group >= 0) norms.push_back(norm);
    }
    EXPECT_GT(norms.front() * 1000, norms.back()) << entry.name;
    EXPECT_GT(norms.back() * 1000, norms.front()) << entry.name;
  }
}

TEST(Decoder, RunsOnEveryDeviceInEveryType) {
  for (const at::Device device : devices()) {
    for (const auto& entry : residual::registry()) {
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        ModelConfig config = small_config(entry.name);
        config.head_dim = 8;  // what every GPU kernel takes
        Decoder model(config, type, device);
        model.parameters().initialise(42);
        const Tensor text = some_ids(2, 9, 37), got = model.hidden(text.to(device)).cpu().to(at::kDouble);
        Decoder exact(config, at::kDouble, at::kCPU);
        for (size_t i = 0; i < model.parameters().specs().size(); ++i) {
          const at::NoGradGuard no_gradient;
          exact.parameters().view(i).copy_(model.parameters().view(i));
        }
        const double tolerance = type == at::kFloat ? 1e-4 : 0.1;  // normed values of size 1
        EXPECT_LE((got - exact.hidden(text)).abs().max().item<double>(), tolerance)
            << entry.name << " " << device.str();
      }
    }
  }
}

TEST(Decoder, BadConfigurationsAreRefusedBeforeAnythingIsAllocated) {
  ModelConfig config = find_scale("8b").model;
  config.design = "mhra";
  EXPECT_NE(message_of<InputError>([&] { Decoder(config, at::kFloat, at::kCPU); }).find("standard, single, mhar"),
            std::string::npos);
  config.design = "mhar", config.routing_heads = 3;
  EXPECT_NE(message_of<InputError>([&] { Decoder(config, at::kFloat, at::kCPU); }).find("--routing-heads"),
            std::string::npos);
}

}  // namespace
}  // namespace mhar
