#include "services/coordinator/coordinator_server.h"

#include <atomic>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "results/timeline_message.h"
#include "services/coordinator/audit_log.h"
#include "services/coordinator/candidate_judges.h"
#include "services/coordinator/checkpoint_keeper.h"
#include "services/coordinator/coordinator_service.h"
#include "services/coordinator/event_loop.h"
#include "services/coordinator/finished_jobs.h"
#include "services/coordinator/job_records.h"
#include "services/coordinator/job_store.h"
#include "services/coordinator/job_watchers.h"
#include "services/coordinator/live_runs.h"
#include "services/coordinator/step_recorder.h"
#include "services/coordinator/timeline_gatherer.h"
#include "services/coordinator/worker_caller.h"
#include "services/coordinator/worker_calls.h"
#include "services/coordinator/worker_prober.h"
#include "services/rpc/refusal_log.h"
#include "services/rpc/server.h"
#include "services/tracing/job_tracer.h"

namespace penstock {

// All parts, in the order they are made; each may use those above it. They end in the order of
// Shutdown, which the destructors then find done.
class CoordinatorServer::Impl final : public EffectPerformer {
 public:
  Impl(const CoordinatorServerOptions& options, std::unique_ptr<StateStore> store,
       std::unique_ptr<Mandate> mandate, Clock& clock, Files& files)
      : log_(options.log),
        clock_(clock),
        local_workers_only_(!options.security.encrypted() && options.listen.IsLoopback()),
        data_(options.data),
        checkpoint_files_(options.checkpoint_files),
        loop_(clock, options.limits, std::move(store), *this, options.log, std::move(mandate)),
        keeper_(loop_, files, options.open_lock, NameDisk, options.held_patience),
        judges_(loop_, clock),
        live_(clock,
              [this](const std::string& job_id, const v1::Plan& plan, absl::Duration window,
                     std::function<void(LiveRun)> done) {
                timelines_.GatherLive(job_id, plan, window, std::move(done));
              }),
        calls_(options.security.ForChannel(Role::kWorker)),
        timelines_(clock, calls_),
        caller_(loop_, calls_),
        prober_(loop_),
        server_({.listen = options.listen,
                 .reflection = options.reflection,
                 .security = options.security,
                 .health = options.health,
                 .on_refused = refusals_.Listener(log_)}),
        recorder_(RecorderParts(files, options.open_lock)) {
    if (!options.audit_file.empty()) {
      audit_.emplace(AuditLogOptions{.path = options.audit_file, .sync = options.sync_audit});
    }
    if (options.spans != nullptr) tracer_.emplace(TracerParts(options.spans));
  }

  absl::Status Start() {
    if (audit_.has_value()) {
      PENSTOCK_RETURN_IF_ERROR(Annotate(audit_->Check(), "audit log"));
    }
    CoordinatorParts parts = {
        .loop = loop_,
        .watchers = watchers_,
        .timelines = timelines_,
        .keeper = keeper_,
        .on_other_version = [this](const absl::Status& refused,
                                   const CallInfo& call) { NoteOtherVersion(refused, call); },
        .local_workers_only = local_workers_only_,
        .data = data_,
        .checkpoint_files = checkpoint_files_};
    if (audit_.has_value()) {
      parts.audit = [this](const AuditEntry& entry, const CallInfo& call, AuditLog::Done done) {
        Audit(entry, call, std::move(done));
      };
    }
    AddCoordinatorServices(server_, parts);
    PENSTOCK_RETURN_IF_ERROR(loop_.Start());
    PENSTOCK_RETURN_IF_ERROR(server_.Start());
    server_.SetServing(true);
    {
      MutexLock lock(health_mutex_);
      tells_health_ = true;
      server_.SetPartServing(kStatePart, store_writable_);
      server_.SetPartServing(kMemberPart, true);
    }
    serving_ = true;
    return absl::OkStatus();
  }

  ~Impl() override { Shutdown(); }

  void Shutdown() {
    {
      MutexLock lock(health_mutex_);
      tells_health_ = false;
    }
    prober_.Stop();  // the streams of all workers are about to end
    server_.SetServing(false);
    server_.Shutdown();                        // handlers have returned, so nobody asks any more
    if (tracer_.has_value()) tracer_->Stop();  // asks the loop for the last time
    recorder_.Stop();                          // likewise
    loop_.Stop();                              // no effects are performed any more
    calls_.CancelAll();                        // what is under way comes back and is dropped
  }

