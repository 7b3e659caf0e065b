#include "tests/simulation/simulated_worker.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "services/worker/run_peers.h"

namespace penstock {
namespace {

// As worker_service.cc: handlers stop waiting this long before the caller does.
constexpr absl::Duration kAnswerTime = absl::Milliseconds(50);

// Copies and fetches snapshots at once.
class SimulatedPeers final : public SnapshotPeers {
 public:
  SimulatedPeers(SnapshotMemory& memory, const Process& process, WorkerSurroundings& world)
      : memory_(memory), process_(process), world_(world) {}

  SnapshotMemory& memory() override { return memory_; }
  absl::Status Send(const v1::SnapshotHolder& peer, const std::string& path,
                    absl::FunctionRef<absl::Status()> may_go_on) override {
    PENSTOCK_RETURN_IF_ERROR(may_go_on());
    SnapshotMemory* const there = world_.MemoryOf(process_, peer);
    if (there == nullptr) return absl::UnavailableError(peer.worker() + " does not answer");
    PENSTOCK_ASSIGN_OR_RETURN(const std::string content, memory_.Read(path, 1 << 20));
    return there->WritePart(path, static_cast<int64_t>(content.size()), 0, content);
  }
  absl::StatusOr<std::string> Fetch(const v1::SnapshotHolder& peer, const std::string& path,
                                    int64_t size_bytes,
                                    absl::FunctionRef<absl::Status()> may_go_on) override {
    PENSTOCK_RETURN_IF_ERROR(may_go_on());
    SnapshotMemory* const there = world_.MemoryOf(process_, peer);
    if (there == nullptr) return absl::UnavailableError(peer.worker() + " does not answer");
    return there->ReadPart(path, 0, size_bytes);
  }

