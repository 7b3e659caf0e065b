// Interrupt: Ctrl-C and friends as something to look at instead of something that happens.
//
// While it lives, SIGINT, SIGTERM and SIGHUP are blocked in the thread that made it and in all threads
// started after, and are counted here. Make it before any other thread.
//
// Thread-compatible.
#pragma once

#include "absl/status/statusor.h"

namespace penstock {

class Interrupt {
 public:
  static absl::StatusOr<Interrupt> Create();
  Interrupt(Interrupt&& other) noexcept;
  ~Interrupt();

  // Returns how many such signals have come since it was made.
  int Count();

 private:
  explicit Interrupt(int fd) : fd_(fd) {}

  int fd_;  // signalfd
  int count_ = 0;
};

}  // namespace penstock