  absl::Status Drain(absl::Duration timeout) {
    constexpr absl::Duration kPollInterval = absl::Milliseconds(20);
    const absl::Time deadline = absl::Now() + timeout;
    if (serving_.exchange(false)) {
      server_.SetServing(false);  // health says so to those who look for a coordinator
    }
    for (;;) {
      PENSTOCK_ASSIGN_OR_RETURN(
          const std::string left,
          loop_.Ask<std::string>(deadline + absl::Seconds(1),
                                 [this](Coordinator& coordinator, StateStore&, Now now) {
                                   coordinator.Drain(now);
                                   return WhatIsLeft(coordinator);
                                 }));
      if (left.empty()) {
        return absl::OkStatus();
      }
      if (absl::Now() >= deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat(left, " after ", absl::FormatDuration(timeout), " of draining"));
      }
      absl::SleepFor(kPollInterval);
    }
  }

  // Returns what keeps a drain from its end, or an empty text.
  absl::StatusOr<std::string> WhatIsLeft(const Coordinator& coordinator) {
    if (!coordinator.Drained()) return "jobs are still under way";
    const absl::Status kept = loop_.Keep(nullptr);
    if (kept.ok()) return "";
    return absl::StrCat("how the jobs ended is not kept yet (", kept.message(), ")");
  }

  absl::StatusOr<CoordinatorSnapshot> Snapshot() {
    return loop_.Ask<CoordinatorSnapshot>(
        absl::Now() + kLookTimeout,
        [this](Coordinator& coordinator, StateStore& store,
               Now now) -> absl::StatusOr<CoordinatorSnapshot> {
          CoordinatorSnapshot snapshot;
          snapshot.jobs = coordinator.ListJobs();
          snapshot.workers = coordinator.ListWorkers(now);
          snapshot.state = loop_.state_counts();
          snapshot.losses = coordinator.losses();
          snapshot.results = finished_.At(
              snapshot.jobs, now.unix_ms,
              [&store](const std::string& job_id) { return store.ReadRecord(job_id); });
          for (const v1::JobSummary& job : snapshot.jobs.jobs()) {
            if (const JobRun* run = coordinator.FindRun(job.job_id()); run != nullptr) {
              v1::JobResult& result = snapshot.results[job.job_id()] = run->Record().result();
              result.clear_losses();
              result.clear_validations();
              result.clear_order();
              snapshot.slow_ratios[job.job_id()] = run->SlowRatios();
            }
          }
          coordinator.rejected().AddTo(snapshot.rejected);
          refusals_.rejected().AddTo(snapshot.rejected);
          return snapshot;
        });
  }

  // Callers that come while the loop is asked wait for the same answer, be it an error.
  absl::StatusOr<std::shared_ptr<const ClusterLists>> Lists() {
    MutexLock lock(lists_mutex_);
    const int64_t now_ns = clock_.MonotonicNs();
    if (lists_until_ns_.has_value() && now_ns < *lists_until_ns_) return lists_;
    lists_ = loop_.Ask<std::shared_ptr<const ClusterLists>>(
        absl::Now() + kLookTimeout,
        [](Coordinator& coordinator, StateStore&,
           Now now) -> absl::StatusOr<std::shared_ptr<const ClusterLists>> {
          return std::make_shared<const ClusterLists>(ClusterLists{
              .jobs = coordinator.ListJobs(), .workers = coordinator.ListWorkers(now)});
        });
    lists_until_ns_ = clock_.MonotonicNs() + absl::ToInt64Nanoseconds(kListsKeptFor);
    return lists_;
  }

  absl::StatusOr<v1::GetJobResponse> Job(const std::string& job_id) {
    return loop_.Ask<v1::GetJobResponse>(
        absl::Now() + kLookTimeout,
        [this, job_id](Coordinator& coordinator, StateStore& store, Now) {
          return FindRecord(job_id, coordinator, store, loop_);
        });
  }

  absl::StatusOr<JobView> Look(const std::string& job_id) {
    PENSTOCK_ASSIGN_OR_RETURN(
        FoundTimeline found,
        loop_.Ask<FoundTimeline>(absl::Now() + kLookTimeout,
                                 [this, job_id](Coordinator& coordinator, StateStore& store, Now) {
                                   return FindTimeline(job_id, coordinator, store, loop_);
                                 }));
    JobView view{.record = std::move(found.record)};
    const v1::JobState state = view.record.summary().state();
    if (found.stored.ok()) {
      const auto& stages = view.record.result().per_stage();
      view.live = std::make_shared<const LiveRun>(
          LiveRun{.timeline = *std::move(found.stored), .stages = {stages.begin(), stages.end()}});
    } else if (state == v1::JOB_STATE_RUNNING || state == v1::JOB_STATE_DRAINING) {
      const v1::RunUse& use = view.record.result().feedback().measured();
      view.live = live_.Look(job_id, view.record.epoch(), view.record.plan(),
                             absl::Seconds(kStepsShown * use.step_seconds()));
    }
    return view;
  }

