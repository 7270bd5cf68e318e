#include "ops/beside.h"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/engine.h>

#include <deque>

namespace mhar::ops {
namespace {

// Each holds the inputs of a GEMM, and with two of them the stream never runs dry.
constexpr size_t kUnderWay = 2;

class Beside {
 public:
  explicit Beside(at::Device device)
      : device_(device), guard_(device.type()), stream_(guard_.getStreamFromGlobalPool(device)) {}

  at::Device device() const { return device_; }

  void run(std::vector<at::Tensor> used, const std::function<void()>& work) {
    while (pieces_.size() >= kUnderWay) wait_for_oldest();
    c10::Event inputs(device_.type());
    inputs.record(guard_.getStream(device_));
    inputs.block(stream_);
    {
      const c10::StreamGuard aside(stream_);
      work();
    }
    pieces_.push_back({c10::Event(device_.type()), std::move(used)});
    pieces_.back().done.record(stream_);
  }

  /// Whether this is the first work of a backward pass, which autograd numbers.
  bool begins(int pass) { return std::exchange(pass_, pass) != pass; }
  /// Whether the pass before broke off.
  bool left_over() const { return !pieces_.empty(); }
  void settle() const { guard_.synchronizeStream(stream_); }
  void end() {
    while (!pieces_.empty()) wait_for_oldest();
  }

 private:
  struct Piece {
    c10::Event done;
    std::vector<at::Tensor> used;
  };

  // The current stream does, so what is queued on it from now on may take the memory.
  void wait_for_oldest() {
    pieces_.front().done.block(guard_.getStream(device_));
    pieces_.pop_front();
  }

  at::Device device_;
  c10::impl::VirtualGuardImpl guard_;
  c10::Stream stream_;
  std::deque<Piece> pieces_;
  int pass_ = -1;
};

// What is left on the stream may belong to a recording that was given up; nothing can wait for that.
std::shared_ptr<Beside> fresh_after_failure(const Beside& failed) {
  try {
    failed.settle();
  } catch (const std::exception&) {
  }
  auto fresh = std::make_shared<Beside>(failed.device());
  fresh->begins(torch::autograd::get_current_graph_task_id());
  return fresh;
}

}  // namespace

void run_beside(at::Device device, std::vector<at::Tensor> used, const std::function<void()>& work) {
  if (!device.is_cuda()) return work();
  // Autograd has a thread of its own for each device.
  thread_local std::shared_ptr<Beside> mine;
  if (!mine || mine->device() != device) mine = std::make_shared<Beside>(device);
  if (mine->begins(torch::autograd::get_current_graph_task_id())) {
    if (mine->left_over()) mine = fresh_after_failure(*mine);
    torch::autograd::Engine::get_default_engine().queue_callback([beside = mine] { beside->end(); });
  }
  mine->run(std::move(used), work);
}

}  // namespace mhar::ops
