// RecordedJob: the files of one job's step records, and what is to be written to them next.
//
// Thread safety: Write on the thread of a disk, between SetBusy and its return; all else on the recorder's thread, and all
// but `state` and AwaitIdle only while it is not busy. It outlives the recorder where a disk hangs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/files.h"
#include "base/mutex.h"
#include "penstock/v1/cluster.pb.h"
#include "results/step_records.h"
#include "services/coordinator/directory_lock.h"
#include "services/coordinator/record_file.h"

namespace penstock {

// Returns where a job's steps are recorded; empty: nowhere.
std::string RecordDirectoryOf(const v1::JobSpec& spec);

class RecordedJob {
 public:
  RecordedJob(const v1::GetJobResponse& record, Files& files, LockFileOpener open);

  const std::string& directory() const { return directory_; }
  StepRecords& events() { return events_; }

  void Take(std::vector<StepRecord> records);
  // That are not written yet.
  const std::vector<StepRecord>& unwritten() const { return unwritten_; }

  void SetBusy() ABSL_LOCKS_EXCLUDED(mutex_);
  // Writes all that was taken, or nothing for good: after an error all of it is still to be written.
  void Write() ABSL_LOCKS_EXCLUDED(mutex_);
  // It is not busy any more; `last`: of a Write that came to nothing.
  void SetIdle(absl::Status last) ABSL_LOCKS_EXCLUDED(mutex_);

  struct State {
    bool busy = false;
    absl::Status last;  // of the last Write
  };
  State state() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns when it is not busy any more, at the latest then.
  void AwaitIdle(CondVar::Clock::time_point until) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Output {
    RecordFile file;
    std::string (*encode)(const StepRecord& record);
  };

  absl::Status OpenAll();
  absl::Status WriteAll();

  const std::string directory_;
  const std::vector<std::string> formats_;
  const std::string event_file_;  // TensorBoard's
  const double submitted_s_;      // since 1970
  Files& files_;
  const LockFileOpener open_;
  StepRecords events_;
  std::vector<StepRecord> unwritten_;
  std::vector<Output> outputs_;  // none: they are to be opened

  mutable Mutex mutex_;
  CondVar changed_;
  State state_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
