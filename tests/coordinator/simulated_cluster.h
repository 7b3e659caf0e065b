// SimulatedCluster: a Coordinator with simulated workers, network, disk and time.
//
// Everything that happens is an event in a queue ordered by virtual time; delays, losses and
// duplicates come from a seed, so a failure is (seed, commit). After every event the coordinator's
// invariants are checked. What goes over the simulated wire can be kept as a transcript.
//
// The coordinator can be killed and started again: what is kept is what it has asked to keep (SaveJob, PublishEvent),
// and everything that was under way for it is lost. In all histories these are violations: a worker hears of an epoch that is
// not kept, or of one a second time from another process; a report of an older epoch is taken; so is one whose events
// come after others that have not arrived.
//
// Workers train without computing: after each step time they are one step further. They profile without
// measuring: a step time for their links, and one for every layer.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/random.h"
#include "coordinator/coordinator.h"
#include "job/resolve.h"
#include "job/snapshot_rule.h"
#include "tests/job/jobs.h"

namespace penstock {

struct SimulatedClusterOptions {
  uint64_t seed = 0;
  int workers = 2;
  int64_t step_ms = 100;
  int64_t delay_ms_min = 1;  // of one message
  int64_t delay_ms_max = 1;
  int loss_percent = 0;       // of requests and of responses; each is sent again
  int duplicate_percent = 0;  // of requests
  int replay_percent = 0;     // of reports; each comes once more, within 20 s
  int overtaken_percent =
      0;  // of reports of several events; the later ones come once more without the first
  int commit_failure_percent = 0;
  // Workers are attached by a stream, and tell the pulse of their executor; else they are of an older build.
  bool attached = false;
  bool unsteady = false;  // the pulse is, as in the first steps
  int64_t commit_ms = 20;
  int64_t save_ms = 10;  // from a cut to the files of a worker
  int64_t begin_ms = 0;  // from the answer to StartRun to the beginning of the first step
  std::vector<std::string> devices = {};  // of the workers, in turn; empty: all have the same
  // Of one pass of a microbatch through a layer, by worker: then a step takes as long as the slowest stage for all of
  // its microbatches' passes, and stages report what theirs take. Empty: a step takes step_ms, and nothing is told.
  std::vector<int64_t> pass_ms = {};
  // Stages report that the passes of a step take up to this much more or less, each step by chance.
  int pass_jitter_percent = 0;
  // After each event invariants are checked, and a transcript is kept. Benchmarks do without.
  bool checks = true;
  // Measures how long the coordinator computes; null: nobody does.
  int64_t (*stopwatch_ns)() = nullptr;
  CoordinatorLimits limits = {};
};

// By when whatever a test waits for has happened.
inline constexpr int64_t kLimitMs = 600'000;

class SimulatedCluster {
 public:
  explicit SimulatedCluster(SimulatedClusterOptions options);

  // ---- Doing things, now or at a time.
  std::string Submit(const v1::JobSpec& spec);
  std::string SubmitProfile(const v1::JobSpec& spec, const v1::ProfileSpec& profile);
  void At(int64_t ms, std::function<void()> what);
  void Kill(int worker);
  // The worker announces that it will end, and does as soon as the coordinator lets it.
  void Leave(int worker) { workers_[worker].leaving = true; }
  bool alive(int worker) const { return workers_[worker].alive; }
  // A killed worker starts again as a new process.
  void Restart(int worker);
  // The worker's stream breaks, while its process lives; it opens another.
  void BreakStream(int worker);
  // The worker stops doing anything but keeps its state, like SIGSTOP.
  void Freeze(int worker) { workers_[worker].frozen = true; }
  // The worker's executor thread hangs, while it goes on answering calls and sending heartbeats: it prepares nothing,
  // trains no further and does not stop.
  void FreezeExecutor(int worker) {
    workers_[worker].executor_frozen = true;
    workers_[worker].last_pulse = now_ms_ + 1;
  }
  void ThawExecutor(int worker);
  // Nothing goes over the link between the two workers any more, while both reach the coordinator; or it does again. A run
  // in which they are neighbours trains no further.
  void CutLink(int a, int b) { dead_links_[std::minmax(a, b)] = now_ms_; }
  void MendLink(int a, int b) { dead_links_.erase(std::minmax(a, b)); }
  // No call reaches the worker any more, while its own reach others.
  void Deafen(int worker) { workers_[worker].deaf = true; }
  // The worker's run is held, by a coordinator of before.
  void Hold(int worker) { workers_[worker].held_step = workers_[worker].step; }
  // From the next step on the worker's passes take this long. REQUIRES: SimulatedClusterOptions::pass_ms.
  void SetPassMs(int worker, int64_t ms) { pass_ms_[worker] = ms; }
  // The worker's own computation goes wrong.
  void FailRun(int worker, const std::string& message);
  void FailRunIfTraining(int worker, const std::string& message);
  // The coordinator is killed and starts again at once, on what was kept, or on nothing.
  void RestartCoordinator(bool has_records = true);
  // The same happens as soon as it has kept something: before it acts on that, or answers.
  void RestartCoordinatorAfterWriting() { dies_after_writing_ = true; }
  // What is kept does not say how to go on with attempts under way, as that of older builds.
  void ForgetRuns();
  // Moves the clock by which people live, not that of timeouts.
  void MoveWallClock(int64_t ms) { wall_start_ms_ += ms; }
  Coordinator& coordinator() { return *coordinator_; }
  Now now() const;
  // Performs what the coordinator wants; call it after calling the coordinator.
  void PerformEffects();

