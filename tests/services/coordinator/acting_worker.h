// ActingWorker: a worker over real gRPC that trains nothing: it registers, sends heartbeats,
// answers WorkerControl, and reports steps at a given pace, or layers that take no time. For tests of the coordinator alone.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "services/rpc/server.h"

namespace penstock {

struct ActingWorkerOptions {
  std::string name = "w0";
  std::string coordinator;  // host:port
  absl::Duration step_time = absl::Milliseconds(2);
  // Answers PrepareRun with this digest instead of the plan's.
  std::string digest;
  // Errors to give to PrepareRun.
  absl::Status prepare_status;
  // Reports RunFailed with this message after the step; 0: never.
  int64_t fail_after_step = 0;
  // GetRunTimeline is answered only when this says so; by default at once.
  std::shared_future<void> timeline_gate;
};

class ActingWorker {
 public:
  explicit ActingWorker(ActingWorkerOptions options);
  // Goes away without a word.
  ~ActingWorker();

  // Registers, again after the coordinator was restarted. Returns once it is registered.
  absl::Status Register();
  // How often each WorkerControl call came.
  int prepares() const { return prepares_; }
  int stops() const { return stops_; }
  // How often it was to time layers.
  int timings() const { return timings_; }
  bool training() const { return training_; }
  // The traces that its calls carried, without a repetition.
  std::set<std::string> traces() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return traces_;
  }
  // Of the run prepared last.
  int64_t epoch() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return run_.epoch();
  }

 private:
  using Service = v1::WorkerControl::AsyncService;

  void AddHandlers();
  void NoteTrace(const CallInfo& call) ABSL_LOCKS_EXCLUDED(mutex_);
  void HeartbeatLoop();
  void Train(const v1::PrepareRunRequest& run);
  // The part of an only worker in a profile: every layer takes no time.
  void Measure(const v1::PrepareRunRequest& run, const v1::PrepareProfileRequest& profile);
  // Where the run ends, or nothing while it is held before `step`.
  std::optional<int64_t> EndOf(const v1::PrepareRunRequest& run, int64_t step);
  void Report(const v1::PrepareRunRequest& run, v1::RunEvent event);
  void EndTraining();

  const ActingWorkerOptions options_;
  std::unique_ptr<v1::WorkerRegistry::Stub> registry_;
  RpcServer server_;
  std::atomic<int> prepares_ = 0;
  std::atomic<int> stops_ = 0;
  std::atomic<int> timings_ = 0;
  std::atomic<bool> training_ = false;
  std::atomic<bool> stop_training_ = false;
  std::atomic<bool> going_ = false;
  int64_t next_sequence_ = 0;

  Mutex mutex_;
  v1::PrepareRunRequest run_ ABSL_GUARDED_BY(mutex_);  // of a profile: with what both have
  std::optional<v1::PrepareProfileRequest> profile_ ABSL_GUARDED_BY(mutex_);
  // As traceparent; "none" of a call without.
  std::set<std::string> traces_ ABSL_GUARDED_BY(mutex_);
  int64_t step_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<int64_t> held_ ABSL_GUARDED_BY(mutex_);
  std::optional<int64_t> cut_ ABSL_GUARDED_BY(mutex_);

  Mutex trainer_mutex_;
  std::thread trainer_ ABSL_GUARDED_BY(trainer_mutex_);
  std::thread heartbeat_;
};

}  // namespace penstock
