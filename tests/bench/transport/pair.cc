#include "tests/bench/transport/pair.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/check.h"

namespace penstock {
namespace {

double Seconds(const timeval& time) { return time.tv_sec + 1e-6 * time.tv_usec; }

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

double WallSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Times {
  double seconds = 0;
  double cpu_seconds = 0;
};

// A pipe that carries single values from one process to another.
class ValuePipe {
 public:
  ValuePipe() { PENSTOCK_CHECK(pipe(fds_) == 0); }
  ~ValuePipe() {
    close(fds_[0]);
    close(fds_[1]);
  }
  template <typename T>
  void Put(const T& value) {
    PENSTOCK_CHECK(write(fds_[1], &value, sizeof(value)) == sizeof(value));
  }
  template <typename T>
  T Take() {
    T value;
    // The other end is also open here, so a process that died would be waited for for ever.
    alarm(120);
    PENSTOCK_CHECK(read(fds_[0], &value, sizeof(value)) == sizeof(value));
    alarm(0);
    return value;
  }

 private:
  int fds_[2];
};

// Runs `body` in a process, and session, of its own.
pid_t Spawn(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t pid = fork();
  PENSTOCK_CHECK(pid >= 0);
  if (pid > 0) return pid;
  setsid();
  alarm(120);
  body();
  _exit(0);
}

void AwaitExit(pid_t pid) {
  int status = 0;
  waitpid(pid, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::fprintf(stderr, "a process of the benchmark failed\n");
    std::exit(1);
  }
}

}  // namespace

void StopWatch::Start() {
  start_cpu_seconds_ = CpuSeconds();
  start_seconds_ = WallSeconds();
}

void StopWatch::Stop() {
  if (seconds_ == 0) seconds_ = WallSeconds() - start_seconds_;
  cpu_seconds_ = CpuSeconds() - start_cpu_seconds_;
}

Measurement Measure(Mover& mover, const Load& load) {
  ValuePipe port, received, finish, sent;
  const pid_t receiver = Spawn([&] {
    StopWatch watch(load);
    mover.Receive(
        load, [&](int listening) { port.Put(listening); }, watch);
    received.Put(Times{watch.seconds(), watch.cpu_seconds()});
  });
  const int listening = port.Take<int>();
  const pid_t sender = Spawn([&] {
    StopWatch watch(load);
    mover.Send(load, listening, watch, [&] { finish.Take<char>(); });
    watch.Stop();
    sent.Put(Times{watch.seconds(), watch.cpu_seconds()});
  });
  const Times at_receiver = received.Take<Times>();
  finish.Put('f');
  const Times at_sender = sent.Take<Times>();
  AwaitExit(receiver);
  AwaitExit(sender);
  const double bytes = static_cast<double>(load.messages * load.message_bytes);
  return {bytes / at_receiver.seconds,
          (at_receiver.cpu_seconds + at_sender.cpu_seconds) / bytes * 1e9};
}

}  // namespace penstock