  // What FindCheckpoint finds, unless a job goes on from what was committed here.
  absl::StatusOr<FoundStart> found_start = FoundStart{};
  // Until this it finds nothing, for the disk is away.
  int64_t disk_back_ms = 0;
  // What the workers of these numbers answer when they are to prepare.
  std::map<int, absl::Status> cannot_prepare;
  std::map<int, std::string>
      arithmetics;  // of the workers' devices; a worker without one is of an older build
  // The note of every commit that succeeds.
  std::string commit_note;
  // The disk of the checkpoints hangs: nobody hears of what is asked of it.
  bool disk_hangs = false;
  // The times of layers that are known are not found, and a search for candidates never ends.
  bool layer_times_hang = false;
  bool search_hangs = false;
  // The disk of the checkpoints is full: only the first worker's layers still fit, and no commit succeeds.
  bool disk_full = false;
  // Workers have room for snapshots.
  bool keeps_snapshots = true;
  // The passes that the workers answer to a GatherPasses which asks for them; empty: none.
  std::function<Timeline(const GatherPasses&)> timeline_of;
  // What tests change of the plans that the coordinator gets.
  std::function<void(JobPlan&)> change_plan = [](JobPlan&) {};
  // What is staged on the disk, "small-1-1700000000000 step 4".
  std::vector<std::string> Staged() const;
  // Whose checkpoint directory it is right now.
  std::vector<std::string> LeasedDirectories() const;

  // Runs until no job is under way or waits, or `limit_ms` of virtual time have passed. Returns
  // whether all jobs are over.
  bool RunUntilOver(int64_t limit_ms);
  // Runs until `holds`, for a minute of virtual time at most. Returns whether it holds.
  bool RunUntil(const std::function<bool()>& holds);
  bool RunUntilState(const std::string& job, v1::JobState state);
  void RunFor(int64_t ms);

  // A report of the worker's run of `job`, from the first event on and without events.
  v1::ReportRunRequest ReportOf(const std::string& job, int worker);

  // ---- Looking.
  v1::JobSummary Summary(const std::string& job_id) const;
  const v1::GetJobResponse& Saved(const std::string& job_id) { return saved_[job_id]; }
  const std::vector<v1::JobEvent>& Events(const std::string& job_id) { return events_[job_id]; }
  // The lines of the job's log among them.
  std::vector<std::string> Logs(const std::string& job_id);
  std::vector<StoredJob> Store() const;
  // What workers are still training, "worker-1 trains job-1".
  std::vector<std::string> StillTraining() const;
  const std::vector<Manifest>& commits() const { return commits_; }
  // Jobs whose timelines were asked for.
  const std::vector<std::string>& gathered() const { return gathered_; }
  // What FindLayerTimes finds; tests may spoil it.
  std::map<std::string, v1::DeviceProfile>& layer_times() { return layer_times_; }
  // Workers and what they were asked to time, "w0 times 10 of small-1".
  const std::vector<std::string>& timings() const { return timings_; }
  // Starts of (worker, job): more than one would be a double start.
  const std::map<std::pair<int, std::string>, int>& starts() const { return starts_; }
  // Things that must never happen: a broken invariant, a request for a busy worker, ...
  const std::vector<std::string>& violations() const { return violations_; }
  const std::string& transcript() const { return transcript_; }
  // How long the coordinator has computed, and at most in one turn.
  int64_t coordinator_ns() const { return coordinator_ns_; }
  int64_t longest_turn_ns() const { return longest_turn_ns_; }

