#include "tests/simulation/world.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status.h"
#include "checkpoint/checkpoint.h"
#include "coordinator/job_state.h"
#include "coordinator/recovery_policy.h"
#include "job/defaults.h"
#include "services/coordinator/job_requests.h"
#include "services/rpc/limits.h"
#include "tests/job/jobs.h"

namespace penstock {
namespace {

constexpr size_t kLinesKept = 400;
constexpr int64_t kTurnsAtOnceMax = 10'000;
// By then every job is over, counted from the last fault.
constexpr absl::Duration kEndsWithin = absl::Hours(1);
// By then workers have stopped what is over.
constexpr absl::Duration kStopsWithin = absl::Seconds(45);

}  // namespace

World::World(uint64_t seed) : seed_(seed), random_(seed, 11) {
  coordinator_ = std::make_unique<SimulatedCoordinator>(
      SimulatedCoordinator::Parts{.time = time_,
                                  .random = random_,
                                  .network = network_,
                                  .files = files_,
                                  .kept = kept_,
                                  .trouble = store_trouble_,
                                  .watcher = *this,
                                  .worker = [this](const std::string& name) -> SimulatedWorker& {
                                    return *workers_.at(std::atoi(name.c_str() + 1));
                                  }});
  const int64_t workers = 1 + Below(5);
  for (int i = 0; i < workers; ++i) {
    workers_.push_back(std::make_unique<SimulatedWorker>(i, time_, *this));
  }
  step_time_ = absl::Milliseconds(20 + Below(200));
}

World::~World() {
  for (const auto& worker : workers_) worker->Kill();
  coordinator_->Kill();
}

Outcome World::Run() {
  users_.Start();
  StartCoordinator();
  for (const auto& worker : workers_) {
    time_.After(Up(absl::Seconds(2)), [&worker] { worker->Start(); });
  }
  DrawJobs();
  DrawFaults();
  while (!faults_are_over_) time_.RunNext(std::numeric_limits<int64_t>::max() / 2);
  const int64_t limit_ns = time_.MonotonicNs() + absl::ToInt64Nanoseconds(kEndsWithin);
  while (!AllOver() && time_.RunNext(limit_ns)) {
  }
  if (!AllOver()) Violate("jobs have not ended in time");
  const int64_t end_ns = time_.MonotonicNs() + absl::ToInt64Nanoseconds(kStopsWithin);
  while (time_.RunNext(end_ns)) {
  }
  Judge();
  outcome_.last_lines = absl::StrJoin(lines_, "\n");
  return std::move(outcome_);
}

// ------------------------------------------------------------------------------------------ jobs

void World::DrawJobs() {
  const int64_t jobs = 1 + Below(4);
  for (int i = 0; i < jobs; ++i) {
    const auto stages = static_cast<int32_t>(Below(4) == 0 ? 0 : 1 + Below(workers_.size()));
    Wish wish{.spec = SmallJob(1 + Below(60), stages), .key = absl::StrCat("key-", i)};
    if (Below(4) != 0) {
      wish.spec.mutable_checkpoint()->set_directory(absl::StrCat("/checkpoints/", i));
      wish.spec.mutable_checkpoint()->set_every_steps(Below(3) == 0 ? 0 : 1 + Below(12));
    }
    if (Below(2) == 0) {
      wish.spec.mutable_validation()->set_every_steps(1 + Below(12));
      wish.spec.mutable_validation()->set_batches(1);
    }
    if (Below(3) == 0) wish.spec.mutable_recovery()->set_snapshot_every_steps(1 + Below(5));
    if (Below(3) == 0) wish.spec.mutable_recovery()->set_mode("auto");
    // There are few faults, but all may come before the first step.
    wish.spec.mutable_recovery()->set_no_progress_max(100);
    wish.spec.mutable_recovery()->set_restarts_max(100);
    FillDefaults(wish.spec);
    wishes_.push_back(std::move(wish));
    time_.After(Up(absl::Seconds(20)), [this, i] { Submit(i); });
    if (Below(6) == 0) {
      time_.After(absl::Seconds(1) + Up(absl::Seconds(40)), [this, i] {
        wishes_[i].cancelled = true;
        Cancel(i);
      });
    }
  }
}

void World::Submit(int wish) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = wishes_[wish].spec;
  request.set_idempotency_key(wishes_[wish].key);
  network_.Call<v1::SubmitJobResponse>(
      users_, coordinator_->process(), rpc_limits::kQuickCallTimeout,
      [this, request](SimulatedNetwork::Reply<v1::SubmitJobResponse> reply) {
        coordinator_->Ask<v1::SubmitJobResponse>(
            [this, request](Coordinator& coordinator, StateStore&, Now now) {
              return TakeJob(coordinator.CheckSubmission(request, now), std::nullopt, coordinator,
                             coordinator_->loop(), now);
            },
            std::move(reply));
      },
      [this, wish](const absl::StatusOr<v1::SubmitJobResponse>& answer) {
        if (answer.ok()) {
          Say(absl::StrCat(answer->job_id(), " is taken"));
          wishes_[wish].job_id = answer->job_id();
        } else if (absl::IsUnavailable(answer.status()) ||
                   absl::IsDeadlineExceeded(answer.status())) {
          users_.After(absl::Seconds(1), [this, wish] { Submit(wish); });
        } else {
          Violate(absl::StrCat("a job is refused: ", answer.status().ToString()));
        }
      });
}

