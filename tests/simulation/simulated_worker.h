// SimulatedWorker: the process of a worker in a simulated world. All that it says to the coordinator, and answers, comes from
// the product's own rules: RegistrationDialogue, EventOutbox and RunDesk. Only threads, gRPC and the executor are stood in for.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/rejected_messages.h"
#include "coordinator/effects.h"
#include "penstock/v1/cluster.pb.h"
#include "services/worker/event_outbox.h"
#include "services/worker/registration_dialogue.h"
#include "services/worker/run_desk.h"
#include "tests/simulation/process.h"
#include "tests/simulation/simulated_run.h"

namespace penstock {

// What the worker reaches of its world.
class WorkerSurroundings {
 public:
  virtual ~WorkerSurroundings() = default;
  // Calls to the coordinator.
  virtual void Register(Process& from, const v1::RegisterWorkerRequest& request,
                        SimulatedNetwork::Reply<v1::RegisterWorkerResponse> done) = 0;
  virtual void Heartbeat(Process& from, const v1::HeartbeatRequest& request,
                         SimulatedNetwork::Reply<v1::HeartbeatResponse> done) = 0;
  virtual void Report(Process& from, const v1::ReportRunRequest& request,
                      SimulatedNetwork::Reply<v1::ReportRunResponse> done) = 0;
  // Opens a stream; `ended` is called once, with the reason.
  virtual void Attach(Process& from, const v1::AttachRequest& request,
                      std::function<void(const absl::Status&)> ended) = 0;
  // Everything of an attempt's run but `events`, `ended` and `process`. Errors: the job cannot be resolved.
  virtual absl::StatusOr<SimulatedRunParts> PartsOf(const v1::PrepareRunRequest& request,
                                                    Process& process) = 0;
  // How long preparing takes.
  virtual absl::Duration PrepareTime() = 0;
  // An attempt was taken up by a worker.
  virtual void OnTakenUp(const std::string& worker, const v1::PrepareRunRequest& request) = 0;
  // The memory of the process that `holder` names, or null: it is gone, frozen or cut off.
  virtual SnapshotMemory* MemoryOf(const Process& from, const v1::SnapshotHolder& holder) = 0;
  virtual void Say(const std::string& line) = 0;
};

class SimulatedWorker {
 public:
  // REQUIRES: both outlive the worker.
  SimulatedWorker(int index, VirtualTime& time, WorkerSurroundings& world);

  Process& process() { return process_; }
  const Process& process() const { return process_; }
  std::string address() const;
  // The life that an incarnation of any worker stands for.
  static int64_t LifeOf(uint64_t incarnation) { return static_cast<int64_t>(incarnation & 0xffff); }

  void Start();
  void Kill();
  // SIGTERM: it leaves, and ends as soon as it may.
  void Leave();
  // A call of the coordinator (WorkerControl), as worker_service.cc serves it.
  void Serve(const WorkerRequest& request, absl::Duration timeout,
             std::function<void(WorkerResponse)> reply);
  // REQUIRES: it is alive.
  SnapshotMemory& snapshots() { return life_->snapshots; }
  // What it still has, "w1 has small-1, epoch 7"; empty: nothing.
  std::string Holds() const;

 private:
  // What goes with the process.
  struct Life {
    Life(const std::string& name, uint64_t incarnation)
        : incarnation(incarnation), outbox(name, incarnation) {}

    const uint64_t incarnation;
    RegistrationDialogue dialogue;
    int64_t speech =
        0;  // counts the waits before the next call of the dialogue; an older one is void
    bool speaks = false;    // a call is under way
    bool attached = false;  // a stream is open, or is about to be
    EventOutbox outbox;
    absl::Duration report_wait = absl::ZeroDuration();
    bool reports = false;  // a batch is under way, or waits for its time
    RejectedMessages rejected;
    RunDesk desk{rejected};
    bool works = false;  // the executor is preparing or executing
    SnapshotMemory snapshots{1 << 20};
    std::unique_ptr<SnapshotPeers> snapshot_peers;
    std::unique_ptr<SimulatedRun> run;
    // Calls that wait for the executor.
    struct Waiting {
      std::function<bool()> is_over;
      std::function<void(bool in_time)> go_on;
      int64_t deadline_ns = 0;
    };
    std::vector<Waiting> waiting;
  };

  // ---- Registration.
  void SpeakAfter(absl::Duration wait);
  void Speak();
  void OnSaid(const RegistrationDialogue::AfterAnswer& after);
  void StayAttached();
  v1::HeartbeatRequest Beat() const;
  // ---- Reporting.
  void AddEvent(v1::RunEvent event);
  void Report();
  void GiveUp(const std::optional<EventOutbox::GivenUp>& given_up);
  // ---- Runs.
  void Prepare(const v1::PrepareRunRequest& request, absl::Duration timeout,
               std::function<void(absl::StatusOr<v1::PrepareRunResponse>)> reply);
  // Calls `go_on` once that is over, or at the end of the time.
  void Await(std::function<bool()> is_over, absl::Duration timeout,
             std::function<void(bool in_time)> go_on);
  // What the desk says has changed: calls go on, and the executor.
  void OnDesk();
  void Work();
  void DoPrepare(RunDesk::AttemptRef attempt);
  void DropRun(const RunDesk::AttemptRef& attempt, absl::Status outcome);

  const int index_;
  VirtualTime& time_;
  WorkerSurroundings& world_;
  Process process_;
  std::unique_ptr<Life> life_;
};

}  // namespace penstock
