#pragma once

namespace mhar {

/// From construction to destruction SIGTERM and SIGINT only set a flag; a second one ends the process at once.
class StopOnSignal {
 public:
  StopOnSignal();
  ~StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;

  static bool requested();
};

}  // namespace mhar
