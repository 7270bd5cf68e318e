#include "train/recorded_update.h"

#include <spdlog/spdlog.h>

namespace mhar {
namespace {

// A microbatch without targets does other work, so whether there are any belongs to the shape.
std::vector<std::vector<int64_t>> shape_of(const std::vector<Batch>& batches) {
  std::vector<std::vector<int64_t>> shape;
  for (const Batch& batch : batches) {
    shape.push_back(batch.ids.sizes().vec());
    shape.back().push_back(batch.counted > 0);
  }
  return shape;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

void RecordedUpdate::run(const std::vector<Batch>& batches, const Work& work) {
  if (!wanted_) return work(batches);
  const auto shape = shape_of(batches);
  if (!graph_ && shape == shape_ && eager_ >= kEagerUpdates) record(batches, work);
  if (graph_ && shape == shape_) {
    for (size_t i = 0; i < batches.size(); ++i) {
      inputs_[i].ids.copy_(batches[i].ids, /*non_blocking=*/true);
      inputs_[i].targets.copy_(batches[i].targets, /*non_blocking=*/true);
    }
    return graph_->replay();
  }
  if (graph_ && !told_of_shape_) {
    told_of_shape_ = true;
    spdlog::info("an update of another shape than the recorded one: it runs without the CUDA graph");
  }
  work(batches);
  if (graph_) return;
  eager_ = shape == shape_ ? eager_ + 1 : 1;
  shape_ = shape;
}

void RecordedUpdate::forget() {
  graph_.reset();
  inputs_.clear();
  eager_ = 0;
}

void RecordedUpdate::record(const std::vector<Batch>& batches, const Work& work) {
  for (const Batch& batch : batches) {
    inputs_.push_back({at::empty_like(batch.ids), at::empty_like(batch.targets), batch.counted});
  }
  try {
    graph_ = ops::record(device_, [&] { work(inputs_); });
  } catch (const std::exception& fault) {
    wanted_ = false;
    forget();
    spdlog::warn("updates run without a CUDA graph: {}", first_line(fault.what()));
    return;
  }
  spdlog::info("updates are one CUDA graph from now on");
}

}  // namespace mhar
