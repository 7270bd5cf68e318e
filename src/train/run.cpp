#include "train/run.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"
#include "base/version.h"
#include "checkpoint/store.h"
#include "config/options.h"
#include "train/device.h"
#include "train/evaluate.h"
#include "train/metrics.h"
#include "train/resume.h"
#include "train/signals.h"
#include "train/trainer.h"

namespace mhar {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int64_t kUnmovedStep = 100;
constexpr int64_t kRoutingWindows = 16;  // enough for a token average, few enough to cost nothing

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// One training run: the trainer, its data and everything it writes into the run folder.
class Run {
 public:
  Run(const RunConfig& config, const EventSink& sink)
      : config_(config),
        sink_(sink),
        device_(choose_device(config.device)),
        resume_from_(resume_point(config)),
        threads_(make_deterministic(wanted_threads())),
        manifest_(data::read_manifest(config.data)),
        training_(config.data, manifest_, "train", config.model().vocabulary),
        validation_(config.data, manifest_, "validation", config.model().vocabulary),
        trainer_(config, device_, source()),
        store_(fs::path(config.run) / "checkpoints"),
        progress_(config.steps, config.log_every) {
    if (!validates()) {
      spdlog::warn("the data set has no validation text (one document, or no share for it): nothing is validated");
    } else if (data::window_count(validation_.size(), config.sequence) == 0) {
      evaluate_now();  // refuses, before anything is written
    }
    if (resume_from_) {
      // Before the tensors are read: a changed width is refused by the option's name, not by a tensor's shape.
      TrainState stored = read_state(*resume_from_);
      reconcile(stored, config_, manifest_, threads_, device_name());
      trainer_.restore(*resume_from_, std::move(stored));
      spdlog::info("resumed from {} at step {}", resume_from_->string(), state().step);
    } else {
      start_state();
      if (config.resume == "auto") spdlog::info("no checkpoint in {}: starting at step 0", config.run);
    }
  }

  Ending go() {
    prepare_folder();
    const StopOnSignal signals;
    // A run killed before its first checkpoint starts again, and so do its lines.
    Metrics metrics(config_.run, resume_from_ ? state().step : -1);
    metrics_ = &metrics;
    announce();
    if (state().step == 0 && state().validations.empty()) validate();
    first_step_ = state().step;
    first_tokens_ = state().tokens;
    while (trainer_.launched_steps() < config_.steps) {
      const int64_t before = state().step, now = step();
      if (now == config_.steps) break;
      if (now == before || trainer_.under_way()) continue;
      if (now % config_.validate_every == 0) validate();
      const bool stop = StopOnSignal::requested() || now == config_.stop_after;
      if (stop || now % config_.save_every == 0) save();
      if (stop) return stopped();
    }
    return finished();
  }

 private:
  TrainState& state() { return trainer_.state(); }

  int64_t wanted_threads() const {
    return config_.threads == 0 && resume_from_ ? read_state(*resume_from_).threads : config_.threads;
  }

  std::string device_name() const { return device_.is_cuda() ? "cuda" : "cpu"; }

  BatchSource source() {
    const int64_t windows = data::window_count(training_.size(), config_.sequence);
    return sampled_batches(training_, data::Sampler(windows, config_.global_batch, static_cast<uint64_t>(config_.seed)),
                           config_.sequence, config_.microbatch, device_);
  }

  bool validates() const { return validation_.size() > 0; }

  void start_state() {
    state().threads = threads_;
    state().device = device_name();
    adopt_data(state(), manifest_);
  }

  void prepare_folder() {
    const fs::path run = config_.run;
    // What was asked of this start alone must not stick to the next one that reads the file.
    const RunConfig once;
    RunConfig lasting = config_;
    lasting.resume = once.resume;
    lasting.fresh_data = once.fresh_data;
    lasting.stop_after = once.stop_after;
    const std::string config = to_toml(lasting);  // refuses paths that TOML cannot hold, before anything is made
    std::error_code failure;
    fs::create_directories(run, failure);
    if (!failure) {
      lock_.emplace(run);
      if (config_.resume == "never") resume_point(config_);  // again: another process may have been quicker
      fs::create_directories(run / "checkpoints", failure);
    }
    if (failure) {
      throw InputError(
          {"make run folder", run.string(), "a folder that can be written", failure.message(), "choose another --run"});
    }
    remove_leftovers(run);
    store_.clean();
    write_file_atomically(run / "config.toml", config);
    write_file_atomically(run / "data.json", data::to_json(manifest_));
  }