 private:
  SnapshotMemory& memory_;
  const Process& process_;
  WorkerSurroundings& world_;
};

}  // namespace

SimulatedWorker::SimulatedWorker(int index, VirtualTime& time, WorkerSurroundings& world)
    : index_(index), time_(time), world_(world), process_(time, absl::StrCat("w", index)) {}

std::string SimulatedWorker::address() const {
  return absl::StrCat("10.0.0.", index_ + 1, ":7000");
}

void SimulatedWorker::Start() {
  if (process_.alive()) return;
  process_.Start();
  life_ = std::make_unique<Life>(process_.name(),
                                 (uint64_t(index_) + 1) << 16 | uint64_t(process_.life()));
  life_->snapshot_peers = std::make_unique<SimulatedPeers>(life_->snapshots, process_, world_);
  SpeakAfter(absl::ZeroDuration());
}

void SimulatedWorker::Kill() {
  if (!process_.alive()) return;
  process_.Kill();
  life_.reset();
}

void SimulatedWorker::Leave() {
  if (!process_.alive()) return;
  process_.Do(process_.life(), [this] {
    world_.Say(absl::StrCat(process_.name(), " leaves"));
    life_->dialogue.Leave();
    SpeakAfter(absl::ZeroDuration());
  });
}

std::string SimulatedWorker::Holds() const {
  if (life_ == nullptr || !life_->desk.IsActive()) return "";
  const RunDesk::AttemptRef& attempt = life_->desk.attempt();
  return absl::StrCat(process_.name(), " has ", attempt->job_id, ", epoch ", attempt->epoch);
}

// ---------------------------------------------------------------------------------- registration

void SimulatedWorker::SpeakAfter(absl::Duration wait) {
  process_.After(wait, [this, speech = ++life_->speech] {
    if (speech == life_->speech && !life_->speaks) Speak();
  });
}

void SimulatedWorker::Speak() {
  switch (life_->dialogue.Next()) {
    case RegistrationDialogue::Call::kRegister: {
      v1::RegisterWorkerRequest request;
      request.set_name(process_.name());
      request.set_address(address());
      request.set_incarnation(life_->incarnation);
      request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
      request.set_device("cpu");
      life_->speaks = true;
      return world_.Register(process_, request, [this](const auto& answer) {
        const RegistrationDialogue::AfterAnswer after = life_->dialogue.OnRegistered(answer);
        if (after.news.has_value() && after.news->ok()) {
          life_->outbox.AskAgain();
          life_->report_wait = absl::ZeroDuration();
          if (!life_->reports) Report();
        }
        OnSaid(after);
        StayAttached();
      });
    }
    case RegistrationDialogue::Call::kHeartbeat: {
      const v1::HeartbeatRequest request = Beat();
      life_->speaks = true;
      return world_.Heartbeat(process_, request, [this, request](const auto& answer) {
        if (answer.ok()) life_->snapshots.KeepNeeded(request, *answer);
        OnSaid(life_->dialogue.OnHeartbeat(request, answer));
      });
    }
    case RegistrationDialogue::Call::kNone:
      world_.Say(absl::StrCat(process_.name(), " ends"));
      // Not in the midst of its own event.
      return time_.After(absl::ZeroDuration(), [this, life = process_.life()] {
        if (process_.life() == life) Kill();
      });
  }
}

void SimulatedWorker::OnSaid(const RegistrationDialogue::AfterAnswer& after) {
  life_->speaks = false;
  SpeakAfter(after.wait);
}

v1::HeartbeatRequest SimulatedWorker::Beat() const {
  v1::HeartbeatRequest request;
  request.set_name(process_.name());
  request.set_incarnation(life_->incarnation);
  if (life_->desk.IsActive()) {
    const RunDesk::Attempt& attempt = *life_->desk.attempt();
    request.set_job_id(attempt.job_id);
    request.set_epoch(attempt.epoch);
    const Run* run = attempt.run;
    request.set_actions_done(run == nullptr ? attempt.actions_done : run->actions_done());
    if (run != nullptr) request.set_pulse(run->pulse());
    request.set_held(attempt.held);
  }
  request.set_leaving(life_->dialogue.leaving());
  for (std::string& job : life_->snapshots.Jobs()) request.add_snapshot_jobs(std::move(job));
  return request;
}

void SimulatedWorker::StayAttached() {
  if (life_->attached || !life_->dialogue.MayAttach()) return;
  life_->attached = true;
  v1::AttachRequest request;
  request.set_name(process_.name());
  request.set_incarnation(life_->incarnation);
  world_.Attach(
      process_, request,
      [this, registrations = life_->dialogue.registrations(),
       since_ns = time_.MonotonicNs()](const absl::Status& ended) {
        const auto open_for = absl::Nanoseconds(time_.MonotonicNs() - since_ns);
        if (life_->dialogue.OnStreamEnded(registrations, open_for, ended) && !life_->speaks) {
          SpeakAfter(absl::ZeroDuration());
        }
        process_.After(life_->dialogue.stream_pause(), [this] {
          life_->attached = false;
          StayAttached();
        });
      });
}

// ------------------------------------------------------------------------------------- reporting

void SimulatedWorker::AddEvent(v1::RunEvent event) {
  GiveUp(life_->outbox.Add(std::move(event)));
  if (!life_->reports) Report();
}

void SimulatedWorker::Report() {
  life_->reports = !life_->outbox.empty();
  if (!life_->reports) return;
  const v1::ReportRunRequest batch = life_->outbox.NextBatch();
  world_.Report(process_, batch, [this, batch](const auto& answer) {
    const EventOutbox::AfterAnswer after =
        life_->outbox.OnAnswer(batch, answer, life_->report_wait);
    life_->report_wait = after.wait;
    GiveUp(after.given_up);
    process_.After(after.wait, [this] { Report(); });
  });
}

void SimulatedWorker::GiveUp(const std::optional<EventOutbox::GivenUp>& given_up) {
  if (!given_up.has_value()) return;
  life_->desk.Stop(given_up->job_id, given_up->epoch, std::string(given_up->reason.message()));
  OnDesk();
}

// ------------------------------------------------------------------------------------------ runs

void SimulatedWorker::Serve(const WorkerRequest& request, absl::Duration timeout,
                            std::function<void(WorkerResponse)> reply) {
  if (const auto* prepare = std::get_if<v1::PrepareRunRequest>(&request)) {
    return Prepare(*prepare, timeout, std::move(reply));
  }
  if (const auto* start = std::get_if<v1::StartRunRequest>(&request)) {
    const absl::Status started = life_->desk.Start(start->job_id(), start->epoch());
    reply(started.ok() ? absl::StatusOr<v1::StartRunResponse>(v1::StartRunResponse()) : started);
    return OnDesk();
  }
  if (const auto* hold = std::get_if<v1::HoldRunRequest>(&request)) {
    reply([&]() -> absl::StatusOr<v1::HoldRunResponse> {
      PENSTOCK_ASSIGN_OR_RETURN(Run* const run,
                                life_->desk.FindToHold(hold->job_id(), hold->epoch()));
      v1::HoldRunResponse response;
      PENSTOCK_ASSIGN_OR_RETURN(const int64_t step, run->Hold());
      response.set_step(step);
      return response;
    }());
    return;
  }
  if (const auto* cut = std::get_if<v1::CutRunRequest>(&request)) {
    reply([&]() -> absl::StatusOr<v1::CutRunResponse> {
      PENSTOCK_ASSIGN_OR_RETURN(Run* const run,
                                life_->desk.FindRunning(cut->job_id(), cut->epoch()));
      PENSTOCK_RETURN_IF_ERROR(run->CutAt(cut->step()));
      return v1::CutRunResponse();
    }());
    return;
  }
  if (const auto* stop = std::get_if<v1::StopRunRequest>(&request)) {
    const RunDesk::AttemptRef attempt =
        life_->desk.Stop(stop->job_id(), stop->epoch(), stop->reason());
    Await([attempt] { return attempt == nullptr || attempt->phase == RunDesk::Phase::kEnded; },
          timeout,
          [reply = std::move(reply)](bool in_time) {
            if (in_time) return reply(absl::StatusOr<v1::StopRunResponse>(v1::StopRunResponse()));
            reply(absl::StatusOr<v1::StopRunResponse>(
                absl::DeadlineExceededError("still stopping; call again")));
          });
    return OnDesk();
  }
  reply(absl::StatusOr<v1::PrepareProfileResponse>(
      absl::UnimplementedError("simulated workers do not measure")));
}

void SimulatedWorker::Prepare(const v1::PrepareRunRequest& request, absl::Duration timeout,
                              std::function<void(absl::StatusOr<v1::PrepareRunResponse>)> reply) {
  const absl::Status meant = PeersOf(request, process_.name(), life_->incarnation).status();
  if (!meant.ok()) return reply(meant);
  const absl::StatusOr<RunDesk::AttemptRef> older = life_->desk.MakeRoom(request);
  if (!older.ok()) return reply(older.status());
  const auto take_up = [this, request, timeout, reply](bool in_time) {
    if (!in_time) {
      return reply(absl::DeadlineExceededError("the run before it is still stopping; call again"));
    }
    const RunDesk::AttemptRef before = life_->desk.attempt();
    const absl::StatusOr<RunDesk::AttemptRef> attempt = life_->desk.TakeUp(request, std::nullopt);
    if (!attempt.ok()) return reply(attempt.status());
    if (*attempt != before) world_.OnTakenUp(process_.name(), request);
    Await([attempt = *attempt] { return attempt->phase != RunDesk::Phase::kPreparing; }, timeout,
          [attempt = *attempt, reply](bool in_time) {
            if (in_time) return reply(RunDesk::AnswerOf(*attempt));
            reply(absl::DeadlineExceededError("still preparing; call again"));
          });
  };
  Await([older = *older] { return older == nullptr || older->phase == RunDesk::Phase::kEnded; },
        timeout, take_up);
  OnDesk();
}

void SimulatedWorker::Await(std::function<bool()> is_over, absl::Duration timeout,
                            std::function<void(bool in_time)> go_on) {
  if (is_over()) return go_on(true);
  const absl::Duration wait = timeout - kAnswerTime;
  life_->waiting.push_back(
      {std::move(is_over), std::move(go_on), time_.MonotonicNs() + absl::ToInt64Nanoseconds(wait)});
  process_.After(wait, [this] { OnDesk(); });
}

void SimulatedWorker::OnDesk() {
  Work();
  const int64_t now_ns = time_.MonotonicNs();
  std::vector<Life::Waiting> waiting;
  waiting.swap(life_->waiting);
  std::vector<Life::Waiting> over;
  for (Life::Waiting& call : waiting) {
    const bool goes_on = call.is_over() || now_ns >= call.deadline_ns;
    (goes_on ? over : life_->waiting).push_back(std::move(call));
  }
  for (const Life::Waiting& call : over) call.go_on(call.is_over());
  if (!over.empty()) OnDesk();
}

void SimulatedWorker::Work() {
  if (life_->works) return;
  const RunDesk::Work work = life_->desk.NextWork();
  const RunDesk::AttemptRef attempt = life_->desk.attempt();
  switch (work) {
    case RunDesk::Work::kPrepare:
      life_->works = true;
      life_->outbox.Begin(attempt->job_id, attempt->epoch, attempt->trace);
      return process_.After(world_.PrepareTime(), [this, attempt] { DoPrepare(attempt); });
    case RunDesk::Work::kExecute:
      life_->works = true;
      world_.Say(absl::StrCat(process_.name(), " trains ", attempt->job_id, ", epoch ",
                              attempt->epoch, ", from step ", life_->run->step()));
      return life_->run->Begin();
    case RunDesk::Work::kDiscard:
      life_->works = true;
      // It takes a moment.
      return process_.After(absl::Milliseconds(1),
                            [this, attempt] { DropRun(attempt, absl::OkStatus()); });
    case RunDesk::Work::kNone:
      return;
  }
}

void SimulatedWorker::DoPrepare(RunDesk::AttemptRef attempt) {
  const absl::Status prepared = [&]() -> absl::Status {
    PENSTOCK_RETURN_IF_ERROR(attempt->stop);
    const auto& request = std::get<v1::PrepareRunRequest>(attempt->request);
    PENSTOCK_ASSIGN_OR_RETURN(SimulatedRunParts parts, world_.PartsOf(request, process_));
    parts.snapshots = life_->snapshot_peers.get();
    parts.events = [this](v1::RunEvent event) { AddEvent(std::move(event)); };
    // Not in the midst of its own event.
    parts.ended = [this, attempt] {
      process_.After(absl::Milliseconds(1),
                     [this, attempt] { DropRun(attempt, life_->run->outcome()); });
    };
    life_->run = std::make_unique<SimulatedRun>(request, std::move(parts));
    return life_->run->Load();
  }();
  if (!prepared.ok()) return DropRun(attempt, prepared);
  life_->desk.SetPrepared(*attempt, *life_->run);
  life_->works = false;
  OnDesk();
}

void SimulatedWorker::DropRun(const RunDesk::AttemptRef& attempt, absl::Status outcome) {
  world_.Say(absl::StrCat(process_.name(), " drops ", attempt->job_id, ", epoch ", attempt->epoch,
                          ": ", outcome.ToString()));
  life_->desk.TakeRunAway(*attempt, life_->run.get());
  if (life_->run != nullptr && !attempt->stop.ok()) life_->run->TellPeers();
  life_->run.reset();
  life_->desk.End(*attempt, outcome);
  life_->works = false;
  OnDesk();
}

}  // namespace penstock