void World::Cancel(int wish) {
  const std::string& job_id = wishes_[wish].job_id;
  const auto again = [this, wish] { Cancel(wish); };
  if (job_id.empty()) return users_.After(absl::Seconds(1), again);
  network_.Call<v1::CancelJobResponse>(
      users_, coordinator_->process(), rpc_limits::kQuickCallTimeout,
      [this, job_id](SimulatedNetwork::Reply<v1::CancelJobResponse> reply) {
        coordinator_->Ask<v1::CancelJobResponse>(
            [this, job_id](Coordinator& coordinator, StateStore&, Now now) {
              return CancelJob(job_id, coordinator, coordinator_->loop(), now);
            },
            std::move(reply));
      },
      [this, job_id, again](const absl::StatusOr<v1::CancelJobResponse>& answer) {
        Say(absl::StrCat(job_id, " cancelled: ", answer.status().ToString()));
        if (answer.ok()) return;
        if (absl::IsNotFound(answer.status())) Violate(absl::StrCat(job_id, " is not known"));
        users_.After(absl::Seconds(1), again);
      });
}

// ---------------------------------------------------------------------------------------- faults

void World::DrawFaults() {
  const int64_t faults = Below(Below(4) == 0 ? 25 : 7);
  absl::Duration last = absl::Seconds(15);
  for (int64_t i = 0; i < faults; ++i) {
    const absl::Duration at = Up(absl::Seconds(30));
    last = std::max(last, at);
    time_.After(at, [this] { DrawFault(); });
  }
  time_.After(last, [this] {
    time_.After(absl::Nanoseconds(faults_end_ns_ - time_.MonotonicNs()) + absl::Seconds(1),
                [this] { EndFaults(); });
  });
}

void World::Count(const std::string& fault) {
  Say(absl::StrCat("* ", fault));
  ++outcome_.faults[fault.substr(0, fault.find(':'))];
}

