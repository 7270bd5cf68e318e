#include "train/trainer.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/version.h"
#include "ops/clip.h"
#include "ops/token_loss.h"
#include "train/device.h"
#include "train/model_folder.h"

namespace mhar {
namespace {

constexpr size_t kUnderWay = 2;

// An optimizer that copies parameters (rounding = master) has to see their starting values.
Decoder initialised(const RunConfig& config, at::Device device) {
  Decoder model(config.model(), precision_type(config.precision), device);
  model.parameters().initialise(static_cast<uint64_t>(config.seed));
  return model;
}

std::vector<at::Tensor> values_of(const std::vector<GradientPiece>& pieces) {
  std::vector<at::Tensor> values;
  values.reserve(pieces.size());
  for (const auto& piece : pieces) values.push_back(piece.values);
  return values;
}

}  // namespace

double global_norm(const std::vector<at::Tensor>& pieces) {
  const at::Tensor report = ops::make_clip_report(0, pieces.at(0).device());
  ops::clip(pieces, 1.0, report);
  return ops::read_clip(report.cpu()).norm;
}

Trainer::Trainer(const RunConfig& config, at::Device device, BatchSource batches)
    : config_(config),
      model_(initialised(config, device)),
      optimizer_(model_.parameters(), config),
      schedule_{config.steps, config.warm_up, config.rate, config.rate_floor},
      batches_(std::move(batches)),
      recorded_(device, config.cuda_graph),
      loss_scale_(at::ones({}, at::TensorOptions(device).dtype(at::kFloat))),
      report_(ops::make_clip_report(config.accumulation(), device)) {
  state_.config = config;
  state_.program = version();
  const auto& parameters = model_.parameters();
  for (size_t i = 0; i < parameters.specs().size(); ++i) {
    state_.initial_hashes[parameters.specs()[i].name] = bits_hash(parameters.view(i));
  }
}

void Trainer::launch() {
  Launched next;
  next.batches = batches_(state_.next_batch + static_cast<int64_t>(launched_.size()));
  next.result.step = launched_steps() + 1;
  for (const auto& batch : next.batches) next.result.counted += batch.counted;
  if (next.result.counted > 0) {
    next.result.rate = schedule_.rate(next.result.step);
    prepare(next.result, next.batches.size());
    recorded_.run(next.batches, [this](const std::vector<Batch>& batches) { update(batches); });
    next.report.emplace(report_of(next.batches.size()));
  }
  launched_.push_back(std::move(next));
  if (launched_.size() >= kUnderWay && launched_.front().report) launched_.front().report->get();
}

std::optional<StepResult> Trainer::result(bool wait) {
  if (launched_.empty()) return std::nullopt;
  if (const auto& report = launched_.front().report; report && !wait && !report->there()) return std::nullopt;
  const Launched first = std::move(launched_.front());
  launched_.pop_front();
  StepResult result = first.result;
  if (first.report) {
    const auto clip = ops::read_clip(first.report->get());
    if (clip.stopped) refuse_non_finite(first);
    const at::Tensor losses = ops::reported_losses(first.report->get()).to(at::kDouble);
    result.loss = losses.sum().item<double>() / static_cast<double>(result.counted);
    result.gradient_norm = clip.norm;
    state_.step = result.step;
    state_.train_loss = result.loss;
    state_.tokens += result.counted;
  }
  ++state_.next_batch;
  return result;
}

StepResult Trainer::step() {
  launch();
  return result(/*wait=*/true).value();
}

int64_t Trainer::launched_steps() const {
  return std::accumulate(launched_.begin(), launched_.end(), state_.step,
                         [](int64_t steps, const Launched& one) { return steps + (one.result.counted > 0); });
}

// What the device reads and only the host knows.
void Trainer::prepare(const StepResult& step, size_t microbatches) {
  optimizer_.prepare(step.step, step.rate);
  loss_scale_.fill_(1.0 / static_cast<double>(step.counted));
  if (report_.numel() >= ops::kClipWords + static_cast<int64_t>(microbatches)) return;
  const at::Tensor before = report_;
  report_ = ops::make_clip_report(static_cast<int64_t>(microbatches), before.device());
  report_.slice(0, 0, before.numel()).copy_(before);
  recorded_.forget();
}

at::Tensor Trainer::report_of(size_t microbatches) const {
  return report_.slice(0, 0, ops::kClipWords + static_cast<int64_t>(microbatches));
}

void Trainer::update(const std::vector<Batch>& batches) {
  model_.parameters().release_gradient();  // a recording must not see memory that others will have by its replay
  const at::Tensor report = report_of(batches.size());
  const std::vector<GradientPiece> gradient = accumulate(batches);
  ops::clip(values_of(gradient), config_.clip, report);
  optimizer_.update(gradient, report);
  model_.parameters().release_gradient();
}

// Several microbatches are summed in fp32, since sums in bf16 lose what a later microbatch adds.
std::vector<GradientPiece> Trainer::accumulate(const std::vector<Batch>& batches) {
  const at::Tensor losses = ops::reported_losses(report_);
  if (batches.size() == 1) return add_microbatch(batches[0], losses[0]);
  const auto& flat = model_.parameters().flat();
  if (!wide_gradient_.defined()) wide_gradient_ = at::empty(flat.sizes(), flat.options().dtype(at::kFloat));
  for (size_t i = 0; i < batches.size(); ++i) {
    for (const auto& piece : add_microbatch(batches[i], losses[static_cast<int64_t>(i)])) {
      at::Tensor sum = wide_gradient_.narrow(0, piece.begin, piece.values.numel());
      i == 0 ? sum.copy_(piece.values) : sum.add_(piece.values);
    }
    model_.parameters().release_gradient();
  }
  return {{0, wide_gradient_}};
}

// The gradient of one microbatch; the sum of its losses goes to `loss`.
const std::vector<GradientPiece>& Trainer::add_microbatch(const Batch& batch, const at::Tensor& loss) {
  model_.parameters().clear_gradient();
  if (batch.counted == 0) {
    loss.zero_();
    return model_.parameters().gradient();
  }
  const ops::LinearWeight head = model_.head();
  const auto result = ops::token_loss(
      model_.hidden(batch.ids), head.value, batch.targets,
      {.z_loss = config_.z_loss, .starts_backward = true, .scale = loss_scale_, .head_place = head.place});
  loss.copy_(result.sum);
  result.objective.backward();
  return model_.parameters().gradient();
}

void Trainer::refuse_non_finite(const Launched& failed) {
  launched_.clear();  // the device skipped what came after
  const auto& batches = failed.batches;
  const at::Tensor losses = ops::reported_losses(failed.report->get());
  const auto loss_of = [&](size_t i) { return losses[static_cast<int64_t>(i)].item<double>(); };
  size_t culprit = 0;
  while (culprit < batches.size() && std::isfinite(loss_of(culprit))) ++culprit;
  const bool loss = culprit < batches.size();
  if (!loss) {
    // Every loss was finite, so the gradients are made once more, one microbatch at a time, to see whose is not.
    prepare(failed.result, batches.size());
    for (culprit = 0; culprit + 1 < batches.size(); ++culprit) {
      const auto& gradient = add_microbatch(batches[culprit], ops::reported_losses(report_)[0]);
      if (!std::isfinite(global_norm(values_of(gradient)))) break;
    }
  }
  throw RunError(
      {"train", fmt::format("step {}, microbatch {} of {}", failed.result.step, culprit + 1, batches.size()),
       loss ? "a finite loss" : "a finite gradient",
       loss ? fmt::format("{}", loss_of(culprit)) : fmt::format("norm {}", ops::read_clip(failed.report->get()).norm),
       "lower --rate, or look at the data of this step; no update was made and the last checkpoint is whole"});
}

void Trainer::save(const fs::path& folder) const {
  if (under_way()) {
    throw std::logic_error(describe({"save", folder.string(), "no update under way", std::to_string(launched_.size()),
                                     "take their results first"}));
  }
  save_model(folder, model_, state_.tokenizer);
  TensorWriter writer;
  optimizer_.save(writer);
  writer.write(folder / "optimizer.safetensors", {{"mhar_version", version()}});
  write_state(folder, state_);
}

void Trainer::restore(const fs::path& folder, TrainState stored) {
  load_parameters(folder, model_);
  optimizer_.load(checkpoint::SafetensorsFile(folder / "optimizer.safetensors"));
  launched_.clear();
  report_.zero_();
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
