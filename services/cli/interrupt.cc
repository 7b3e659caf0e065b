#include "services/cli/interrupt.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace penstock {
namespace {

sigset_t Signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  return set;
}

}  // namespace

absl::StatusOr<Interrupt> Interrupt::Create() {
  const sigset_t set = Signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  const int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "signalfd");
  return Interrupt(fd);
}

Interrupt::Interrupt(Interrupt&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), count_(other.count_) {}

Interrupt::~Interrupt() {
  if (fd_ < 0) return;
  Count();  // take what is pending, so that it does not strike now
  close(fd_);
  const sigset_t set = Signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

int Interrupt::Count() {
  signalfd_siginfo info;
  while (read(fd_, &info, sizeof info) == sizeof info) ++count_;
  return count_;
}

}  // namespace penstock