void World::DrawFault() {
  const absl::Duration length = Below(3) == 0 ? Up(absl::Seconds(60)) : Up(absl::Seconds(8));
  faults_end_ns_ = std::max(faults_end_ns_, time_.MonotonicNs() + absl::ToInt64Nanoseconds(length));
  SimulatedWorker& worker = AnyWorker();
  Process& process = worker.process();
  const int64_t life = process.life();
  Process& coordinator = coordinator_->process();
  const std::string& name = process.name();
  switch (Below(17)) {
    case 0:
    case 1:
      Count(absl::StrCat("worker dies: ", name));
      worker.Kill();
      return time_.After(length, [&worker] { worker.Start(); });
    case 2:
      Count("coordinator dies");
      coordinator_->Kill();
      return time_.After(length, [this] { StartCoordinator(); });
    case 3:
      Count("coordinator dies after writing");
      return coordinator_->DieAt(CoordinatorDeath::kAfterWriting);
    case 4:
      Count("coordinator dies while committing");
      return coordinator_->DieAt(CoordinatorDeath::kWhileCommitting);
    case 5:
      Count(absl::StrCat("worker dies in a save: ", name));
      saves_to_die_in_.insert(name);
      return;
    case 6:
      Count(absl::StrCat("worker freezes: ", name));
      process.Freeze();
      return time_.After(length, [&process, life] {
        if (process.life() == life) process.Thaw();
      });
    case 7:
      Count("coordinator freezes");
      coordinator.Freeze();
      return time_.After(length, [&coordinator, life = coordinator.life()] {
        if (coordinator.life() == life) coordinator.Thaw();
      });
    case 8:
      Count(absl::StrCat("worker is cut off from the coordinator: ", name));
      network_.Cut(process, coordinator);
      return time_.After(length,
                         [this, &process, &coordinator] { network_.Mend(process, coordinator); });
    case 9: {
      Process& other = AnyWorker().process();
      if (&other == &process) return;
      Count(absl::StrCat("workers are cut off from each other: ", name, " and ", other.name()));
      network_.Cut(process, other);
      return time_.After(length, [this, &process, &other] { network_.Mend(process, other); });
    }
    case 10:
    case 11:
      Count("network is disturbed");
      network_.Disturb({.lost_requests_percent = static_cast<int>(Below(30)),
                        .lost_answers_percent = static_cast<int>(Below(30)),
                        .repeated_percent = static_cast<int>(Below(30)),
                        .slow_percent = static_cast<int>(Below(30))});
      return time_.After(length, [this] { network_.Disturb({}); });
    case 12:
      Count("wall clock jumps");
      return time_.MoveWallClock(absl::Hours(Below(3) - 1) + Up(absl::Minutes(1)));
    case 13:
      Count("disk is full");
      disk_was_full_ = true;
      files_.SetCapacity(files_.UsedBytes() + Below(2000));
      return time_.After(length,
                         [this] { files_.SetCapacity(std::numeric_limits<int64_t>::max()); });
    case 14: {
      constexpr StoreTrouble kTroubles[] = {StoreTrouble::kFull, StoreTrouble::kSilent,
                                            StoreTrouble::kPartial};
      Count("store cannot be written");
      store_trouble_ = kTroubles[Below(3)];
      return time_.After(length, [this] { store_trouble_ = StoreTrouble::kNone; });
    }
    case 15:
      Count(absl::StrCat("worker leaves: ", name));
      worker.Leave();
      return time_.After(length, [&worker, &process, life] {
        if (process.life() == life) worker.Kill();
        worker.Start();
      });
    default:
      Count("power fails");
      return LosePower();
  }
}

// All processes end at once, and what was not made durable is there in part.
void World::LosePower() {
  for (const auto& worker : workers_) worker->Kill();
  coordinator_->Kill();
  files_.Crash([this](const std::string&) { return random_.Below(2) == 0; });
  kept_.LosePower(random_);
  time_.After(Up(absl::Seconds(10)), [this] { StartCoordinator(); });
  for (const auto& worker : workers_) {
    time_.After(Up(absl::Seconds(20)), [&worker] { worker->Start(); });
  }
}

void World::EndFaults() {
  Say("faults are over");
  faults_are_over_ = true;
  network_.Disturb({});
  coordinator_->DieAt(CoordinatorDeath::kNone);
  saves_to_die_in_.clear();
  files_.SetCapacity(std::numeric_limits<int64_t>::max());
  store_trouble_ = StoreTrouble::kNone;
  StartCoordinator();
  coordinator_->process().Thaw();
  for (const auto& worker : workers_) {
    worker->Start();
    worker->process().Thaw();
    network_.Mend(worker->process(), coordinator_->process());
    for (const auto& other : workers_) network_.Mend(worker->process(), other->process());
  }
}

// It goes on from what is kept, some of which was never told.
void World::StartCoordinator() {
  if (coordinator_->process().alive()) return;
  for (const auto& [id, job] : kept_.jobs) {
    told_sequences_[id] = static_cast<int64_t>(job.events.size());
  }
  coordinator_->Start();
}

void World::OnCoordinatorDied() {
  time_.After(absl::Milliseconds(500) + Up(absl::Seconds(5)), [this] { StartCoordinator(); });
}

// --------------------------------------------------------------------------------------- workers