  void emit(const json& object) {
    metrics_->write(object);
    if (sink_) sink_(object);
  }

  void announce() {
    const auto& c = trainer_.model().config();
    const std::string kernel = ops::attention_kernel(device_, trainer_.model().parameters().type(), c.heads, c.kv_heads,
                                                     c.head_dim, config_.sequence);
    const int64_t parameters = trainer_.model().parameters().count();
    const std::string reads = trainer_.model().design().reads(config_.microbatch * config_.sequence,
                                                              trainer_.model().parameters().type(), device_);
    spdlog::info("{}: {} parameters, {} on {}, {} threads, attention kernel {} (head dim {}){}", config_.design,
                 parameters, config_.precision, device_name(), threads_, kernel, c.head_dim,
                 reads.empty() ? "" : ", depth reads " + reads);
    spdlog::info("data {}: {} training tokens, {} validation tokens, tokenizer {}", config_.data, training_.size(),
                 validation_.size(), manifest_.tokenizer.name);
    emit({{"event", "start"},
          {"step", state().step},
          {"version", version()},
          {"device", device_name()},
          {"threads", threads_},
          {"parameters", parameters},
          {"steps", config_.steps},
          {"data_hash", state().data_hash},
          {"attention", fmt::format("{} (head dim {})", kernel, c.head_dim)},
          {"reads", reads}});
  }

  // Launches an update and logs those whose numbers are there. Returns the last of them: with none under way where
  // something has to be done with the model as it is then.
  int64_t step() {
    auto start = Clock::now();
    trainer_.launch();
    const int64_t next = trainer_.launched_steps();
    const bool settle = next == config_.steps || next == config_.stop_after || next == kUnmovedStep ||
                        next % config_.validate_every == 0 || next % config_.save_every == 0;
    while (const auto result = trainer_.result(settle || StopOnSignal::requested())) {
      training_seconds_ += seconds_since(start);
      log(*result);
      start = Clock::now();
    }
    training_seconds_ += seconds_since(start);
    return state().step;
  }

  void log(const StepResult& result) {
    if (result.counted == 0) {
      spdlog::warn("a batch without a counted token: no update, no step counted");
      return;
    }
    const double rate = tokens_per_second();
    const double left = training_seconds_ / static_cast<double>(result.step - first_step_) *
                        static_cast<double>(config_.steps - result.step);
    progress_.step(result.step, result.loss, result.rate, result.gradient_norm, rate, left);
    emit({{"event", "step"},
          {"step", result.step},
          {"loss", result.loss},
          {"rate", result.rate},
          {"gradient_norm", result.gradient_norm},
          {"tokens", state().tokens},
          {"tokens_per_s", rate},
          {"seconds", training_seconds_}});
    if (result.step == kUnmovedStep) report_unmoved();
  }

  // Of the updates alone: validating and saving are not training.
  double tokens_per_second() const {
    return static_cast<double>(trainer_.state().tokens - first_tokens_) / std::max(training_seconds_, 1e-9);
  }

  // A parameter that no gradient reaches is a fault nobody sees in the loss, so it is named once it had time to move.
  void report_unmoved() {
    json expected = json::array(), unexpected = json::array();
    for (const auto& name : trainer_.unmoved()) {
      const auto& specs = trainer_.model().parameters().specs();
      const auto spec = std::find_if(specs.begin(), specs.end(), [&](const auto& s) { return s.name == name; });
      (spec->can_move ? unexpected : expected).push_back(name);
    }
    progress_.finish();
    if (unexpected.empty()) {
      spdlog::info("after {} steps every parameter that can move has moved{}", kUnmovedStep,
                   expected.empty() ? std::string() : fmt::format("; these never can: {}", expected.dump()));
    } else {
      spdlog::warn("after {} steps {} parameters have not moved from their start: {}", kUnmovedStep, unexpected.size(),
                   unexpected.dump());
    }
    emit({{"event", "unmoved"}, {"step", kUnmovedStep}, {"parameters", unexpected}, {"expected", expected}});
    state().initial_hashes.clear();
  }

