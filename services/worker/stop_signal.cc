#include "services/worker/stop_signal.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

#include "absl/time/clock.h"
#include "base/check.h"

namespace penstock {

StopSignal::StopSignal(int parent_fd) : parent_fd_(parent_fd) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  signal_fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  event_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  PENSTOCK_CHECK(signal_fd_ >= 0 && event_fd_ >= 0);
}

StopSignal::~StopSignal() {
  close(signal_fd_);
  close(event_fd_);
}

StopReason StopSignal::Await() { return AwaitFor(absl::InfiniteDuration()); }

StopReason StopSignal::AwaitFor(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (true) {
    pollfd polled[] = {{signal_fd_, POLLIN, 0}, {event_fd_, POLLIN, 0}, {parent_fd_, POLLIN, 0}};
    const absl::Duration left = deadline - absl::Now();
    if (left <= absl::ZeroDuration()) return {};
    const int wait_ms =
        left > absl::Hours(1) ? 3'600'000 : static_cast<int>(absl::ToInt64Milliseconds(left)) + 1;
    if (poll(polled, parent_fd_ >= 0 ? 3 : 2, wait_ms) <= 0) continue;
    signalfd_siginfo info = {};
    if (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) {
      return {.text = info.ssi_signo == SIGINT ? "SIGINT" : "SIGTERM", .by_signal = true};
    }
    uint64_t count = 0;
    if (read(event_fd_, &count, sizeof(count)) == sizeof(count)) {
      MutexLock lock(mutex_);
      return {.text = reason_};
    }
    // The parent never writes, so whatever happens on the pipe means that it has gone.
    if (parent_fd_ >= 0 && polled[2].revents != 0) return {.text = "the parent process is gone"};
  }
}

void StopSignal::Trigger(const std::string& reason) {
  MutexLock lock(mutex_);
  reason_ = reason;
  const uint64_t one = 1;
  PENSTOCK_CHECK(write(event_fd_, &one, sizeof(one)) == sizeof(one));
}

}  // namespace penstock