void World::Register(Process& from, const v1::RegisterWorkerRequest& request,
                     SimulatedNetwork::Reply<v1::RegisterWorkerResponse> done) {
  network_.Call<v1::RegisterWorkerResponse>(
      from, coordinator_->process(), rpc_limits::kQuickCallTimeout,
      [this, request](SimulatedNetwork::Reply<v1::RegisterWorkerResponse> reply) {
        coordinator_->Ask<v1::RegisterWorkerResponse>(
            [request](Coordinator& coordinator, StateStore&, Now now) {
              return coordinator.RegisterWorker(request, now);
            },
            std::move(reply));
      },
      std::move(done));
}

void World::Heartbeat(Process& from, const v1::HeartbeatRequest& request,
                      SimulatedNetwork::Reply<v1::HeartbeatResponse> done) {
  network_.Call<v1::HeartbeatResponse>(
      from, coordinator_->process(), rpc_limits::kHeartbeatCallTimeout,
      [this, request](SimulatedNetwork::Reply<v1::HeartbeatResponse> reply) {
        coordinator_->Ask<v1::HeartbeatResponse>(
            [request](Coordinator& coordinator, StateStore&,
                      Now now) -> absl::StatusOr<v1::HeartbeatResponse> {
              PENSTOCK_RETURN_IF_ERROR(coordinator.Heartbeat(request, now));
              return coordinator.AnswerTo(request);
            },
            std::move(reply));
      },
      std::move(done));
}

void World::Report(Process& from, const v1::ReportRunRequest& request,
                   SimulatedNetwork::Reply<v1::ReportRunResponse> done) {
  network_.Call<v1::ReportRunResponse>(
      from, coordinator_->process(), rpc_limits::kQuickCallTimeout,
      [this, request](SimulatedNetwork::Reply<v1::ReportRunResponse> reply) {
        coordinator_->Ask<v1::ReportRunResponse>(
            [this, request](Coordinator& coordinator, StateStore&, Now now) {
              int64_t& arrived = arrived_[{request.worker(), request.incarnation(),
                                           request.job_id(), request.epoch()}];
              if (request.first_sequence() <= arrived) {
                arrived = std::max(arrived, request.first_sequence() + request.events_size());
              }
              absl::StatusOr<v1::ReportRunResponse> answer = coordinator.ReportRun(request, now);
              const std::string from = absl::StrCat(request.worker(), " on ", request.job_id(),
                                                    ", epoch ", request.epoch());
              if (answer.ok() && request.epoch() < newest_epochs_[request.job_id()]) {
                Violate(absl::StrCat("a report of ", from, " is taken, which is over"));
              }
              if (answer.ok() && answer->next_sequence() > arrived) {
                Violate(absl::StrCat("event ", arrived, " of ", from, " is passed over"));
              }
              return answer;
            },
            std::move(reply));
      },
      std::move(done));
}

void World::Attach(Process& from, const v1::AttachRequest& request,
                   std::function<void(const absl::Status&)> ended) {
  const auto life = std::make_shared<int64_t>(0);  // of the coordinator that answers
  network_.Call<int64_t>(
      from, coordinator_->process(), rpc_limits::kQuickCallTimeout,
      [this, request, life](SimulatedNetwork::Reply<int64_t> reply) {
        *life = coordinator_->process().life();
        coordinator_->Ask<int64_t>([request](Coordinator& coordinator, StateStore&,
                                             Now now) { return coordinator.Attach(request, now); },
                                   std::move(reply));
      },
      [this, &from, life, ended = std::move(ended)](const absl::StatusOr<int64_t>& number) {
        if (!number.ok()) return ended(number.status());
        Process& coordinator = coordinator_->process();
        if (!coordinator.alive() || coordinator.life() != *life) {
          return ended(absl::UnavailableError("connection closed"));
        }
        auto stream = std::make_shared<Stream>(
            Stream{from, *life, *number, true, absl::ZeroDuration(),
                   [&from, life = from.life(), ended](const absl::Status& why) {
                     from.Do(life, [ended, why] { ended(why); });
                   }});
        const auto gone = [this, stream] {
          time_.After(network_.Delay(), [this, stream] {
            EndStream(stream, absl::UnavailableError("connection closed"), /*tells=*/true);
          });
        };
        from.OnDeath(gone);
        coordinator.OnDeath(gone);
        time_.After(rpc_limits::kAttachTimeout, [this, stream] {
          EndStream(stream, absl::DeadlineExceededError("a minute"), /*tells=*/false);
        });
        WatchStream(stream);
      });
}

