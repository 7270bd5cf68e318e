#pragma once
#include <unistd.h>

namespace mhar {

/// While it lives, the process has no more rights than any user, also when root runs the tests. works() is false where
/// the system refuses the change.
class Unprivileged {
 public:
  Unprivileged() : before_(::geteuid()), works_(before_ != 0 || ::seteuid(65534) == 0) {}
  ~Unprivileged() {
    if (before_ == 0 && works_ && ::seteuid(before_) != 0) ::_exit(1);
  }
  Unprivileged(const Unprivileged&) = delete;
  Unprivileged& operator=(const Unprivileged&) = delete;
  bool works() const { return works_; }

 private:
  uid_t before_;
  bool works_;
};

}  // namespace mhar