  HostPort address() const { return server_.address(); }
  HostPort health_address() const { return server_.health_address(); }

  // ---- EffectPerformer, on the loop's thread.
  void Perform(const CallWorker& call) override { caller_.Perform(call); }
  void Perform(const ProbeWorker& probe) override { prober_.Perform(probe); }
  void Perform(const FindCheckpoint& find) override { keeper_.Perform(find); }
  void Perform(const CommitStaged& commit) override { keeper_.Perform(commit); }
  void Perform(const DiscardStaged& discard) override { keeper_.Perform(discard); }
  void Perform(const JudgeCandidates& judge) override { judges_.Perform(judge); }
  void Perform(const GatherTimeline& gather) override {
    timelines_.Gather(
        gather.job_id, gather.plan,
        [this, job_id = gather.job_id](v1::GetTimelineResponse timeline) {
          loop_.Post(
              [this, job_id, timeline = std::move(timeline)](Coordinator& coordinator, Now now) {
                if (!timeline.spans().empty()) loop_.StoreTimeline(job_id, timeline);
                coordinator.OnAnswer(
                    job_id, TimelineGathered{TimelineOf(timeline).value_or(Timeline())}, now);
              });
        },
        gather.trace);
  }
  // A worker's answer may be anything; one that is no timeline counts for nothing.
  void Perform(const GatherPasses& gather) override {
    timelines_.GatherPasses(
        gather.job_id, gather.plan, absl::Nanoseconds(gather.last_ns),
        [this, job_id = gather.job_id, epoch = gather.epoch](
            const v1::GetTimelineResponse& response, std::vector<StageReports> stages) {
          loop_.Post([job_id, answer = PassesGathered{
                                  .epoch = epoch,
                                  .passes = TimelineOf(response).value_or(Timeline()),
                                  .stages = std::move(stages)}](Coordinator& coordinator, Now now) {
            coordinator.OnAnswer(job_id, answer, now);
          });
        });
  }
  // The loop runs before the server is started and after it has ended.
  void OnStoreWritable(bool writable) override {
    MutexLock lock(health_mutex_);
    store_writable_ = writable;
    if (tells_health_) server_.SetPartServing(kStatePart, writable);
  }
  void OnEventStored(const PublishEvent& published) override {
    watchers_.Wake(published.job_id);
    if (tracer_.has_value()) tracer_->Wake(published.job_id, published.event.sequence());
    recorder_.Wake(published.job_id, published.event);
    if (log_ == nullptr) {
      return;
    }
    if (published.event.has_state_changed()) {
      const v1::JobSummary& job = published.event.state_changed();
      log_(absl::StrCat("job ", job.job_id(), ": ", JobStateName(job.state()),
                        job.error().empty() ? "" : ": ", job.error(),
                        job.reason().empty() ? "" : ": ", job.reason()));
    } else if (published.event.has_log()) {
      log_(absl::StrCat("job ", published.job_id, ": ", published.event.log()));
    }
  }

 private:
  // The time for the loop's answer to those who look.
  static constexpr absl::Duration kLookTimeout = absl::Seconds(5);
  static constexpr double kStepsShown = 2.5;
  // The events that are read at a time, for spans and for records of steps.
  static constexpr int kEventsPerPage = 256;

  absl::StatusOr<std::vector<v1::JobEvent>> Events(const std::string& job_id,
                                                   int64_t after_sequence) {
    return loop_.Ask<std::vector<v1::JobEvent>>(
        absl::Now() + kLookTimeout, [job_id, after_sequence](Coordinator&, StateStore& store, Now) {
          return store.ReadEvents(job_id, after_sequence, kEventsPerPage);
        });
  }

  JobTracer::Parts TracerParts(std::function<void(std::vector<TraceSpan>)> spans) {
    return {.record = [this](const std::string& job_id) { return Job(job_id); },
            .events = [this](const std::string& job_id,
                             int64_t after_sequence) { return Events(job_id, after_sequence); },
            .add = std::move(spans),
            .log = log_};
  }

  StepRecorder::Parts RecorderParts(Files& files, LockFileOpener open) {
    return {.record = [this](const std::string& job_id) { return Job(job_id); },
            .events = [this](const std::string& job_id,
                             int64_t after_sequence) { return Events(job_id, after_sequence); },
            .log =
                [this](const std::string& job_id, const std::string& text) {
                  loop_.Post([this, job_id, text](Coordinator& coordinator, Now now) {
                    if (coordinator.Log(job_id, text, now) || log_ == nullptr) return;
                    log_(absl::StrCat("job ", job_id, ": ", text));
                  });
                },
            .files = files,
            .open = std::move(open)};
  }