void World::EndStream(const std::shared_ptr<Stream>& stream, const absl::Status& why, bool tells) {
  if (!std::exchange(stream->open, false)) return;
  stream->ended(why);
  Process& coordinator = coordinator_->process();
  if (!tells || !coordinator.alive() || coordinator.life() != stream->coordinator_life) return;
  coordinator.Do(coordinator.life(),
                 [this, worker = stream->worker.name(), number = stream->number] {
                   coordinator_->Post([worker, number](Coordinator& coordinator, Now now) {
                     coordinator.Detach(worker, number, now);
                   });
                 });
}

// Both sides notice when they have not heard of the other for a while.
void World::WatchStream(const std::shared_ptr<Stream>& stream) {
  constexpr absl::Duration kInterval = absl::Milliseconds(500);
  time_.After(kInterval, [this, stream] {
    if (!stream->open) return;
    const Process& coordinator = coordinator_->process();
    const bool silent = stream->worker.frozen() || coordinator.frozen() ||
                        !network_.Connects(stream->worker, coordinator);
    stream->silent = silent ? stream->silent + kInterval : absl::ZeroDuration();
    if (stream->silent >= absl::Milliseconds(rpc_limits::kServerKeepaliveTimeoutMs)) {
      return EndStream(stream, absl::UnavailableError("keepalive timeout"), /*tells=*/true);
    }
    WatchStream(stream);
  });
}

absl::StatusOr<SimulatedRunParts> World::PartsOf(const v1::PrepareRunRequest& request,
                                                 Process& process) {
  std::vector<Peer> peers;
  for (const v1::StageAssignment& stage : request.plan().stages()) {
    if (stage.worker_index() >= static_cast<int>(peers.size())) {
      peers.resize(stage.worker_index() + 1);
    }
    const auto worker = std::find_if(workers_.begin(), workers_.end(), [&](const auto& other) {
      return other->process().name() == stage.worker();
    });
    peers[stage.worker_index()] = {&(*worker)->process(),
                                   SimulatedWorker::LifeOf(stage.incarnation())};
  }
  std::shared_ptr<Pipeline>& pipeline = pipelines_[{request.job_id(), request.epoch()}];
  if (pipeline == nullptr) pipeline = std::make_shared<Pipeline>(static_cast<int>(peers.size()));
  return SimulatedRunParts{.process = process,
                           .network = network_,
                           .time = time_,
                           .random = random_,
                           .files = files_,
                           .job = Resolve(request.spec()),
                           .pipeline = pipeline,
                           .peers = std::move(peers),
                           .save =
                               [this, &process](const std::function<void()>& write) {
                                 if (saves_to_die_in_.erase(process.name()) == 0)
                                   return write(), true;
                                 files_.FailFrom(Below(8),
                                                 absl::InternalError("the process is gone"),
                                                 /*tears_writes=*/Below(2) == 0);
                                 write();
                                 files_.Heal();
                                 Say(absl::StrCat(process.name(), " dies in a save"));
                                 KillWorker(std::atoi(process.name().c_str() + 1));
                                 return false;
                               },
                           .step_time = step_time_};
}

void World::KillWorker(int worker) {
  workers_[worker]->Kill();
  time_.After(Up(absl::Seconds(10)), [this, worker] { workers_[worker]->Start(); });
}

absl::Duration World::PrepareTime() {
  return absl::Milliseconds(5) + Up(Below(10) == 0 ? absl::Seconds(10) : absl::Milliseconds(300));
}

SnapshotMemory* World::MemoryOf(const Process& from, const v1::SnapshotHolder& holder) {
  for (const auto& worker : workers_) {
    const Process& process = worker->process();
    if (process.name() != holder.worker()) continue;
    const bool answers = process.alive() && !process.frozen() &&
                         process.life() == SimulatedWorker::LifeOf(holder.incarnation()) &&
                         network_.Connects(from, process);
    return answers ? &worker->snapshots() : nullptr;
  }
  return nullptr;
}

