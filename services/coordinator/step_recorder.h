// StepRecorder: writes the records of all jobs' steps (JobSpec.step_records) beside their checkpoints, or where they say.
//
// Wake says that a job has new events. A thread reads them from the store, at most once a second, and the disk's thread
// (disk_threads.h) writes the records that they make. A training run waits for none of this, and nothing piles up: a job's
// events are read on once its disk has taken those before. If that fails, the job's log tells so once, it is tried again,
// and nothing is missing afterwards. A job that ends meanwhile is tried for kPatience more.
//
// A job that it does not know yet, as after a restart, is read from its first event on, and its files are written from there
// again (record_file.h).
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/files.h"
#include "base/mutex.h"
#include "penstock/v1/cluster.pb.h"
#include "services/coordinator/directory_lock.h"
#include "services/coordinator/disk_threads.h"
#include "services/coordinator/recorded_job.h"

namespace penstock {

class StepRecorder {
 public:
  static constexpr absl::Duration kPatience = absl::Minutes(10);
  static constexpr std::chrono::seconds kStopPatience{2};
  // Records that are read and not written yet, of a job, at most; and a page of events more.
  static constexpr size_t kRecordsAtOnce = 4096;

  struct Parts {
    // A job's record, and the events after `after_sequence` in order, some of them. Errors: Unavailable and
    // DeadlineExceeded are tried again; with any other the job is not recorded.
    std::function<absl::StatusOr<v1::GetJobResponse>(const std::string& job_id)> record;
    std::function<absl::StatusOr<std::vector<v1::JobEvent>>(const std::string& job_id,
                                                            int64_t after_sequence)>
        events;
    // A line for the job's log.
    std::function<void(const std::string& job_id, const std::string& text)> log;
    // Outlives the recorder; where a disk hangs, the process.
    Files& files;
    // Opens with the confinement of the files, if they have one.
    LockFileOpener open = OpenLockFile;
    DiskNamer name_disk = NameDisk;
    absl::Duration read_interval = absl::Seconds(1);
    absl::Duration retry_interval = absl::Seconds(10);
  };

  explicit StepRecorder(Parts parts);
  // Stop().
  ~StepRecorder();
  StepRecorder(const StepRecorder&) = delete;
  StepRecorder& operator=(const StepRecorder&) = delete;

  // The job has a new event. Does not wait.
  void Wake(const std::string& job_id, const v1::JobEvent& event) ABSL_LOCKS_EXCLUDED(mutex_);

  // Reads what there is once more, writes it, for kStopPatience at most, and ends the threads. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Woken {
    int64_t sequence = 0;  // of its last event
    bool ended = false;
  };
  // A job that is written, or was to be.
  struct Entry {
    std::shared_ptr<RecordedJob> job;  // null: it is not recorded
    bool told = false;                 // its log says that records are missing
    CondVar::Clock::time_point retry = {};
    CondVar::Clock::time_point give_up = CondVar::Clock::time_point::max();
  };

  void Run();
  // Waits until it is time to look at jobs. Returns whether it goes on after that.
  bool AwaitTurn() ABSL_LOCKS_EXCLUDED(mutex_);
  // Looks at all jobs. Returns whether there is more to do for one of them at once.
  bool LookAtAll() ABSL_LOCKS_EXCLUDED(mutex_);
  void Finish() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns likewise. Errors: those of `record` and `events`.
  absl::StatusOr<bool> LookAt(const std::string& job_id, const Woken& woken)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Reads events until there are enough records. Returns whether there may be more.
  absl::StatusOr<bool> ReadOn(const std::string& job_id, RecordedJob& job);
  // Tells of the last write. Returns whether the next may begin.
  bool TellOutcome(const std::string& job_id, const Woken& woken, Entry& entry)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void Write(Entry& entry);
  // `sequence`: of the last event that counts no more.
  void Forget(const std::string& job_id, int64_t sequence) ABSL_LOCKS_EXCLUDED(mutex_);

  const Parts parts_;
  DiskThreads disks_;
  std::map<std::string, Entry> entries_;  // the thread's only

  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Woken> woken_ ABSL_GUARDED_BY(mutex_);  // by job
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace penstock