 private:
  struct Worker {
    std::string name;
    uint64_t incarnation = 0;
    bool alive = true;
    bool frozen = false;
    bool deaf = false;
    bool executor_frozen = false;
    int64_t last_pulse = 0;  // of a frozen executor
    bool leaving = false;
    int64_t generation = 0;  // of the run; what an older one scheduled is void
    enum class State { kIdle, kPrepared, kRunning } state = State::kIdle;
    v1::PrepareRunRequest run;  // of a profile: with what both requests have
    std::optional<v1::PrepareProfileRequest> profile;
    std::vector<Cut> cuts;
    std::vector<int64_t> extra_cut;
    int64_t step = 0;
    // Of each kind of pass of the run so far.
    int64_t passes = 0;
    double pass_seconds = 0;
    int64_t begins_ms = 0;  // when its first step begins
    std::optional<int64_t> held_step;
    std::optional<int64_t> cut_step;
    std::set<int64_t> saving;  // steps whose checkpoints it writes
    SnapshotRule snapshot_rule;
    std::set<std::string> snapshots;  // that it has in memory, whosever layers: "2 JOB/1-4"
    int64_t life = 0;                 // of the coordinator that has prepared the run
    struct Stream {
      int64_t life = 0;  // of the coordinator that has it
      int64_t number = 0;
    };
    std::optional<Stream> stream = std::nullopt;
    std::deque<v1::RunEvent> outbox;  // not yet stored
    int64_t outbox_first = 0;         // sequence of its front
    int64_t acknowledged = 0;         // sequence of the first that the coordinator lacks

    bool HasToTell() const {
      return acknowledged < outbox_first + static_cast<int64_t>(outbox.size());
    }
    bool flushes_later = false;  // the coordinator has not taken all that it was sent
    struct Epochs {
      int64_t first = 0;  // that is not refused
      int64_t seen = 0;
    };
    std::map<std::string, Epochs> epochs;  // fencing, by job

    bool Has(const std::string& job_id, int64_t epoch) const {
      return state != State::kIdle && run.job_id() == job_id && run.epoch() == epoch;
    }
    bool Runs(const std::string& job_id, int64_t epoch) const {
      return Has(job_id, epoch) && state == State::kRunning;
    }
  };

  bool Lost() { return Percent(options_.loss_percent); }
  bool Percent(int percent) { return static_cast<int>(random_.Below(100)) < percent; }
  int64_t Delay();
  void After(int64_t ms, std::function<void()> what) { At(now_ms_ + ms, std::move(what)); }
  void Say(const std::string& line);
  // Calls the coordinator, checks it, performs the effects. Returns whether it was there to the end, to answer.
  bool Tell(const std::function<void()>& event);
  // Gives a job the answer to an effect, unless the process is gone that had the effect.
  void Answer(int64_t life, const std::string& job_id, EffectAnswer answer);
  bool RunOneEvent(int64_t limit_ms);

  void Register(int worker);
  void HeartbeatLoop(int worker, uint64_t incarnation);
  void Attach(int worker, uint64_t incarnation);
  // The coordinator hears of it a little later.
  void EndStream(int worker);
  void Perform(const CallWorker& call);
  void Perform(const ProbeWorker& probe);
  void Perform(const FindCheckpoint& find);
  void Perform(const CommitStaged& commit);
  void Perform(const DiscardStaged& discard);
  void Perform(const GatherTimeline& gather);
  void Perform(const GatherPasses& gather);
  void Perform(const FindLayerTimes& find);
  void Perform(const JudgeCandidates& judge);
  void Perform(const KeepLayerTimes& keep) { layer_times_[keep.key] = keep.times; }
  void Perform(const PublishEvent& publish);
  void Perform(const SaveJob& save);
  void Deliver(const CallWorker& call, int attempt, int64_t life);
  // A worker is about to hear of an epoch.
  void CheckEpochIsNew(const CallWorker& call);
  CommittedCheckpoint Commit(const CommitStaged& commit);
  // What a worker answers.
  absl::StatusOr<v1::PrepareRunResponse> Handle(int worker, const v1::PrepareRunRequest& request);
  absl::StatusOr<v1::PrepareProfileResponse> Handle(int worker,
                                                    const v1::PrepareProfileRequest& request);
  absl::StatusOr<v1::StartRunResponse> Handle(int worker, const v1::StartRunRequest& request);
  absl::StatusOr<v1::HoldRunResponse> Handle(int worker, const v1::HoldRunRequest& request);
  absl::StatusOr<v1::CutRunResponse> Handle(int worker, const v1::CutRunRequest& request);
  absl::StatusOr<v1::StopRunResponse> Handle(int worker, const v1::StopRunRequest& request);