std::shared_ptr<const ResolvedJob> World::Resolve(const v1::JobSpec& spec) {
  std::shared_ptr<const ResolvedJob>& job = resolved_[spec.SerializeAsString()];
  if (job == nullptr) job = std::make_shared<const ResolvedJob>(ResolveJob(spec).value());
  return job;
}

// --------------------------------------------------------------------------------------- judging

void World::Violate(const std::string& what) {
  Say(absl::StrCat("VIOLATION: ", what));
  outcome_.violations.push_back(what);
}

void World::Say(const std::string& line) {
  lines_.push_back(absl::StrFormat("%9.3f  %s", 1e-9 * time_.MonotonicNs() - 1.0, line));
  for (const char letter : lines_.back()) {
    outcome_.fingerprint = (outcome_.fingerprint ^ static_cast<uint8_t>(letter)) * 1099511628211u;
  }
  if (lines_.size() > kLinesKept) lines_.pop_front();
}

void World::OnTurn(const absl::Status& invariants) {
  if (!invariants.ok()) Violate(invariants.ToString());
  // A deadline that does not go away would keep the loop busy for ever.
  const int64_t before_ns = std::exchange(turn_ns_, time_.MonotonicNs());
  turns_now_ = before_ns == turn_ns_ ? turns_now_ + 1 : 0;
  PENSTOCK_CHECK(turns_now_ < kTurnsAtOnceMax);
}

void World::OnTakenUp(const std::string& worker, const v1::PrepareRunRequest& request) {
  Say(absl::StrCat(worker, " prepares ", request.job_id(), ", epoch ", request.epoch()));
  const int64_t life = workers_.at(std::atoi(worker.c_str() + 1))->process().life();
  int64_t& seen = seen_epochs_[{worker, life, request.job_id()}];
  if (request.epoch() < seen) {
    Violate(absl::StrCat(worker, " takes up epoch ", request.epoch(), " of ", request.job_id(),
                         ", and has seen epoch ", seen));
  }
  seen = std::max(seen, request.epoch());
  int64_t& newest = newest_epochs_[request.job_id()];
  newest = std::max(newest, request.epoch());
}

void World::OnCall(const CallWorker& call) {
  const auto* prepare = std::get_if<v1::PrepareRunRequest>(&call.request);
  if (prepare == nullptr) return;
  const std::string name = absl::StrCat("epoch ", call.epoch, " of ", call.job_id);
  Say(absl::StrCat("-> ", call.worker, " prepares ", name));
  if (kept_.jobs[call.job_id].record.epoch() < call.epoch) Violate(name + " is not kept");
  const int64_t life = coordinator_->process().life();
  const auto giver = givers_.emplace(std::pair(call.job_id, call.epoch), life).first;
  if (giver->second != life) Violate(name + " is given by two processes");
  if (prepare->first_step() < committed_steps_[call.job_id]) {
    Violate(absl::StrCat(name, " goes on after step ", prepare->first_step(), ", but step ",
                         committed_steps_[call.job_id], " is saved"));
  }
  first_steps_[call.job_id] = prepare->first_step();
  if (prepare->has_snapshot() && call.worker_index == 0) ++outcome_.snapshot_starts;
}

void World::OnCommit(const CommitStaged& commit) {
  if (commit.manifest.epoch < newest_epochs_[commit.job_id]) {
    Violate(absl::StrCat("step ", commit.manifest.step, " of ", commit.job_id, ", epoch ",
                         commit.manifest.epoch, ", is committed, but a worker has epoch ",
                         newest_epochs_[commit.job_id]));
  }
}

void World::OnCommitted(const CommitStaged& commit,
                        const absl::StatusOr<CommittedCheckpoint>& committed) {
  Say(absl::StrCat("commits step ", commit.manifest.step, " of ", commit.job_id, ": ",
                   committed.status().ToString()));
  if (!committed.ok()) return;
  ++outcome_.commits;
  int64_t& step = committed_steps_[commit.job_id];
  step = std::max(step, commit.manifest.step);
  const Manifest& manifest = commit.manifest;
  for (int32_t layer = 0; layer < commit.options.layers; ++layer) {
    const LayerState state = LoadLayer(files_, committed->directory, manifest, layer).value();
    if (state.weights[0].values == WeightsAfter(layer, manifest.step)[0].values) continue;
    Violate(absl::StrCat(committed->directory, " has other weights of layer ", layer));
  }
}

