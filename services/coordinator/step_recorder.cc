#include "services/coordinator/step_recorder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/status.h"
#include "coordinator/job_state.h"
#include "services/rpc/completion_poller.h"

namespace penstock {

StepRecorder::StepRecorder(Parts parts) : parts_(std::move(parts)), disks_(parts_.name_disk) {
  thread_ = std::thread([this] {
    NameThread("step-recorder");
    Run();
  });
}

StepRecorder::~StepRecorder() { Stop(); }

void StepRecorder::Wake(const std::string& job_id, const v1::JobEvent& event) {
  MutexLock lock(mutex_);
  Woken& woken = woken_[job_id];
  woken.sequence = std::max(woken.sequence, event.sequence());
  woken.ended |= event.has_state_changed() && IsTerminal(event.state_changed().state());
  changed_.NotifyAll();
}

void StepRecorder::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
  disks_.Stop(kStopPatience);
}

void StepRecorder::Run() {
  while (AwaitTurn()) LookAtAll();
  Finish();
}

bool StepRecorder::AwaitTurn() {
  MutexLock lock(mutex_);
  const auto until = After(parts_.read_interval);
  while (!stopping_ && changed_.WaitUntil(mutex_, until)) {
  }
  while (!stopping_ && woken_.empty()) changed_.Wait(mutex_);
  return !stopping_;
}

void StepRecorder::Finish() {
  const auto until = CondVar::Clock::now() + kStopPatience;
  bool more = true;
  while (more && CondVar::Clock::now() < until) {
    for (auto& [job_id, entry] : entries_) {
      if (entry.job != nullptr) entry.job->AwaitIdle(until);
    }
    more = LookAtAll();
  }
}

bool StepRecorder::LookAtAll() {
  std::map<std::string, Woken> woken;
  {
    MutexLock lock(mutex_);
    woken = woken_;
  }
  bool more = false;
  for (const auto& [job_id, news] : woken) {
    const absl::StatusOr<bool> looked = LookAt(job_id, news);
    more |= looked.value_or(false);
    const absl::Status& status = looked.status();
    if (status.ok() || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) continue;
    parts_.log(job_id, absl::StrCat("steps are recorded no more: ", status.message()));
    Forget(job_id, news.sequence);
  }
  return more;
}

absl::StatusOr<bool> StepRecorder::LookAt(const std::string& job_id, const Woken& woken) {
  if (entries_.count(job_id) == 0) {
    PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse record, parts_.record(job_id));
    const bool is_recorded = !RecordDirectoryOf(record.spec()).empty();
    entries_[job_id].job =
        is_recorded ? std::make_shared<RecordedJob>(record, parts_.files, parts_.open) : nullptr;
  }
  Entry& entry = entries_[job_id];
  if (entry.job == nullptr) {
    Forget(job_id, woken.sequence);
    if (!woken.ended) entries_[job_id] = {};  // is not asked for again
    return false;
  }
  if (!TellOutcome(job_id, woken, entry)) return false;
  RecordedJob& job = *entry.job;
  PENSTOCK_ASSIGN_OR_RETURN(const bool more, ReadOn(job_id, job));
  if (!job.unwritten().empty()) {
    Write(entry);
    return true;
  }
  if (job.events().ended()) {
    Forget(job_id, job.events().last_sequence());
  } else if (!more) {
    MutexLock lock(mutex_);
    const auto news = woken_.find(job_id);
    if (news != woken_.end() && news->second.sequence <= job.events().last_sequence()) {
      woken_.erase(news);
    }
  }
  return more;
}

absl::StatusOr<bool> StepRecorder::ReadOn(const std::string& job_id, RecordedJob& job) {
  while (job.unwritten().size() < kRecordsAtOnce) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::JobEvent> events,
                              parts_.events(job_id, job.events().last_sequence()));
    if (events.empty()) return false;
    for (const v1::JobEvent& event : events) job.Take(job.events().Add(event));
  }
  return true;
}

bool StepRecorder::TellOutcome(const std::string& job_id, const Woken& woken, Entry& entry) {
  const auto now = CondVar::Clock::now();
  const RecordedJob::State state = entry.job->state();
  if (state.busy) return false;
  if (state.last.ok()) {
    if (std::exchange(entry.told, false)) {
      parts_.log(job_id, "steps are recorded again; none is missing");
    }
    entry.retry = {};
    return true;
  }
  const std::string missing =
      absl::StrCat("the records of steps from ", entry.job->unwritten().front().step, " on ");
  if (!std::exchange(entry.told, true)) {
    parts_.log(job_id, absl::StrCat(missing, "are missing, and written as soon as that can be: ",
                                    state.last.message()));
  }
  const auto never = CondVar::Clock::time_point::max();
  if (woken.ended && entry.give_up == never) entry.give_up = After(kPatience);
  if (now >= entry.give_up) {
    parts_.log(job_id, absl::StrCat(missing, "stay missing: ", state.last.message()));
    Forget(job_id, woken.sequence);
    return false;
  }
  if (entry.retry == CondVar::Clock::time_point()) entry.retry = After(parts_.retry_interval);
  if (now < entry.retry) return false;
  entry.retry = {};
  return true;
}

void StepRecorder::Write(Entry& entry) {
  entry.job->SetBusy();
  const absl::Status submitted =
      disks_.Submit(entry.job->directory(), [job = entry.job] { job->Write(); });
  if (!submitted.ok()) entry.job->SetIdle(submitted);
}

void StepRecorder::Forget(const std::string& job_id, int64_t sequence) {
  entries_.erase(job_id);
  MutexLock lock(mutex_);
  const auto woken = woken_.find(job_id);
  if (woken != woken_.end() && woken->second.sequence <= sequence) woken_.erase(woken);
}

}  // namespace penstock
