#include "services/cli/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"
#include "services/cli/supervisor_process.h"

namespace penstock {
namespace {

constexpr absl::Duration kReplyTimeout = absl::Seconds(10);

int ToInt(const std::string& text) {
  int value = 0;
  PENSTOCK_CHECK(absl::SimpleAtoi(text, &value));  // only our own process writes here
  return value;
}

absl::StatusOr<std::vector<int>> OpenLogs(int workers) {
  std::vector<int> logs;
  for (int worker = 0; worker < workers; ++worker) {
    const int fd = memfd_create("penstock-worker-log", MFD_CLOEXEC);
    if (fd < 0) {
      const absl::Status status = absl::ErrnoToStatus(errno, "no memory file for a worker's log");
      for (const int open : logs) close(open);
      return status;
    }
    logs.push_back(fd);
  }
  return logs;
}

}  // namespace

std::string WorkerExit::ToString() const {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return absl::StrCat("was killed by signal ", signal, " (", strsignal(signal), ")");
  }
  return absl::StrCat("exited with code ", WEXITSTATUS(wait_status));
}

absl::StatusOr<std::unique_ptr<Supervisor>> Supervisor::Fork(int workers_max) {
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<int> logs, OpenLogs(workers_max));
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, "no socket for the supervisor");
  }
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "cannot fork the supervisor");
  if (pid == 0) {
    close(ends[0]);
    RunSupervisorProcess(ends[1], logs);
  }
  close(ends[1]);
  return std::unique_ptr<Supervisor>(new Supervisor(pid, ends[0], std::move(logs)));
}

Supervisor::~Supervisor() {
  Stop(absl::ZeroDuration());
  for (const int log : logs_) close(log);
}

absl::StatusOr<pid_t> Supervisor::Spawn(int worker, const std::vector<std::string>& arguments,
                                        const std::vector<std::string>& environment) {
  std::vector<std::string> fields = {"spawn", absl::StrCat(worker), absl::StrCat(arguments.size())};
  fields.insert(fields.end(), arguments.begin(), arguments.end());
  fields.insert(fields.end(), environment.begin(), environment.end());
  PENSTOCK_RETURN_IF_ERROR(Send(fields));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> reply, ReceiveReply(kReplyTimeout));
  if (reply[0] == "refused") {
    return absl::ErrnoToStatus(ToInt(reply[1]), absl::StrCat("cannot start ", arguments[0]));
  }
  return ToInt(reply[1]);
}

absl::Status Supervisor::SweepAtEnd(const std::string& directory) {
  return Send({"sweep", directory});
}

absl::Status Supervisor::RemoveAtEnd(const std::string& directory) {
  return Send({"remove", directory});
}

absl::StatusOr<std::vector<WorkerExit>> Supervisor::TakeExits() {
  for (;;) {
    const auto message = Receive(absl::ZeroDuration());
    if (absl::IsDeadlineExceeded(message.status())) break;
    PENSTOCK_RETURN_IF_ERROR(message.status());
    exits_.push_back({ToInt((*message)[1]), ToInt((*message)[2])});
  }
  std::vector<WorkerExit> exits(exits_.begin(), exits_.end());
  exits_.clear();
  return exits;
}

std::string Supervisor::LogTail(int worker, int64_t size_bytes_max) const {
  const int log = logs_[worker];
  struct stat info = {};
  if (fstat(log, &info) != 0) return "";
  const int64_t first = std::max<int64_t>(0, info.st_size - size_bytes_max);
  std::string text(static_cast<size_t>(info.st_size - first), '\0');
  const ssize_t size = pread(log, text.data(), text.size(), first);
  text.resize(size < 0 ? 0 : static_cast<size_t>(size));
  if (first > 0) text.erase(0, text.find('\n') + 1);  // whole lines only
  return text;
}

void Supervisor::Stop(absl::Duration grace) {
  if (socket_ < 0) return;
  // If the message does not get through, closing the socket says the same without grace.
  if (grace > absl::ZeroDuration()) {
    (void)Send({"stop", absl::StrCat(absl::ToInt64Milliseconds(grace))});
    shutdown(socket_, SHUT_WR);
    while (Receive(grace + kReplyTimeout).ok()) {
    }
  }
  close(std::exchange(socket_, -1));
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

absl::Status Supervisor::Send(const std::vector<std::string>& fields) {
  if (socket_ < 0) return absl::UnavailableError("the supervisor has been stopped");
  return SendFields(socket_, fields);
}

absl::StatusOr<std::vector<std::string>> Supervisor::ReceiveReply(absl::Duration timeout) {
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(std::vector<std::string> fields, Receive(timeout));
    if (fields[0] != "exited") return fields;
    exits_.push_back({ToInt(fields[1]), ToInt(fields[2])});
  }
}

absl::StatusOr<std::vector<std::string>> Supervisor::Receive(absl::Duration timeout) {
  if (socket_ < 0) return absl::UnavailableError("the supervisor has been stopped");
  pollfd readable = {socket_, POLLIN, 0};
  const int count = poll(&readable, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  if (count == 0) return absl::DeadlineExceededError("no answer from the supervisor");
  if (count < 0) return absl::ErrnoToStatus(errno, "poll");
  return ReceiveFields(socket_);
}

}  // namespace penstock
