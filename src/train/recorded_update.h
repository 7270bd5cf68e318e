#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "ops/device_graph.h"
#include "train/batches.h"

namespace mhar {

/// Updates of one shape before it is recorded: libraries settle their choices in them.
inline constexpr int64_t kEagerUpdates = 3;

/// The device's work of an update, queued operation by operation at first, then recorded once and replayed whole: the
/// same kernels in the same order, so the same bits, without the host's time between them.
class RecordedUpdate {
 public:
  /// Queues an update on the batches: nothing in it may depend on values the host computes anew each time.
  using Work = std::function<void(const std::vector<Batch>&)>;

  /// Records on a GPU alone, where `wanted`.
  RecordedUpdate(at::Device device, bool wanted) : device_(device), wanted_(wanted && device.is_cuda()) {}

  /// Runs `work` on `batches`, replayed where they have the recorded shape. Batches of another shape run eagerly, and
  /// so does everything where the work could not be recorded. Each of the three is logged once.
  void run(const std::vector<Batch>& batches, const Work& work);
  /// Memory the work uses has moved: what was recorded is void.
  void forget();

  bool recorded() const { return graph_ != nullptr; }

 private:
  void record(const std::vector<Batch>& batches, const Work& work);

  at::Device device_;
  bool wanted_, told_of_shape_ = false;
  std::vector<std::vector<int64_t>> shape_;  // of the batches counted in eager_, then of the recorded ones
  int64_t eager_ = 0;
  std::vector<Batch> inputs_;  // what the recording reads
  std::unique_ptr<ops::DeviceGraph> graph_;
};

}  // namespace mhar
