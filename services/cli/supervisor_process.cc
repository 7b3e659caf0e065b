#include "services/cli/supervisor_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "checkpoint/checkpoint.h"
#include "services/coordinator/directory_lock.h"

namespace penstock {
namespace {

using SteadyClock = std::chrono::steady_clock;

sigset_t ChildSignal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  return set;
}

// Runs in the new process between fork and exec. `failure`: takes errno; closed by exec.
[[noreturn]] void BecomeWorker(const std::vector<std::string>& arguments,
                               const std::vector<std::string>& environment, int log, int failure,
                               pid_t supervisor) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != supervisor) _exit(1);  // it died before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  for (const std::string& variable : environment) {
    const std::pair<std::string, std::string> pair =
        absl::StrSplit(variable, absl::MaxSplits('=', 1));
    setenv(pair.first.c_str(), pair.second.c_str(), 1);
  }
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  const int error = errno;
  (void)!write(failure, &error, sizeof error);
  _exit(127);
}

// The supervisor's state. One thread, one event loop.
class SupervisorProcess {
 public:
  SupervisorProcess(int socket, std::vector<int> logs) : socket_(socket), logs_(std::move(logs)) {}

  void Run();

 private:
  void Prepare();
  void HandleMessage();
  void Spawn(const std::vector<std::string>& fields);
  void Reap();
  void BeginStop(int grace_ms);
  void KillAll(int signal) const;
  int PollTimeoutMs() const;
  void Sweep() const;

  const int socket_;
  const std::vector<int> logs_;
  int signals_ = -1;         // SIGCHLD
  int alive_[2] = {-1, -1};  // workers hold [0]; its end-of-file tells them that we are gone
  std::map<pid_t, int> workers_;
  std::vector<std::string> sweeps_;  // checkpoint directories
  std::vector<std::string> removals_;
  bool stopping_ = false;
  SteadyClock::time_point kill_at_;
};

void SupervisorProcess::Prepare() {
  setsid();
  prctl(PR_SET_NAME, "penstock-guard");
  // Whatever the command line holds open must close when it dies, so we keep nothing of it.
  std::vector<int> kept = logs_;
  kept.push_back(socket_);
  std::sort(kept.begin(), kept.end());
  unsigned int first = 0;
  for (const int fd : kept) {
    if (static_cast<unsigned int>(fd) > first) close_range(first, fd - 1, 0);
    first = fd + 1;
  }
  close_range(first, ~0U, 0);
  for (int i = 0; i < 3; ++i) open("/dev/null", O_RDWR);  // 0, 1 and 2

  const sigset_t child = ChildSignal();
  sigprocmask(SIG_SETMASK, &child, nullptr);
  signals_ = signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
  if (pipe(alive_) == 0) fcntl(alive_[1], F_SETFD, FD_CLOEXEC);
}

void SupervisorProcess::Run() {
  Prepare();
  while (!stopping_ || !workers_.empty()) {
    pollfd ready[2] = {{signals_, POLLIN, 0}, {stopping_ ? -1 : socket_, POLLIN, 0}};
    poll(ready, 2, PollTimeoutMs());
    if (ready[0].revents != 0) Reap();
    if (ready[1].revents != 0) HandleMessage();
    if (stopping_ && SteadyClock::now() >= kill_at_) KillAll(SIGKILL);
  }
  Sweep();
}

void SupervisorProcess::HandleMessage() {
  const absl::StatusOr<std::vector<std::string>> fields = ReceiveFields(socket_);
  if (!fields.ok()) {
    BeginStop(0);
  } else if ((*fields)[0] == "spawn") {
    Spawn(*fields);
  } else if ((*fields)[0] == "sweep") {
    sweeps_.push_back((*fields)[1]);
  } else if ((*fields)[0] == "remove") {
    removals_.push_back((*fields)[1]);
  } else {
    int grace_ms = 0;
    (void)absl::SimpleAtoi((*fields)[1], &grace_ms);
    BeginStop(grace_ms);
  }
}

