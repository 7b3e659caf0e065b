// World: a whole cluster in one thread and in virtual time, over the product's own rules: the coordinator's event loop and state
// machines, the workers' registration, reporting and run desks, and the code that writes, commits, finds and reads checkpoints.
// Simulated are threads, the network, the disk, the store, and the executor (simulated_run.h).
//
// A seed draws everything that happens: jobs, faults, and when. The same seed has the same history. While it happens, these
// are violations:
//   - an invariant of the coordinator does not hold after a turn;
//   - workers hear of an epoch that is not kept, or that was given by two processes;
//   - a worker takes up an older epoch than it has taken up before;
//   - a report, or a commit, of an older epoch than a worker has taken up is taken;
//   - events that have not arrived are passed over, and events of a job are stored with a gap;
//   - a job goes on before its last committed checkpoint, or from other weights than its steps make;
//   - a step is told that was done before the attempt began;
//   - a job whose submission was acknowledged is not known, or two jobs have its key.
// After the last fault every job ends in time: succeeded, with all its steps and the weights that they make; cancelled, if it
// was; or failed, for a reason that a fault explains. Then no worker has a run any more.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/random.h"
#include "job/resolve.h"
#include "tests/simulation/process.h"
#include "tests/simulation/simulated_coordinator.h"
#include "tests/simulation/simulated_network.h"
#include "tests/simulation/simulated_store.h"
#include "tests/simulation/simulated_worker.h"
#include "tests/simulation/virtual_time.h"
#include "tests/support/memory_files.h"

namespace penstock {

// What a history came to.
struct Outcome {
  std::map<v1::JobState, int> states;  // of jobs
  std::map<std::string, int> faults;   // by name
  int64_t recoveries = 0;
  int64_t snapshot_starts = 0;  // attempts that began from the memory of workers
  int64_t commits = 0;
  std::vector<std::string> violations;
  std::string last_lines;    // of the history
  uint64_t fingerprint = 0;  // of all its lines
};

class World final : public WorkerSurroundings, public CoordinatorWatcher {
 public:
  explicit World(uint64_t seed);
  ~World() override;

  // Lets the history happen. REQUIRES: called once.
  Outcome Run();

 private:
  // A job that a user wants.
  struct Wish {
    v1::JobSpec spec;
    std::string key;
    std::string job_id;      // once it was acknowledged
    bool cancelled = false;  // a user has asked for it, or is about to
  };
  // The stream of a worker to the coordinator.
  struct Stream {
    Process& worker;
    int64_t coordinator_life = 0;
    int64_t number = 0;
    bool open = true;
    absl::Duration silent = absl::ZeroDuration();
    std::function<void(const absl::Status&)> ended;
  };

  // ---- Chances.
  int64_t Below(int64_t bound) { return static_cast<int64_t>(random_.Below(bound)); }
  absl::Duration Up(absl::Duration limit) { return random_.Uniform() * limit; }
  void DrawJobs();
  void DrawFaults();
  void DrawFault();

  // ---- Users.
  void Submit(int wish);
  void Cancel(int wish);

  // ---- Faults.
  void Count(const std::string& fault);
  void KillWorker(int worker);
  void StartCoordinator();
  void LosePower();
  void EndFaults();
  SimulatedWorker& AnyWorker() { return *workers_[Below(workers_.size())]; }

  // ---- Judging.
  void Violate(const std::string& what);
  void Judge();
  void JudgeJob(const Wish& wish);
  bool AllOver() const;
  std::shared_ptr<const ResolvedJob> Resolve(const v1::JobSpec& spec);

  // ---- Streams.
  void EndStream(const std::shared_ptr<Stream>& stream, const absl::Status& why, bool tells);
  void WatchStream(const std::shared_ptr<Stream>& stream);

  // ---- WorkerSurroundings.
  void Register(Process& from, const v1::RegisterWorkerRequest& request,
                SimulatedNetwork::Reply<v1::RegisterWorkerResponse> done) override;
  void Heartbeat(Process& from, const v1::HeartbeatRequest& request,
                 SimulatedNetwork::Reply<v1::HeartbeatResponse> done) override;
  void Report(Process& from, const v1::ReportRunRequest& request,
              SimulatedNetwork::Reply<v1::ReportRunResponse> done) override;
  void Attach(Process& from, const v1::AttachRequest& request,
              std::function<void(const absl::Status&)> ended) override;
  absl::StatusOr<SimulatedRunParts> PartsOf(const v1::PrepareRunRequest& request,
                                            Process& process) override;
  absl::Duration PrepareTime() override;
  SnapshotMemory* MemoryOf(const Process& from, const v1::SnapshotHolder& holder) override;
  void OnTakenUp(const std::string& worker, const v1::PrepareRunRequest& request) override;

  // ---- CoordinatorWatcher.
  void OnTurn(const absl::Status& invariants) override;
  void OnCall(const CallWorker& call) override;
  void OnCommit(const CommitStaged& commit) override;
  void OnCommitted(const CommitStaged& commit,
                   const absl::StatusOr<CommittedCheckpoint>& committed) override;
  void OnStored(const PublishEvent& event) override;
  void OnCoordinatorDied() override;
  void Say(const std::string& line) override;

  const uint64_t seed_;
  RandomStream random_;
  VirtualTime time_;
  SimulatedNetwork network_{time_, random_};
  MemoryFiles files_;
  KeptState kept_;
  StoreTrouble store_trouble_ = StoreTrouble::kNone;
  Process users_{time_, "users"};
  std::unique_ptr<SimulatedCoordinator> coordinator_;
  std::vector<std::unique_ptr<SimulatedWorker>> workers_;
  std::set<std::string> saves_to_die_in_;  // workers that die in their next save
  std::vector<Wish> wishes_;
  int64_t faults_end_ns_ = 0;  // of those drawn so far
  bool faults_are_over_ = false;
  bool disk_was_full_ = false;
  int64_t turn_ns_ = 0;    // of the last turn
  int64_t turns_now_ = 0;  // in a row at that time
  absl::Duration step_time_;
  std::map<std::string, std::shared_ptr<const ResolvedJob>> resolved_;  // by serialized spec
  std::map<std::pair<std::string, int64_t>, std::shared_ptr<Pipeline>> pipelines_;  // by attempt

  // What is known of jobs, by id.
  std::map<std::tuple<std::string, int64_t, std::string>, int64_t>
      seen_epochs_;  // that a worker has taken up, by worker, life and job
  std::map<std::string, int64_t> newest_epochs_;               // that a worker has taken up
  std::map<std::pair<std::string, int64_t>, int64_t> givers_;  // lives of coordinators, by attempt
  std::map<std::string, int64_t> committed_steps_;
  std::map<std::string, int64_t> first_steps_;  // that the last attempt went on after
  std::map<std::string, int64_t> told_sequences_;
  // Events from the first on that have arrived, by worker, incarnation, job and epoch.
  std::map<std::tuple<std::string, uint64_t, std::string, int64_t>, int64_t> arrived_;

  Outcome outcome_;
  std::deque<std::string> lines_;
};

}  // namespace penstock