  std::string Add(absl::StatusOr<Submission> submission);
  int64_t StepMs(const v1::PrepareRunRequest& run) const;
  void TrainLoop(int worker, int64_t generation);
  // `measured`: what the worker has measured so far.
  void MeasureLoop(int worker, int64_t generation, int64_t measured);
  void ReportMeasured(int worker, int64_t measured, int64_t layers);
  // The worker has done the passes of a step.
  void CountPasses(int worker);
  void AtCut(int worker, const Cut& cut);
  // What the worker's stage reports now.
  v1::StageReport StageReportOf(int worker) const;
  void SaveLayers(int worker, int64_t step);
  // Keeps a snapshot here, and in the memory of the next worker of the run if that is there.
  void KeepSnapshot(int worker, int64_t step);
  // Errors: FailedPrecondition if no worker that is there has a part of it; for what the coordinator says of its holders.
  absl::Status LoadSnapshot(const v1::PeerSnapshot& snapshot);
  // One spelling of a checkpoint directory.
  static std::string DirectoryOf(const std::string& root);
  // Removes what the attempt has staged up to `step`.
  void RemoveStaged(const std::string& root, const std::string& tag, int64_t step);
  void EndRun(int worker);
  void Emit(int worker, v1::RunEvent event);
  void Flush(int worker, int64_t generation);
  // The reports of a wire that repeats and reorders them, besides `request` itself.
  void Misdeliver(const v1::ReportRunRequest& request);
  // Hands a report to the coordinator and checks its answer. Returns nothing if the coordinator dies over it.
  std::optional<absl::StatusOr<v1::ReportRunResponse>> Report(const v1::ReportRunRequest& request);
  void FailNeighbours(int worker);
  int IndexOfName(const std::string& name) const;
  // Returns the neighbour in the worker's run that it does not reach.
  std::optional<int> CutOff(int worker) const;

  const SimulatedClusterOptions options_;
  RandomStream random_;
  std::vector<int64_t> pass_ms_;  // now
  std::unique_ptr<Coordinator> coordinator_;
  int64_t life_ = 0;  // of the coordinator: counts its processes
  bool dies_after_writing_ = false;
  int64_t now_ms_ = 0;
  int64_t wall_start_ms_ = 1'700'000'000'000;
  int64_t next_event_ = 0;
  std::map<std::pair<int64_t, int64_t>, std::function<void()>> queue_;  // by (time, order)
  std::vector<Worker> workers_;
  std::map<std::pair<int, int>, int64_t> dead_links_;  // since when, by the workers
  std::map<std::string, v1::GetJobResponse> saved_;
  std::map<std::string, std::vector<v1::JobEvent>> events_;
  std::vector<std::string> jobs_;
  std::map<int64_t, CommitStaged> committing_;  // by order
  int64_t next_commit_ = 0;
  std::vector<Manifest> commits_;
  std::map<std::pair<std::string, int64_t>, int64_t>
      lives_;  // of the coordinators that gave an epoch, by job and epoch
  std::map<std::string, int64_t> newest_epochs_;  // that workers have heard of, by job
  // The events from the first on that have arrived, by worker, incarnation, job and epoch.
  std::map<std::tuple<std::string, uint64_t, std::string, int64_t>, int64_t> arrived_;
  std::vector<std::string> gathered_;
  std::map<std::string, v1::DeviceProfile> layer_times_;
  std::vector<std::string> timings_;
  // The last checkpoint, by directory and job.
  std::map<std::pair<std::string, std::string>, FoundStart> latest_;
  struct Staging {
    std::string directory;
    std::string tag;
    int64_t step = 0;
    auto operator<=>(const Staging&) const = default;
  };
  std::set<Staging> staged_;
  std::map<std::string, std::weak_ptr<const void>> leases_;  // by directory, as the disk knows it
  std::map<std::pair<int, std::string>, int> starts_;
  std::vector<std::string> violations_;
  std::string transcript_;
  int64_t coordinator_ns_ = 0;
  int64_t longest_turn_ns_ = 0;
};

// One size of microbatches, and all workers that are free.
v1::ProfileSpec SmallProfile();
// What a worker might measure: every pass takes `ms`.
v1::ModelProfile ProfileOf(const v1::JobSpec& spec, const v1::ProfileSpec& profile, double ms);

// Both halves of a submission. Returns the job's id.
absl::StatusOr<std::string> SubmitJob(Coordinator& coordinator, const v1::SubmitJobRequest& request,
                                      Now now);

// The workers of a job's stages, by stage.
std::vector<std::string> WorkersOf(const v1::GetJobResponse& job);

}  // namespace penstock