  // REQUIRES: there is a log.
  void Audit(const AuditEntry& entry, const CallInfo& call, AuditLog::Done done) {
    audit_->Record(entry, call, absl::Now(),
                   [this, action = entry.action, peer = call.peer,
                    done = std::move(done)](const absl::Status& recorded) {
                     if (!recorded.ok() && log_ != nullptr) {
                       log_(absl::StrCat("the audit log lacks a ", action, " of ", peer, ": ",
                                         recorded.message()));
                     }
                     done(recorded);
                   });
  }

  // A worker that is started again and again fills neither log.
  void NoteOtherVersion(const absl::Status& refused, const CallInfo& call) {
    const std::optional<std::string> line =
        refusals_.Add(refused, absl::Now(), Rejection::kOtherVersion);
    if (!line.has_value()) return;
    if (log_ != nullptr) log_(*line);
    // The worker's refusal does not wait for the disk, and a failure is logged.
    if (audit_.has_value()) Audit({"register", "", refused}, call, [](const absl::Status&) {});
  }

  const std::function<void(const std::string&)> log_;
  Clock& clock_;
  Mutex lists_mutex_;
  absl::StatusOr<std::shared_ptr<const ClusterLists>> lists_ ABSL_GUARDED_BY(lists_mutex_) =
      absl::UnavailableError("not asked yet");
  std::optional<int64_t> lists_until_ns_ ABSL_GUARDED_BY(lists_mutex_);
  Mutex health_mutex_;
  bool tells_health_ ABSL_GUARDED_BY(health_mutex_) = false;
  bool store_writable_ ABSL_GUARDED_BY(health_mutex_) = true;
  const bool local_workers_only_;
  DigestStore* const data_;        // null: none
  Files* const checkpoint_files_;  // null: none for workers without a disk
  std::optional<AuditLog> audit_;
  RefusalLog refusals_;
  JobWatchers watchers_;
  FinishedJobs finished_;  // the loop's thread only
  EventLoop loop_;
  CheckpointKeeper keeper_;
  CandidateJudges judges_;
  LiveRuns live_;
  WorkerCalls calls_;
  TimelineGatherer timelines_;
  WorkerCaller caller_;
  WorkerProber prober_;
  RpcServer server_;
  std::optional<JobTracer> tracer_;  // if somebody takes spans
  StepRecorder recorder_;
  std::atomic<bool> serving_ = false;
};

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(
    const CoordinatorServerOptions& options, Clock& clock, Files& files) {
  // This is asked first, so that a second coordinator leaves no state file behind.
  PENSTOCK_RETURN_IF_ERROR(CheckCanListen(options.listen));
  JobStore::OnDropped on_dropped;
  if (options.drop_damaged) {
    on_dropped = [&log = options.log](const std::string& line) {
      if (log != nullptr) log(absl::StrCat("dropped as damaged: ", line));
    };
  }
  PENSTOCK_ASSIGN_OR_RETURN(JobStore store, JobStore::Open(options.state_file, on_dropped));
  return StartOn(std::make_unique<JobStore>(std::move(store)), nullptr, options, clock, files);
}

absl::StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::StartOn(
    std::unique_ptr<StateStore> store, std::unique_ptr<Mandate> mandate,
    const CoordinatorServerOptions& options, Clock& clock, Files& files) {
  auto impl = std::make_unique<Impl>(options, std::move(store), std::move(mandate), clock, files);
  PENSTOCK_RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<CoordinatorServer>(new CoordinatorServer(std::move(impl)));
}

CoordinatorServer::CoordinatorServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CoordinatorServer::~CoordinatorServer() = default;

HostPort CoordinatorServer::address() const { return impl_->address(); }
HostPort CoordinatorServer::health_address() const { return impl_->health_address(); }
absl::Status CoordinatorServer::Drain(absl::Duration timeout) { return impl_->Drain(timeout); }
void CoordinatorServer::Shutdown() { impl_->Shutdown(); }
absl::StatusOr<CoordinatorSnapshot> CoordinatorServer::Snapshot() { return impl_->Snapshot(); }
absl::StatusOr<std::shared_ptr<const ClusterLists>> CoordinatorServer::Lists() {
  return impl_->Lists();
}
absl::StatusOr<v1::GetJobResponse> CoordinatorServer::Job(const std::string& job_id) {
  return impl_->Job(job_id);
}
absl::StatusOr<JobView> CoordinatorServer::Look(const std::string& job_id) {
  return impl_->Look(job_id);
}

}  // namespace penstock
