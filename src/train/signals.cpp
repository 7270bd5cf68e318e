#include "train/signals.h"

#include <csignal>

namespace mhar {
namespace {

volatile std::sig_atomic_t stop_requested = 0;

void on_signal(int number) {
  if (stop_requested) {
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
  stop_requested = 1;
}

}  // namespace

StopOnSignal::StopOnSignal() {
  stop_requested = 0;
  std::signal(SIGTERM, on_signal);
  std::signal(SIGINT, on_signal);
}

StopOnSignal::~StopOnSignal() {
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
}

bool StopOnSignal::requested() { return stop_requested != 0; }

}  // namespace mhar