void World::OnStored(const PublishEvent& event) {
  const std::string& job = event.job_id;
  int64_t& sequence = told_sequences_[job];
  if (event.event.sequence() != sequence + 1) {
    Violate(absl::StrCat("event ", event.event.sequence(), " of ", job, " after ", sequence));
  }
  sequence = event.event.sequence();
  if (event.event.has_state_changed()) {
    const v1::JobSummary& summary = event.event.state_changed();
    Say(absl::StrCat("    ", job, " is ", JobStateName(summary.state()), " ", summary.error(), " ",
                     summary.reason()));
  } else if (event.event.has_log()) {
    Say(absl::StrCat("    ", job, ": ", event.event.log()));
  }
  if (!event.event.has_step_done()) return;
  const int64_t step = event.event.step_done().step();
  if (step <= first_steps_[job]) {
    Violate(absl::StrCat("step ", step, " of ", job, " is told, which went on after step ",
                         first_steps_[job]));
  }
}

bool World::AllOver() const {
  return std::all_of(wishes_.begin(), wishes_.end(), [this](const Wish& wish) {
    if (wish.job_id.empty()) return false;
    const auto job = kept_.jobs.find(wish.job_id);
    return job != kept_.jobs.end() && IsTerminal(job->second.record.summary().state());
  });
}

void World::Judge() {
  if (kept_.gaps > 0) Violate("events are missing in the store");
  if (kept_.jobs.size() > wishes_.size()) Violate("there are more jobs than were submitted");
  for (const Wish& wish : wishes_) {
    if (!wish.job_id.empty()) JudgeJob(wish);
  }
  for (const auto& worker : workers_) {
    if (const std::string held = worker->Holds(); !held.empty()) Violate(held);
  }
}

void World::JudgeJob(const Wish& wish) {
  const absl::StatusOr<v1::JobSummary> known = coordinator_->coordinator().FindSummary(wish.job_id);
  if (!known.ok()) return Violate(absl::StrCat(wish.job_id, ": ", known.status().ToString()));
  const v1::GetJobResponse& record = kept_.jobs[wish.job_id].record;
  const v1::JobSummary& summary = record.summary();
  ++outcome_.states[summary.state()];
  outcome_.recoveries += record.result().recoveries();
  const int64_t steps = wish.spec.training().steps();
  const std::string name = absl::StrCat(wish.job_id, " (", JobStateName(summary.state()), ")");
  const bool had_faults = !outcome_.faults.empty();
  switch (summary.state()) {
    case v1::JOB_STATE_SUCCEEDED: {
      if (summary.step() != steps) {
        Violate(absl::StrCat(name, " has done ", summary.step(), " steps of ", steps));
      }
      const std::string digest = DigestAfter(*Resolve(record.spec()), steps);
      if (record.result().weights_sha256() != digest) {
        Violate(absl::StrCat(
            name, " has other weights than its steps make: ", record.result().weights_sha256()));
      }
      const std::string& directory = wish.spec.checkpoint().directory();
      if (directory.empty()) return;
      const absl::StatusOr<FoundCheckpoint> last = FindLatestCheckpoint(files_, directory);
      if (!last.ok() || last->manifest.step != steps) {
        Violate(absl::StrCat(name, " is not saved: ", last.status().ToString()));
      }
      return;
    }
    case v1::JOB_STATE_CANCELLED:
      if (!wish.cancelled) Violate(absl::StrCat(name, ": ", summary.reason()));
      return;
    case v1::JOB_STATE_FAILED: {
      // A job that is to end anyway is not begun again.
      const bool recovers = Recovers(wish.spec) && !wish.cancelled;
      const bool is_explained =
          had_faults &&
          (!recovers || (disk_was_full_ && absl::StrContains(summary.error(), "save")));
      if (!is_explained) Violate(absl::StrCat(name, ": ", summary.error()));
      return;
    }
    default:
      return;  // said already
  }
}

}  // namespace penstock
