#include "services/coordinator/audit_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/fault_points.h"
#include "base/file_tree.h"
#include "base/mutex.h"
#include "base/status.h"
#include "base/utf8.h"
#include "services/rpc/completion_poller.h"

namespace penstock {
namespace {

std::string CutText(absl::string_view text) { return CleanUtf8(text, AuditLog::kFieldBytesMax); }

std::string OutcomeOf(const AuditEntry& entry) {
  if (!entry.outcome.has_value()) return "requested";
  if (entry.outcome->ok()) return "OK";
  return CutText(absl::StrCat(absl::StatusCodeToString(entry.outcome->code()), ": ",
                              entry.outcome->message()));
}

// Returns whether the last write to the file ends in the middle of a line.
bool EndsTorn(int file) {
  struct stat info = {};
  char last = '\n';
  return fstat(file, &info) == 0 && S_ISREG(info.st_mode) && info.st_size > 0 &&
         pread(file, &last, 1, info.st_size - 1) == 1 && last != '\n';
}

// A JSON object and the end of its line.
std::string LineOf(const AuditEntry& entry, const CallInfo& call, absl::Time now) {
  nlohmann::ordered_json line = {
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", now, absl::UTCTimeZone())},
      {"action", entry.action},
      {"caller", nullptr},
      {"peer", CutText(call.peer)},
      {"job_id", nullptr},
      {"outcome", OutcomeOf(entry)}};
  if (call.caller.has_value()) line["caller"] = CutText(call.caller->ToUri());
  if (!entry.job_id.empty()) line["job_id"] = CutText(entry.job_id);
  // This stays one line, whatever callers write into names.
  return line.dump(-1, ' ', /*ensure_ascii=*/true,
                   nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace

// Thread safety: all methods from any thread.
class AuditLog::Parts {
 public:
  explicit Parts(AuditLogOptions options) : options_(std::move(options)) {}

  absl::Status Check() ABSL_LOCKS_EXCLUDED(file_mutex_);
  void Record(std::string line, Done done) ABSL_LOCKS_EXCLUDED(mutex_);
  // What the two threads do until they are asked to end.
  void Write() ABSL_LOCKS_EXCLUDED(mutex_, file_mutex_);
  void Expire() ABSL_LOCKS_EXCLUDED(mutex_);
  void AskToEnd() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns whether Write has come to its end by `deadline`.
  bool AwaitWritten(CondVar::Clock::time_point deadline) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Entry {
    std::string line;
    Done done;  // null: it has heard already
    CondVar::Clock::time_point deadline;
  };

  // Takes those out whose time is over. Entries are in the order of their deadlines.
  std::vector<Done> TakeLate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns when the next one will be late; nothing if nobody waits.
  std::optional<CondVar::Clock::time_point> NextDeadline() const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Makes sure that `file_` is the one at the path.
  absl::Status Open() ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_mutex_);
  absl::Status Append(const std::string& lines) ABSL_EXCLUSIVE_LOCKS_REQUIRED(file_mutex_);

  const AuditLogOptions options_;

  Mutex mutex_;
  CondVar changed_;
  std::deque<Entry> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<Entry> writing_ ABSL_GUARDED_BY(mutex_);  // on their way to the disk
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool written_ ABSL_GUARDED_BY(mutex_) = false;  // all that was waiting when it stopped

  Mutex file_mutex_;  // held while the disk is waited for
  std::optional<Descriptor> file_ ABSL_GUARDED_BY(file_mutex_);
  bool torn_ ABSL_GUARDED_BY(file_mutex_) = false;  // the last line lacks its end
};

AuditLog::AuditLog(AuditLogOptions options) : parts_(std::make_shared<Parts>(std::move(options))) {
  writer_ = std::thread([parts = parts_] {
    NameThread("audit");
    parts->Write();
  });
  clerk_ = std::thread([parts = parts_] {
    NameThread("audit-clerk");
    parts->Expire();
  });
}

AuditLog::~AuditLog() {
  parts_->AskToEnd();
  clerk_.join();  // now all have heard, or hear at this moment: a writer that hangs tells nobody
  if (parts_->AwaitWritten(CondVar::Clock::now() + kStopPatience)) {
    writer_.join();
  } else {
    writer_.detach();
  }
}

absl::Status AuditLog::Check() { return parts_->Check(); }

void AuditLog::Record(const AuditEntry& entry, const CallInfo& call, absl::Time now, Done done) {
  parts_->Record(LineOf(entry, call, now), std::move(done));
}

void AuditLog::Parts::AskToEnd() {
  MutexLock lock(mutex_);
  stopping_ = true;
  changed_.NotifyAll();
}

bool AuditLog::Parts::AwaitWritten(CondVar::Clock::time_point deadline) {
  MutexLock lock(mutex_);
  while (!written_ && changed_.WaitUntil(mutex_, deadline)) {
  }
  return written_;
}

absl::Status AuditLog::Parts::Check() {
  MutexLock lock(file_mutex_);
  return Open();
}

void AuditLog::Parts::Record(std::string line, Done done) {
  {
    MutexLock lock(mutex_);
    if (waiting_.size() < options_.entries_max) {
      waiting_.push_back({std::move(line), std::move(done), After(options_.timeout)});
      done = nullptr;
    }
  }
  changed_.NotifyAll();
  if (done == nullptr) return;
  done(absl::ResourceExhaustedError(absl::StrCat(
      options_.entries_max, " entries wait for the disk of ", options_.path,
      ", which is the limit; look at that disk, or ask again when it has taken them")));
}

void AuditLog::Parts::Write() {
  while (true) {
    std::string lines;
    {
      MutexLock lock(mutex_);
      while (waiting_.empty() && !stopping_) changed_.Wait(mutex_);
      if (waiting_.empty()) {
        written_ = true;
        changed_.NotifyAll();
        return;
      }
      writing_.assign(std::make_move_iterator(waiting_.begin()),
                      std::make_move_iterator(waiting_.end()));
      waiting_.clear();
      for (const Entry& entry : writing_) lines += entry.line;
    }
    absl::Status written;
    {
      MutexLock lock(file_mutex_);
      written = Open();
      if (written.ok()) written = Append(lines);
    }
    std::vector<Entry> done;
    {
      MutexLock lock(mutex_);
      done.swap(writing_);
    }
    changed_.NotifyAll();  // the clerk has less to wait for
    for (const Entry& entry : done) {
      if (entry.done != nullptr) entry.done(written);
    }
  }
}

void AuditLog::Parts::Expire() {
  while (true) {
    std::vector<Done> late;
    {
      MutexLock lock(mutex_);
      late = TakeLate();
      if (late.empty()) {
        const std::optional<CondVar::Clock::time_point> next = NextDeadline();
        if (!next.has_value() && stopping_) return;
        if (next.has_value()) {
          changed_.WaitUntil(mutex_, *next);
        } else {
          changed_.Wait(mutex_);
        }
        continue;
      }
    }
    const absl::Status error = absl::DeadlineExceededError(absl::StrCat(
        "the disk of ", options_.path, " has not taken the entry within ",
        absl::FormatDuration(options_.timeout), "; look at that disk, then ask again"));
    for (const Done& done : late) done(error);
  }
}

std::vector<AuditLog::Done> AuditLog::Parts::TakeLate() {
  const auto now = CondVar::Clock::now();
  std::vector<Done> late;
  for (Entry& entry : writing_) {
    if (entry.done != nullptr && entry.deadline <= now) {
      late.push_back(std::exchange(entry.done, nullptr));
    }
  }
  while (!waiting_.empty() && waiting_.front().deadline <= now) {
    late.push_back(std::move(waiting_.front().done));
    waiting_.pop_front();
  }
  return late;
}

std::optional<CondVar::Clock::time_point> AuditLog::Parts::NextDeadline() const {
  const auto asked = std::find_if(writing_.begin(), writing_.end(),
                                  [](const Entry& entry) { return entry.done != nullptr; });
  if (asked != writing_.end()) return asked->deadline;
  if (!waiting_.empty()) return waiting_.front().deadline;
  return std::nullopt;
}

absl::Status AuditLog::Parts::Open() {
  struct stat ours = {};
  struct stat there = {};
  if (file_.has_value() && stat(options_.path.c_str(), &there) == 0 &&
      fstat(file_->get(), &ours) == 0 && ours.st_dev == there.st_dev &&
      ours.st_ino == there.st_ino) {
    return absl::OkStatus();
  }
  Descriptor file(open(options_.path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0600));
  if (!file.ok()) return FileError("open", options_.path, errno);
  torn_ = EndsTorn(file.get());
  file_.emplace(std::move(file));
  return absl::OkStatus();
}

absl::Status AuditLog::Parts::Append(const std::string& lines) {
  PENSTOCK_FAULT_POINT_STATUS(kAuditBeforeWrite);
  const std::string text = torn_ ? absl::StrCat("\n", lines) : lines;
  // One write keeps lines whole if a second process writes too.
  errno = ENOSPC;  // why a disk takes a part
  const ssize_t written = write(file_->get(), text.data(), text.size());
  if (written != static_cast<ssize_t>(text.size())) {
    torn_ = torn_ || written > 0;
    return FileError("write", options_.path, errno);
  }
  torn_ = false;
  if (options_.sync(file_->get()) != 0) return FileError("sync", options_.path, errno);
  PENSTOCK_FAULT_POINT(kAuditAfterWrite);
  return absl::OkStatus();
}

}  // namespace penstock
