// JobTracer: makes spans of the events of all jobs, on a thread of its own.
//
// Wake says that a job has new events; the thread reads them page by page, at most once a second, and hands on the spans
// that ended with them. A job that it does not know yet, as after a restart, is read from its first event on: spans
// that were made before are made again, and are the same (job_spans.h).
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "penstock/v1/cluster.pb.h"
#include "services/tracing/job_spans.h"
#include "services/tracing/span.h"

namespace penstock {

class JobTracer {
 public:
  static constexpr absl::Duration kReadInterval = absl::Seconds(1);

  struct Parts {
    // A job's record. Errors: Unavailable and DeadlineExceeded are tried again; with any other the job has no spans.
    std::function<absl::StatusOr<v1::GetJobResponse>(const std::string& job_id)> record;
    // The events after `after_sequence` in order, some of them; none if there are none. Errors: the same.
    std::function<absl::StatusOr<std::vector<v1::JobEvent>>(const std::string& job_id,
                                                            int64_t after_sequence)>
        events;
    std::function<void(std::vector<TraceSpan>)> add;
    // A line for operators; may be null.
    std::function<void(const std::string&)> log;
    absl::Duration read_interval = kReadInterval;
  };

  // Starts the thread, on which all parts are called.
  explicit JobTracer(Parts parts);
  // Stop().
  ~JobTracer();
  JobTracer(const JobTracer&) = delete;
  JobTracer& operator=(const JobTracer&) = delete;

  // The job has events up to `sequence`. Does not wait.
  void Wake(const std::string& job_id, int64_t sequence) ABSL_LOCKS_EXCLUDED(mutex_);

  // Reads what there is once more, and ends the thread. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run();
  // Reads a job to its last event.
  void Read(const std::string& job_id) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status ReadOn(const std::string& job_id) ABSL_LOCKS_EXCLUDED(mutex_);

  const Parts parts_;
  std::map<std::string, JobSpans> jobs_;  // that have not ended; the thread's only

  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, int64_t> woken_ ABSL_GUARDED_BY(mutex_);  // job -> its last event
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace penstock
