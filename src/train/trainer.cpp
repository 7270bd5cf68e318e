#include "train/trainer.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/version.h"
#include "ops/token_loss.h"
#include "train/device.h"
#include "train/model_folder.h"

namespace mhar {
namespace {

// An optimizer that copies parameters (rounding = master) has to see their starting values.
Decoder initialised(const RunConfig& config, at::Device device) {
  Decoder model(config.model(), precision_type(config.precision), device);
  model.parameters().initialise(static_cast<uint64_t>(config.seed));
  return model;
}

}  // namespace

double global_norm(const at::Tensor& gradient) {
  return at::linalg_vector_norm(gradient, 2.0, c10::nullopt, false, at::kFloat).item<double>();
}

Trainer::Trainer(const RunConfig& config, at::Device device, BatchSource batches)
    : config_(config),
      model_(initialised(config, device)),
      optimizer_(model_.parameters(), config),
      schedule_{config.steps, config.warm_up, config.rate, config.rate_floor},
      batches_(std::move(batches)) {
  state_.config = config;
  state_.program = version();
  const auto& parameters = model_.parameters();
  for (size_t i = 0; i < parameters.specs().size(); ++i) {
    state_.initial_hashes[parameters.specs()[i].name] = bits_hash(parameters.view(i));
  }
}

StepResult Trainer::step() {
  const auto batches = batches_(state_.next_batch);
  StepResult result{.step = state_.step + 1};
  for (const auto& batch : batches) result.counted += batch.counted;
  if (result.counted == 0) {
    ++state_.next_batch;
    return result;
  }
  const Gradient gradient = accumulate(batches, result.counted);
  if (!std::isfinite(gradient.loss) || !std::isfinite(gradient.norm))
    refuse_non_finite(batches, result.counted, gradient);

  result.loss = gradient.loss;
  result.gradient_norm = gradient.norm;
  result.rate = schedule_.rate(result.step);
  optimizer_.update(gradient.sum, result.step, result.rate, clip_factor(gradient.norm, config_.clip));

  state_.step = result.step;
  state_.train_loss = result.loss;
  state_.tokens += result.counted;
  ++state_.next_batch;
  return result;
}

Trainer::Gradient Trainer::accumulate(const std::vector<Batch>& batches, int64_t counted) {
  Gradient total;
  total.sum = model_.parameters().gradient();
  if (batches.size() > 1) {
    if (!wide_gradient_.defined()) wide_gradient_ = at::zeros(total.sum.sizes(), total.sum.options().dtype(at::kFloat));
    total.sum = wide_gradient_.zero_();
  }
  for (const auto& batch : batches) total.losses.push_back(add_microbatch(batch, counted, total));
  total.loss = std::accumulate(total.losses.begin(), total.losses.end(), 0.0) / static_cast<double>(counted);
  total.norm = global_norm(total.sum);
  return total;
}

// Backward adds into the parameters' gradient views; several microbatches are summed in fp32, since sums in bf16 lose
// what a later microbatch adds.
double Trainer::add_microbatch(const Batch& batch, int64_t counted, Gradient& total) {
  const at::Tensor& gradient = model_.parameters().gradient();
  gradient.zero_();
  if (batch.counted == 0) return 0.0;
  const auto loss = ops::token_loss(model_.hidden(batch.ids), model_.head(), batch.targets,
                                    {.weight = 1.0 / static_cast<double>(counted), .z_loss = config_.z_loss});
  loss.objective.backward();
  if (!total.sum.is_same(gradient)) total.sum.add_(gradient);
  return loss.sum.item<double>();
}

void Trainer::refuse_non_finite(const std::vector<Batch>& batches, int64_t counted, const Gradient& total) {
  size_t culprit = 0;
  while (culprit < batches.size() && std::isfinite(total.losses[culprit])) ++culprit;
  const bool loss = culprit < batches.size();
  if (!loss) {
    // Every loss was finite, so the gradients are made once more, one microbatch at a time, to see whose is not.
    for (culprit = 0; culprit + 1 < batches.size(); ++culprit) {
      Gradient alone;
      alone.sum = model_.parameters().gradient();
      add_microbatch(batches[culprit], counted, alone);
      if (!std::isfinite(global_norm(alone.sum))) break;
    }
  }
  throw RunError(
      {"train", fmt::format("step {}, microbatch {} of {}", state_.step + 1, culprit + 1, batches.size()),
       loss ? "a finite loss" : "a finite gradient",
       loss ? fmt::format("{}", total.losses[culprit]) : fmt::format("norm {}", total.norm),
       "lower --rate, or look at the data of this step; no update was made and the last checkpoint is whole"});
}

void Trainer::save(const fs::path& folder) const {
  save_model(folder, model_, state_.tokenizer);
  TensorWriter writer;
  optimizer_.save(writer);
  writer.write(folder / "optimizer.safetensors", {{"mhar_version", version()}});
  write_state(folder, state_);
}

void Trainer::restore(const fs::path& folder, TrainState stored) {
  load_parameters(folder, model_);
  optimizer_.load(checkpoint::SafetensorsFile(folder / "optimizer.safetensors"));
  stored.config = config_;
  stored.program = version();
  state_ = std::move(stored);
}

std::vector<std::string> Trainer::unmoved() const {
  std::vector<std::string> names;
  const auto& parameters = model_.parameters();
  for (size_t i = 0; i < parameters.specs().size(); ++i) {
    const auto& name = parameters.specs()[i].name;
    const auto start = state_.initial_hashes.find(name);
    if (start != state_.initial_hashes.end() && start->second == bits_hash(parameters.view(i))) names.push_back(name);
  }
  return names;
}

}  // namespace mhar
