#include "services/tracing/job_tracer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/status.h"
#include "services/rpc/completion_poller.h"

namespace penstock {

JobTracer::JobTracer(Parts parts) : parts_(std::move(parts)) {
  thread_ = std::thread([this] {
    NameThread("job-tracer");
    Run();
  });
}

JobTracer::~JobTracer() { Stop(); }

void JobTracer::Wake(const std::string& job_id, int64_t sequence) {
  MutexLock lock(mutex_);
  int64_t& last = woken_[job_id];
  last = std::max(last, sequence);
  changed_.NotifyAll();
}

void JobTracer::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  if (thread_.joinable()) thread_.join();
}

void JobTracer::Run() {
  for (bool last_time = false; !last_time;) {
    std::vector<std::string> jobs;
    {
      MutexLock lock(mutex_);
      const auto until = After(parts_.read_interval);
      while (!stopping_ && changed_.WaitUntil(mutex_, until)) {
      }
      while (!stopping_ && woken_.empty()) changed_.Wait(mutex_);
      last_time = stopping_;
      for (const auto& [job_id, sequence] : woken_) jobs.push_back(job_id);
    }
    for (const std::string& job_id : jobs) Read(job_id);
  }
}

void JobTracer::Read(const std::string& job_id) {
  const absl::Status read = ReadOn(job_id);
  if (read.ok() || absl::IsUnavailable(read) || absl::IsDeadlineExceeded(read)) return;
  jobs_.erase(job_id);
  {
    MutexLock lock(mutex_);
    woken_.erase(job_id);
  }
  if (parts_.log != nullptr) {
    parts_.log(absl::StrCat("job ", job_id, " has no more spans: ", read.message()));
  }
}

absl::Status JobTracer::ReadOn(const std::string& job_id) {
  auto job = jobs_.find(job_id);
  if (job == jobs_.end()) {
    PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse record, parts_.record(job_id));
    job = jobs_.emplace(job_id, JobSpans(record)).first;
  }
  JobSpans& spans = job->second;
  for (;;) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<v1::JobEvent> events,
                              parts_.events(job_id, spans.last_sequence()));
    std::vector<TraceSpan> done;
    for (const v1::JobEvent& event : events) {
      for (TraceSpan& span : spans.Add(event)) done.push_back(std::move(span));
    }
    if (spans.sampled() && !done.empty()) parts_.add(std::move(done));
    if (events.empty()) break;
  }
  // Later events are read next time. A read event was announced before, so nothing wakes an ended job.
  const int64_t last = spans.last_sequence();
  if (spans.ended()) jobs_.erase(job);
  MutexLock lock(mutex_);
  const auto woken = woken_.find(job_id);
  if (woken != woken_.end() && woken->second <= last) woken_.erase(woken);
  return absl::OkStatus();
}

}  // namespace penstock