  Evaluation evaluate_now() {
    return evaluate(trainer_.model(), validation_, config_.validation_windows, config_.sequence, config_.microbatch);
  }

  void validate() {
    if (!validates()) return;
    const Evaluation result = evaluate_now();
    if (!std::isfinite(result.loss)) {
      throw RunError({"validate", fmt::format("step {}", state().step), "a finite loss", fmt::format("{}", result.loss),
                      "lower --rate and start again"});
    }
    auto& tail = state().validations;
    tail.emplace_back(state().step, result.loss);
    if (tail.size() > kValidationTail) tail.erase(tail.begin());
    progress_.finish();
    spdlog::info("validation at step {}: loss {:.4f} over {} tokens", state().step, result.loss, result.tokens);
    const auto& split = manifest_.validation;
    emit({{"event", "validation"},
          {"step", state().step},
          {"loss", result.loss},
          {"tokens", result.tokens},
          {"bits_per_byte", bits_per_byte(result.loss * split.tokens, split.bytes)}});
  }

  void save() {
    last_checkpoint_ = store_.save(state().step, [&](const fs::path& folder) { trainer_.save(folder); });
    // After going back to an earlier checkpoint the later ones still stand, and would push out the one just saved.
    if (store_.steps().back() == state().step) store_.prune(config_.keep_last, config_.keep_every);
    progress_.finish();
    spdlog::info("saved {}", last_checkpoint_.string());
  }

  Ending stopped() {
    spdlog::info("stopped at step {} of {}; go on with --resume auto", state().step, config_.steps);
    emit({{"event", "stopped"}, {"step", state().step}, {"checkpoint", last_checkpoint_.string()}});
    return Ending::stopped;
  }

  Ending finished() {
    const auto& tail = state().validations;
    if (tail.empty() || tail.back().first != state().step) validate();
    if (!fs::exists(store_.path(state().step)) || first_step_ != state().step) save();
    last_checkpoint_ = store_.path(state().step);
    const std::string map = routing_map(trainer_.model(), validates() ? validation_ : training_, kRoutingWindows,
                                        config_.sequence, config_.microbatch, state().step);
    if (!map.empty()) write_file_atomically(fs::path(config_.run) / "routing.json", map);
    json done = {{"event", "done"},
                 {"step", state().step},
                 {"train_loss", state().train_loss},
                 {"validation_loss", tail.empty() ? json() : json(tail.back().second)},
                 {"validation_tail_mean", tail.empty() ? json() : json(state().validation_tail_mean())},
                 {"tokens", state().tokens},
                 {"tokens_per_s", tokens_per_second()},
                 {"checkpoint", last_checkpoint_.string()}};
    if (const int64_t peak = peak_bytes(device_)) done["peak_bytes"] = peak;
    // A finished run that is started again has nothing to add to its own record.
    if (metrics_->finished()) {
      if (sink_) sink_(done);
    } else {
      emit(done);
    }
    if (!tail.empty()) {
      spdlog::info("validation loss {:.4f}, mean of the last {} validations {:.4f}", tail.back().second, tail.size(),
                   state().validation_tail_mean());
    }
    spdlog::info("done at {:.0f} tokens/s, checkpoint {}", tokens_per_second(), last_checkpoint_.string());
    return Ending::done;
  }

  RunConfig config_;
  EventSink sink_;
  at::Device device_;
  std::optional<fs::path> resume_from_;
  int64_t threads_;
  data::Manifest manifest_;
  data::TokenStream training_, validation_;
  Trainer trainer_;
  checkpoint::Store store_;
  Progress progress_;
  Metrics* metrics_ = nullptr;
  std::optional<FolderLock> lock_;
  double training_seconds_ = 0;
  int64_t first_step_ = 0, first_tokens_ = 0;
  fs::path last_checkpoint_;
};

}  // namespace

Ending run_training(const RunConfig& config, const EventSink& sink) { return Run(config, sink).go(); }

}  // namespace mhar