void SupervisorProcess::Spawn(const std::vector<std::string>& fields) {
  int worker = 0;
  int count = 0;
  (void)absl::SimpleAtoi(fields[1], &worker);
  (void)absl::SimpleAtoi(fields[2], &count);
  std::vector<std::string> arguments(fields.begin() + 3, fields.begin() + 3 + count);
  const std::vector<std::string> environment(fields.begin() + 3 + count, fields.end());
  for (std::string& argument : arguments) {
    argument = absl::StrReplaceAll(argument, {{"{parent-fd}", absl::StrCat(alive_[0])}});
  }
  int failure[2];
  if (pipe2(failure, O_CLOEXEC) != 0) {
    (void)SendFields(socket_, {"refused", absl::StrCat(errno)});
    return;
  }
  const pid_t self = getpid();
  const pid_t pid = fork();
  if (pid == 0) BecomeWorker(arguments, environment, logs_[worker], failure[1], self);
  int error = pid < 0 ? errno : 0;
  close(failure[1]);
  if (pid > 0 && read(failure[0], &error, sizeof error) > 0) waitpid(pid, nullptr, 0);
  close(failure[0]);
  if (error != 0) {
    (void)SendFields(socket_, {"refused", absl::StrCat(error)});
    return;
  }
  workers_[pid] = worker;
  (void)SendFields(socket_, {"spawned", absl::StrCat(pid)});
}

void SupervisorProcess::Reap() {
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof info) == sizeof info) {
  }
  int status = 0;
  for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG)) {
    const auto it = workers_.find(pid);
    if (it == workers_.end()) continue;
    (void)SendFields(socket_, {"exited", absl::StrCat(it->second), absl::StrCat(status)});
    workers_.erase(it);
  }
}

void SupervisorProcess::BeginStop(int grace_ms) {
  stopping_ = true;
  kill_at_ = SteadyClock::now() + std::chrono::milliseconds(grace_ms);
  if (grace_ms > 0) KillAll(SIGTERM);
}

void SupervisorProcess::KillAll(int signal) const {
  for (const auto& [pid, worker] : workers_) kill(pid, signal);
}

int SupervisorProcess::PollTimeoutMs() const {
  if (!stopping_) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(kill_at_ - SteadyClock::now());
  // After SIGKILL only SIGCHLD is awaited; looking again each second costs nothing.
  return static_cast<int>(std::clamp<int64_t>(left.count(), left.count() > 0 ? 1 : 1000, 60'000));
}

void SupervisorProcess::Sweep() const {
  for (const std::string& directory : sweeps_) {
    // If another process has taken the directory since, it has swept it, and writes there now.
    const auto lock = DirectoryLock::Take(directory);
    if (absl::IsFailedPrecondition(lock.status())) continue;
    SweepStaging(RealFiles(), directory).IgnoreError();  // no process is left to report it to
  }
  for (const std::string& directory : removals_) RealFiles().RemoveAll(directory).IgnoreError();
}

}  // namespace

absl::Status SendFields(int socket, const std::vector<std::string>& fields) {
  const std::string message = absl::StrJoin(fields, absl::string_view("\0", 1));
  if (message.size() > kSupervisorMessageBytesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a message to the supervisor has ", message.size(), " bytes, at most ",
                     kSupervisorMessageBytesMax, " are allowed: shorten the arguments"));
  }
  if (send(socket, message.data(), message.size(), MSG_NOSIGNAL) < 0) {
    return absl::UnavailableError("the supervisor is gone");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> ReceiveFields(int socket) {
  std::string message(kSupervisorMessageBytesMax, '\0');
  ssize_t size = 0;
  do {
    size = recv(socket, message.data(), message.size(), 0);
  } while (size < 0 && errno == EINTR);
  if (size <= 0) return absl::UnavailableError("the supervisor is gone");
  message.resize(static_cast<size_t>(size));
  return std::vector<std::string>(absl::StrSplit(message, '\0'));
}

void RunSupervisorProcess(int socket, const std::vector<int>& logs) {
  SupervisorProcess(socket, logs).Run();
  _exit(0);
}

}  // namespace penstock
