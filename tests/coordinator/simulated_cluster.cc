#include "tests/coordinator/simulated_cluster.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/seen_epoch.h"
#include "base/sha256.h"
#include "base/status.h"
#include "job/defaults.h"
#include "job/profile/model_profile.h"
#include "model/describe.h"

namespace penstock {
namespace {

// The name of its call.
std::string NameOf(const WorkerRequest& request) {
  return std::visit(
      [](const auto& typed) {
        return std::string(absl::StripSuffix(typed.GetDescriptor()->name(), "Request"));
      },
      request);
}

std::string Describe(const v1::JobSummary& summary) {
  std::string text = JobStateName(summary.state());
  for (const std::string& why : {summary.error(), summary.reason()}) {
    absl::StrAppend(&text, why.empty() ? "" : ": ", why);
  }
  return text;
}

}  // namespace

v1::ProfileSpec SmallProfile() {
  v1::ProfileSpec profile;
  profile.add_samples(2);
  return profile;
}

v1::ModelProfile ProfileOf(const v1::JobSpec& spec, const v1::ProfileSpec& profile, double ms) {
  const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
  PENSTOCK_CHECK(job.ok());
  v1::ModelProfile model;
  model.set_time_steps(job->model.targets_per_sample());
  model.set_precision("f32");
  SetLayers(job->model, job->precision, model);
  for (const int layer : FirstLayersOfShapes(job->model)) {
    v1::ShapeProfile& shape = *model.add_shapes();
    shape.set_shape(model.layers(layer).shape());
    for (const int64_t samples : profile.samples()) {
      v1::SizeProfile& size = *shape.add_sizes();
      size.set_samples(samples);
      size.mutable_forward()->set_ms(ms);
      size.mutable_backward_input()->set_ms(ms);
      size.mutable_backward_weight()->set_ms(ms);
      for (int n = 0; n < job->model.layers[layer].node_count; ++n) size.add_nodes();
    }
  }
  return model;
}

absl::StatusOr<std::string> SubmitJob(Coordinator& coordinator, const v1::SubmitJobRequest& request,
                                      Now now) {
  absl::StatusOr<Submission> submission = coordinator.CheckSubmission(request, now);
  if (!submission.ok()) {
    return submission.status();
  }
  if (submission->record.has_value()) {
    coordinator.AddJob(*submission->record, now);
  }
  return submission->job_id;
}

SimulatedCluster::SimulatedCluster(SimulatedClusterOptions options)
    : options_(options),
      random_(options.seed, 5),
      pass_ms_(options.pass_ms),
      coordinator_(std::make_unique<Coordinator>(options.limits)) {
  for (int i = 0; i < options_.workers; ++i) {
    workers_.push_back({.name = absl::StrCat("w", i), .incarnation = 100u + i});
    Register(i);
  }
}

Now SimulatedCluster::now() const {
  return {.monotonic_ns = (now_ms_ + 1) * kNsPerMs, .unix_ms = wall_start_ms_ + now_ms_};
}

int64_t SimulatedCluster::Delay() {
  return options_.delay_ms_min +
         static_cast<int64_t>(random_.Below(options_.delay_ms_max - options_.delay_ms_min + 1));
}

void SimulatedCluster::At(int64_t ms, std::function<void()> what) {
  queue_[{std::max(ms, now_ms_), next_event_++}] = std::move(what);
}

void SimulatedCluster::Say(const std::string& line) {
  if (!options_.checks) return;
  absl::StrAppend(&transcript_, absl::StrFormat("%8.3f  ", 1e-3 * now_ms_), line, "\n");
}

bool SimulatedCluster::Tell(const std::function<void()>& event) {
  const int64_t life = life_;
  const int64_t began_ns = options_.stopwatch_ns != nullptr ? options_.stopwatch_ns() : 0;
  event();
  if (options_.stopwatch_ns != nullptr) {
    const int64_t took_ns = options_.stopwatch_ns() - began_ns;
    coordinator_ns_ += took_ns;
    longest_turn_ns_ = std::max(longest_turn_ns_, took_ns);
  }
  PerformEffects();
  if (!options_.checks) return life == life_;
  const absl::Status invariants = coordinator_->CheckInvariants();
  if (!invariants.ok()) {
    violations_.push_back(absl::StrCat(now_ms_, " ms: ", invariants.ToString()));
  }
  return life == life_;
}

void SimulatedCluster::Answer(int64_t life, const std::string& job_id, EffectAnswer answer) {
  if (life != life_) return;
  Tell([&] { coordinator_->OnAnswer(job_id, std::move(answer), now()); });
}

void SimulatedCluster::PerformEffects() {
  const CoordinatorEffects effects = coordinator_->TakeEffects();
  const auto is_kept = [](const CoordinatorEffect& effect) {
    return std::holds_alternative<SaveJob>(effect) || std::holds_alternative<PublishEvent>(effect);
  };
  const bool dies = dies_after_writing_ && std::any_of(effects.begin(), effects.end(), is_kept);
  for (const CoordinatorEffect& effect : effects) {
    if (dies && !is_kept(effect)) continue;
    std::visit([this](const auto& e) { Perform(e); }, effect);
  }
  coordinator_->OnStored();
  if (dies) RestartCoordinator();
}

void SimulatedCluster::RestartCoordinator(bool has_records) {
  Say(absl::StrCat("the coordinator is killed and starts again", has_records ? "" : " on nothing"));
  dies_after_writing_ = false;
  ++life_;
  // A commit is there or not, but nobody hears of it.
  for (const auto& [order, commit] : std::exchange(committing_, {})) {
    if (Percent(50)) Commit(commit);
  }
  leases_.clear();
  if (!has_records) {
    jobs_.clear();
    saved_.clear();
    events_.clear();
    lives_.clear();
    newest_epochs_.clear();
  }
  coordinator_ = std::make_unique<Coordinator>(options_.limits);
  coordinator_->Restore(Store(), now());
  PerformEffects();
}

void SimulatedCluster::ForgetRuns() {
  for (auto& [job, record] : saved_) record.clear_run();
}

std::string SimulatedCluster::Submit(const v1::JobSpec& spec) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  return Add(coordinator_->CheckSubmission(request, now()));
}

std::string SimulatedCluster::SubmitProfile(const v1::JobSpec& spec,
                                            const v1::ProfileSpec& profile) {
  v1::SubmitProfileRequest request;
  *request.mutable_spec() = spec;
  *request.mutable_profile() = profile;
  return Add(coordinator_->CheckProfile(request, now()));
}

std::string SimulatedCluster::Add(absl::StatusOr<Submission> submission) {
  PENSTOCK_CHECK(submission.ok());
  jobs_.push_back(submission->job_id);
  Tell([&] {
    Perform(*submission->record);
    coordinator_->AddJob(*submission->record, now());
  });
  return submission->job_id;
}

bool SimulatedCluster::RunOneEvent(int64_t limit_ms) {
  const std::optional<int64_t> deadline_ns = coordinator_->NextDeadlineNs();
  const int64_t tick_ms = deadline_ns.has_value()
                              ? std::max(now_ms_, (*deadline_ns + kNsPerMs - 1) / kNsPerMs - 1)
                              : limit_ms;
  if (queue_.empty() || tick_ms < queue_.begin()->first.first) {
    if (tick_ms >= limit_ms) {
      now_ms_ = limit_ms;
      return false;
    }
    now_ms_ = tick_ms;
    Tell([this] { coordinator_->Tick(now()); });
    return true;
  }
  if (queue_.begin()->first.first >= limit_ms) {
    now_ms_ = limit_ms;
    return false;
  }
  auto event = queue_.extract(queue_.begin());
  now_ms_ = event.key().first;
  event.mapped()();
  return true;
}

bool SimulatedCluster::RunUntilOver(int64_t limit_ms) {
  const auto all_over = [this] {
    return std::all_of(jobs_.begin(), jobs_.end(), [this](const std::string& job) {
      return coordinator_->FindRun(job) == nullptr;
    });
  };
  while (!all_over()) {
    if (!RunOneEvent(limit_ms)) {
      return false;
    }
  }
  return true;
}

bool SimulatedCluster::RunUntil(const std::function<bool()>& holds) {
  for (int64_t ms = 0; ms < 60'000 && !holds(); ++ms) RunFor(1);
  return holds();
}

bool SimulatedCluster::RunUntilState(const std::string& job, v1::JobState state) {
  return RunUntil([&] { return Summary(job).state() == state; });
}

v1::ReportRunRequest SimulatedCluster::ReportOf(const std::string& job, int worker) {
  v1::ReportRunRequest report;
  report.set_worker(workers_[worker].name);
  report.set_incarnation(workers_[worker].incarnation);
  report.set_job_id(job);
  report.set_epoch(coordinator_->FindRun(job)->epoch());
  return report;
}

void SimulatedCluster::RunFor(int64_t ms) {
  const int64_t until = now_ms_ + ms;
  while (RunOneEvent(until)) {
  }
}

v1::JobSummary SimulatedCluster::Summary(const std::string& job_id) const {
  const absl::StatusOr<v1::JobSummary> summary = coordinator_->FindSummary(job_id);
  PENSTOCK_CHECK(summary.ok());
  return *summary;
}

std::vector<std::string> SimulatedCluster::Logs(const std::string& job_id) {
  std::vector<std::string> logs;
  for (const v1::JobEvent& event : events_[job_id]) {
    if (event.has_log()) logs.push_back(event.log());
  }
  return logs;
}

std::vector<StoredJob> SimulatedCluster::Store() const {
  std::vector<StoredJob> jobs;
  for (const std::string& job_id : jobs_) {
    const auto events = events_.find(job_id);
    const size_t count = events == events_.end() ? 0 : events->second.size();
    jobs.push_back({.record = saved_.at(job_id), .last_sequence = static_cast<int64_t>(count)});
  }
  return jobs;
}

std::vector<std::string> SimulatedCluster::StillTraining() const {
  std::vector<std::string> training;
  for (const Worker& worker : workers_) {
    if (worker.alive && !worker.frozen && !worker.executor_frozen &&
        worker.state == Worker::State::kRunning) {
      training.push_back(absl::StrCat(worker.name, " trains ", worker.run.job_id()));
    }
  }
  return training;
}

// ------------------------------------------------------------------------------------ membership

void SimulatedCluster::Register(int worker) {
  Worker& w = workers_[worker];
  After(Delay(), [this, worker, incarnation = w.incarnation] {
    Worker& w = workers_[worker];
    if (!w.alive || w.incarnation != incarnation) {
      return;
    }
    v1::RegisterWorkerRequest request;
    request.set_name(w.name);
    request.set_address(absl::StrCat("10.0.0.", worker, ":7000"));
    request.set_incarnation(w.incarnation);
    request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
    request.set_memory_bytes(int64_t{1} << 30);
    if (const size_t kinds = options_.devices.size(); kinds > 0) {
      request.set_device(options_.devices[worker % kinds]);
    }
    Tell([&] { PENSTOCK_CHECK(coordinator_->RegisterWorker(request, now()).ok()); });
    if (!w.run.job_id().empty())
      Flush(worker, w.generation);  // the coordinator may be another process
    HeartbeatLoop(worker, incarnation);
    if (options_.attached) Attach(worker, incarnation);
  });
}

void SimulatedCluster::Attach(int worker, uint64_t incarnation) {
  After(Delay(), [this, worker, incarnation] {
    Worker& w = workers_[worker];
    if (!w.alive || w.incarnation != incarnation) return;
    if (w.frozen || Lost()) return After(100, [=, this] { Attach(worker, incarnation); });
    v1::AttachRequest request;
    request.set_name(w.name);
    request.set_incarnation(w.incarnation);
    const int64_t life = life_;
    absl::StatusOr<int64_t> stream = absl::InternalError("");
    Tell([&] { stream = coordinator_->Attach(request, now()); });
    // A coordinator that does not know the worker is told so by a heartbeat, which has it register again.
    if (stream.ok()) w.stream = {.life = life, .number = *stream};
  });
}

void SimulatedCluster::EndStream(int worker) {
  Worker& w = workers_[worker];
  if (!w.stream.has_value()) return;
  After(Delay(), [this, name = w.name, stream = *w.stream] {
    if (stream.life != life_) return;
    Tell([&] { coordinator_->Detach(name, stream.number, now()); });
  });
  w.stream.reset();
}

void SimulatedCluster::BreakStream(int worker) {
  if (!workers_[worker].stream.has_value()) return;
  EndStream(worker);
  Attach(worker, workers_[worker].incarnation);
}

void SimulatedCluster::HeartbeatLoop(int worker, uint64_t incarnation) {
  After(options_.limits.membership.heartbeat_interval_ms, [this, worker, incarnation] {
    Worker& w = workers_[worker];
    if (!w.alive || w.incarnation != incarnation) {
      return;
    }
    if (!w.frozen && !Lost()) {
      v1::HeartbeatRequest request;
      request.set_name(w.name);
      request.set_incarnation(w.incarnation);
      request.set_leaving(w.leaving);
      if (w.state != Worker::State::kIdle) {
        request.set_job_id(w.run.job_id());
        request.set_epoch(w.run.epoch());
        request.set_actions_done(w.step);
        request.set_held(w.held_step.has_value());
      }
      if (options_.attached && w.state == Worker::State::kRunning) {
        const int64_t pulse = w.executor_frozen ? w.last_pulse : now_ms_ + 1;
        if (options_.unsteady) {
          request.set_unsteady_pulse(pulse);
        } else {
          request.set_pulse(pulse);
        }
      }
      if (const std::optional<int> peer = CutOff(worker)) {
        v1::SilentLink& link = *request.add_silent_links();
        link.set_peer(workers_[*peer].name);
        link.set_silent_ms(now_ms_ -
                           std::max(w.begins_ms, dead_links_[std::minmax(worker, *peer)]));
      }
      absl::Status status;
      if (!Tell([&] { status = coordinator_->Heartbeat(request, now()); })) {
        return HeartbeatLoop(worker, incarnation);
      }
      // With a run it makes itself known first to a coordinator that was started again.
      if (absl::IsNotFound(status) && w.leaving && w.state == Worker::State::kIdle) {
        Say(absl::StrCat(w.name, " has left"));
        w.alive = false;
        EndStream(worker);
        return;
      }
      if (absl::IsNotFound(status)) {
        return Register(worker);
      }
    }
    HeartbeatLoop(worker, incarnation);
  });
}

std::optional<int> SimulatedCluster::CutOff(int worker) const {
  const Worker& w = workers_[worker];
  if (w.state != Worker::State::kRunning || w.profile.has_value()) return std::nullopt;
  for (const int32_t at : {w.run.worker_index() - 1, w.run.worker_index() + 1}) {
    if (at < 0 || at >= w.run.plan().stages_size()) continue;
    const int peer = IndexOfName(w.run.plan().stages(at).worker());
    if (dead_links_.count(std::minmax(worker, peer)) > 0) return peer;
  }
  return std::nullopt;
}

void SimulatedCluster::Kill(int worker) {
  Say(absl::StrCat(workers_[worker].name, " is killed"));
  workers_[worker].alive = false;
  EndStream(worker);
  FailNeighbours(worker);
  ++workers_[worker].generation;
}

void SimulatedCluster::Restart(int worker) {
  Worker& w = workers_[worker];
  EndStream(worker);
  w = {.name = w.name, .incarnation = w.incarnation + 1000, .generation = w.generation + 1};
  Register(worker);
}

void SimulatedCluster::ThawExecutor(int worker) {
  Worker& w = workers_[worker];
  w.executor_frozen = false;
  if (w.run.epoch() < w.epochs[w.run.job_id()].first) EndRun(worker);
}

void SimulatedCluster::FailRun(int worker, const std::string& message) {
  v1::RunEvent event;
  event.mutable_run_failed()->set_message(message);
  Emit(worker, event);
  FailNeighbours(worker);
  EndRun(worker);
}

void SimulatedCluster::FailRunIfTraining(int worker, const std::string& message) {
  const Worker& w = workers_[worker];
  if (w.alive && !w.frozen && w.state == Worker::State::kRunning) {
    FailRun(worker, message);
  }
}

// All that train with `worker` lose their connection, each after a delay of its own; its own
// neighbours lose it in turn, so who is named depends on who noticed what first.
void SimulatedCluster::FailNeighbours(int worker) {
  const Worker& failed = workers_[worker];
  if (failed.state != Worker::State::kRunning) {
    return;
  }
  const std::string job_id = failed.run.job_id();
  const int index = failed.run.worker_index();
  for (int other = 0; other < static_cast<int>(workers_.size()); ++other) {
    const Worker& o = workers_[other];
    if (other == worker || o.state != Worker::State::kRunning || o.run.job_id() != job_id ||
        std::abs(o.run.worker_index() - index) != 1) {
      continue;
    }
    After(5 + Delay(), [this, other, generation = o.generation, peer = failed.name] {
      Worker& o = workers_[other];
      if (o.generation != generation || !o.alive || o.executor_frozen ||
          o.state != Worker::State::kRunning) {
        return;
      }
      v1::RunEvent event;
      event.mutable_run_failed()->set_peer(peer);
      event.mutable_run_failed()->set_message(absl::StrCat("lost ", peer));
      Emit(other, event);
      FailNeighbours(other);
      EndRun(other);
    });
  }
}

int SimulatedCluster::IndexOfName(const std::string& name) const {
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].name == name) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

// --------------------------------------------------------------------------------------- effects

void SimulatedCluster::Perform(const CallWorker& call) {
  Say(absl::StrCat("        -> ", call.worker, " ", NameOf(call.request)));
  if (std::holds_alternative<v1::PrepareRunRequest>(call.request) ||
      std::holds_alternative<v1::PrepareProfileRequest>(call.request)) {
    CheckEpochIsNew(call);
  }
  Deliver(call, 0, life_);
}

// The system of a frozen process connects for it, so only a process that is gone is not there.
void SimulatedCluster::Perform(const ProbeWorker& probe) {
  Say(absl::StrCat("        -> probe ", probe.worker));
  After(2 * Delay(), [this, probe, life = life_] {
    if (life != life_) return;
    const absl::Status answer =
        workers_[IndexOfName(probe.worker)].alive
            ? absl::OkStatus()
            : absl::UnavailableError(absl::StrCat("nobody listens at ", probe.address));
    Tell([&] { coordinator_->OnProbed(probe, answer, now()); });
  });
}

void SimulatedCluster::CheckEpochIsNew(const CallWorker& call) {
  const std::string name = absl::StrCat("epoch ", call.epoch, " of ", call.job_id);
  // A run of a job's planning has the job's id with a suffix, and epochs of the job.
  const std::string job_id = call.job_id.substr(0, call.job_id.find('.'));
  if (saved_[job_id].epoch() < call.epoch) violations_.push_back(name + " is not kept");
  const auto [first, is_new] = lives_.emplace(std::pair(call.job_id, call.epoch), life_);
  if (first->second != life_) violations_.push_back(name + " is given by two processes");
  int64_t& newest = newest_epochs_[call.job_id];
  newest = std::max(newest, call.epoch);
}

void SimulatedCluster::Deliver(const CallWorker& call, int attempt, int64_t life) {
  if (life != life_) return;
  constexpr int kAttemptsMax = 5;
  const int worker = IndexOfName(call.worker);
  const bool request_lost = Lost();
  const int copies = Percent(options_.duplicate_percent) ? 2 : 1;
  const auto answer = [this, call, life](int64_t ms, const WorkerResponse& response) {
    After(ms, [this, life, job_id = call.job_id,
               answer = CallAnswer{call.epoch, call.worker_index, response}] {
      Answer(life, job_id, answer);
    });
  };
  const auto handle = [this, worker](const auto& request) -> WorkerResponse {
    return Handle(worker, request);
  };
  const auto error = [call](absl::Status status) {
    const auto of_its_type = [&](const auto& request) -> WorkerResponse {
      return decltype(Handle(worker, request))(status);
    };
    return std::visit(of_its_type, call.request);
  };
  for (int copy = 0; copy < copies && !request_lost; ++copy) {
    After(Delay(), [this, call, worker, attempt, life, copy, answer, handle, error] {
      if (life != life_) return;  // the connection went with the process
      if (!workers_[worker].alive || workers_[worker].frozen || workers_[worker].deaf) {
        if (copy == 0) answer(5000, error(absl::DeadlineExceededError("no answer within 5 s")));
        return;
      }
      const WorkerResponse response = std::visit(handle, call.request);
      const bool prepares = std::holds_alternative<v1::PrepareRunRequest>(call.request) ||
                            std::holds_alternative<v1::PrepareProfileRequest>(call.request);
      if (prepares && workers_[worker].executor_frozen) return;  // it is still at it
      if (copy == 0 && !Lost()) {
        answer(Delay(), response);
      } else if (copy == 0 && attempt < kAttemptsMax) {
        After(100, [this, call, attempt, life] { Deliver(call, attempt + 1, life); });
      } else if (copy == 0) {
        answer(5000, error(absl::DeadlineExceededError("no answer within 5 s")));
      }
    });
  }
  const bool dead = !workers_[worker].alive;
  if (dead || (request_lost && attempt >= kAttemptsMax)) {
    answer(Delay(), error(absl::UnavailableError("connection refused")));
  } else if (request_lost) {
    After(100, [this, call, attempt, life] { Deliver(call, attempt + 1, life); });
  }
}

absl::StatusOr<v1::StartRunResponse> SimulatedCluster::Handle(int worker,
                                                              const v1::StartRunRequest& request) {
  Worker& w = workers_[worker];
  if (!w.Has(request.job_id(), request.epoch()))
    return absl::FailedPreconditionError("not prepared");
  if (w.state == Worker::State::kPrepared) {
    w.state = Worker::State::kRunning;
    ++starts_[{worker, absl::StrCat(request.job_id(), "/", request.epoch())}];
    if (w.profile.has_value()) {
      MeasureLoop(worker, w.generation, 0);
    } else {
      if (w.run.has_snapshot()) KeepSnapshot(worker, w.run.first_step());
      w.begins_ms = now_ms_ + options_.begin_ms;
      if (options_.begin_ms == 0) {
        TrainLoop(worker, w.generation);
      } else {
        After(options_.begin_ms,
              [this, worker, generation = w.generation] { TrainLoop(worker, generation); });
      }
    }
  }
  return v1::StartRunResponse();
}

absl::StatusOr<v1::HoldRunResponse> SimulatedCluster::Handle(int worker,
                                                             const v1::HoldRunRequest& request) {
  Worker& w = workers_[worker];
  if (!w.Runs(request.job_id(), request.epoch()))
    return absl::FailedPreconditionError("not running");
  const int64_t begun = now_ms_ < w.begins_ms ? 0 : 1;
  w.held_step = w.held_step.value_or(std::min(w.step + begun, w.run.spec().training().steps()));
  v1::HoldRunResponse response;
  response.set_step(*w.held_step);
  return response;
}

absl::StatusOr<v1::CutRunResponse> SimulatedCluster::Handle(int worker,
                                                            const v1::CutRunRequest& request) {
  Worker& w = workers_[worker];
  if (!w.Runs(request.job_id(), request.epoch()))
    return absl::FailedPreconditionError("not running");
  if (!w.held_step.has_value()) violations_.push_back("CutRun without HoldRun");
  if (!w.cut_step.has_value()) {
    w.cut_step = request.step();
    ++w.generation;  // wakes it up if it held
    w.saving.clear();
    TrainLoop(worker, w.generation);
  }
  return v1::CutRunResponse();
}

absl::StatusOr<v1::StopRunResponse> SimulatedCluster::Handle(int worker,
                                                             const v1::StopRunRequest& request) {
  Worker& w = workers_[worker];
  Worker::Epochs& epochs = w.epochs[request.job_id()];
  epochs.first = std::max(epochs.first, request.epoch() + 1);
  epochs.seen = std::max(epochs.seen, request.epoch());
  if (w.state == Worker::State::kIdle || w.run.job_id() != request.job_id() ||
      w.run.epoch() > request.epoch()) {
    return v1::StopRunResponse();
  }
  if (w.executor_frozen) return absl::DeadlineExceededError("still stopping; call again");
  EndRun(worker);
  return v1::StopRunResponse();
}

absl::StatusOr<v1::PrepareRunResponse> SimulatedCluster::Handle(
    int worker, const v1::PrepareRunRequest& request) {
  if (const auto refused = cannot_prepare.find(worker); refused != cannot_prepare.end()) {
    return refused->second;
  }
  Worker& w = workers_[worker];
  Worker::Epochs& epochs = w.epochs[request.job_id()];
  if (request.epoch() < epochs.first) {
    return WithSeenEpoch(absl::AbortedError("this run is over"), epochs.seen);
  }
  v1::PrepareRunResponse response;
  response.set_schedule_digest(request.plan().schedule_digest());
  if (const auto known = arithmetics.find(worker); known != arithmetics.end()) {
    response.set_arithmetic(known->second);
  }
  if (w.Has(request.job_id(), request.epoch())) {
    if (google::protobuf::util::MessageDifferencer::Equals(w.run, request)) return response;
    return WithSeenEpoch(absl::AbortedError("another run has this epoch"), request.epoch());
  }
  epochs.first = epochs.seen = request.epoch();
  if (request.has_snapshot()) PENSTOCK_RETURN_IF_ERROR(LoadSnapshot(request.snapshot()));
  if (w.state == Worker::State::kRunning && w.life == life_) {
    violations_.push_back(
        absl::StrCat(w.name, " is given ", request.job_id(), " while it trains ", w.run.job_id()));
  }
  w.state = Worker::State::kPrepared;
  w.life = life_;
  w.run = request;
  w.profile.reset();
  w.step = request.first_step();
  w.passes = 0;
  w.pass_seconds = 0;
  w.cuts = CutsOf(request.spec(), request.first_step(), request.extra_cuts());
  w.snapshot_rule = SnapshotRuleOf(request.spec(), *ResolveJob(request.spec()));
  w.held_step.reset();
  w.cut_step.reset();
  w.saving.clear();
  w.outbox.clear();
  w.outbox_first = w.acknowledged = 0;
  ++w.generation;
  return response;
}

absl::StatusOr<v1::PrepareProfileResponse> SimulatedCluster::Handle(
    int worker, const v1::PrepareProfileRequest& request) {
  v1::PrepareRunRequest run;
  run.set_job_id(request.job_id());
  run.set_epoch(request.epoch());
  *run.mutable_spec() = request.spec();
  *run.mutable_plan() = request.plan();
  run.set_worker_index(request.worker_index());
  const bool again = workers_[worker].Has(request.job_id(), request.epoch());
  PENSTOCK_RETURN_IF_ERROR(Handle(worker, run).status());
  if (!again) workers_[worker].profile = request;
  return v1::PrepareProfileResponse();
}

std::string SimulatedCluster::DirectoryOf(const std::string& root) {
  return std::filesystem::path(root + "/").lexically_normal().string();
}

void SimulatedCluster::Perform(const FindCheckpoint& find) {
  Say("        -> find checkpoint");
  if (disk_hangs) return;
  After(Delay(), [this, find, life = life_] {
    if (life != life_) return;
    DirectoryLease lease;
    absl::StatusOr<FoundStart> found = found_start;
    if (now_ms_ < disk_back_ms) {
      return Answer(
          life, find.job_id,
          StartFound{absl::InternalError("Input/output error"), {}, !find.adopted_tag.empty()});
    }
    if (const std::string& root = find.query.root; !root.empty()) {
      const std::string directory = DirectoryOf(root);
      const auto latest = latest_.find({directory, find.job_id});
      if (find.query.resume == "latest" && latest != latest_.end()) found = latest->second;
      if (!leases_[directory].expired()) {
        violations_.push_back(absl::StrCat(find.job_id, " starts in ", root, ", which is in use"));
      }
      lease = std::make_shared<int>(0);
      leases_[directory] = lease;
      std::erase_if(staged_, [&](const Staging& staging) {
        return staging.directory == directory && staging.tag != find.adopted_tag;
      });
    }
    Answer(life, find.job_id, StartFound{found, std::move(lease), !find.adopted_tag.empty()});
  });
}

std::vector<std::string> SimulatedCluster::LeasedDirectories() const {
  std::vector<std::string> leased;
  for (const auto& [directory, lease] : leases_) {
    if (!lease.expired()) {
      leased.push_back(directory);
    }
  }
  return leased;
}

void SimulatedCluster::Perform(const CommitStaged& commit) {
  Say(absl::StrCat("        -> commit checkpoint of step ", commit.manifest.step));
  if (disk_hangs) return;
  const bool fails = Percent(options_.commit_failure_percent) || disk_full;
  const int64_t order = next_commit_++;
  if (!fails) committing_[order] = commit;
  After(options_.commit_ms, [this, commit, fails, order, life = life_] {
    if (life != life_) return;
    committing_.erase(order);
    absl::StatusOr<CommittedCheckpoint> result = absl::ResourceExhaustedError("disk full");
    if (!fails) result = Commit(commit);
    Answer(life, commit.job_id, CheckpointCommitted{commit.manifest.step, result});
  });
}

CommittedCheckpoint SimulatedCluster::Commit(const CommitStaged& commit) {
  RemoveStaged(commit.options.root, commit.options.tag, commit.manifest.step);
  commits_.push_back(commit.manifest);
  CommittedCheckpoint committed = {
      .directory = absl::StrCat(commit.options.root, "/step-", commit.manifest.step),
      .note = commit_note};
  latest_[{DirectoryOf(commit.options.root), commit.job_id}] = {
      .checkpoint = committed.directory,
      .step = commit.manifest.step,
      .updates = commit.manifest.updates,
      .layer_updates = commit.manifest.layer_updates,
      .extra_cuts = commit.manifest.extra_cuts,
      .arithmetics = commit.manifest.arithmetics};
  return committed;
}

void SimulatedCluster::RemoveStaged(const std::string& root, const std::string& tag, int64_t step) {
  std::erase_if(staged_, [&, directory = DirectoryOf(root)](const Staging& staging) {
    return staging.directory == directory && staging.tag == tag && staging.step <= step;
  });
}

// What a worker writes at this moment must stay. One that was taken for lost may still write, but gets no checkpoint.
void SimulatedCluster::Perform(const DiscardStaged& discard) {
  const bool attempt_is_over = discard.step == std::numeric_limits<int64_t>::max();
  for (const Worker& worker : workers_) {
    const bool trains = worker.alive && !worker.frozen && !worker.executor_frozen &&
                        worker.state == Worker::State::kRunning &&
                        worker.run.staging_tag() == discard.tag;
    const bool writes = !worker.saving.empty() && *worker.saving.begin() <= discard.step;
    if (trains && (attempt_is_over ? options_.loss_percent == 0 : writes)) {
      violations_.push_back(
          absl::StrCat("what ", worker.name, " stages as ", discard.tag, " is removed"));
    }
  }
  RemoveStaged(discard.root, discard.tag, discard.step);
}

std::vector<std::string> SimulatedCluster::Staged() const {
  std::vector<std::string> staged;
  for (const Staging& staging : staged_) {
    staged.push_back(absl::StrCat(staging.tag, " step ", staging.step));
  }
  return staged;
}

void SimulatedCluster::Perform(const GatherTimeline& gather) {
  gathered_.push_back(gather.job_id);
  After(Delay(),
        [this, life = life_, job_id = gather.job_id] { Answer(life, job_id, TimelineGathered()); });
}

void SimulatedCluster::Perform(const GatherPasses& gather) {
  const bool asks_for_passes = timeline_of && gather.last_ns > 0;
  PassesGathered gathered{gather.epoch, asks_for_passes ? timeline_of(gather) : Timeline()};
  for (const v1::StageAssignment& stage : gather.plan.stages()) {
    const int worker = IndexOfName(stage.worker());
    const Worker& w = workers_[worker];
    StageReports& reports = gathered.stages.emplace_back();
    const bool answers = w.alive && !w.frozen && w.Runs(gather.job_id, gather.epoch);
    if (answers && !pass_ms_.empty()) *reports.Add() = StageReportOf(worker);
  }
  // Reports alone draw no delay, so that many more of them change no history.
  const int64_t delay_ms = gather.last_ns > 0 ? Delay() : options_.delay_ms_max;
  After(delay_ms, [this, life = life_, job_id = gather.job_id, gathered = std::move(gathered)] {
    Answer(life, job_id, gathered);
  });
}

void SimulatedCluster::Perform(const FindLayerTimes& find) {
  if (layer_times_hang) return;
  Say("        -> find layer times");
  After(Delay(), [this, find, life = life_] {
    std::vector<std::optional<v1::DeviceProfile>> known;
    for (const std::string& key : find.keys) {
      const auto times = layer_times_.find(key);
      known.push_back(times == layer_times_.end() ? std::nullopt : std::optional(times->second));
    }
    Answer(life, find.job_id, LayerTimesFound{known});
  });
}

void SimulatedCluster::Perform(const JudgeCandidates& judge) {
  if (search_hangs) return;
  Say("        -> judge candidates");
  After(Delay(), [this, judge, life = life_] {
    if (life != life_) return;
    TimeBudget budget(RealClock(), absl::Seconds(60));
    absl::StatusOr<JobPlan> plan = PlanJob(*judge.input, judge.options, budget);
    if (plan.ok()) change_plan(*plan);
    Answer(life, judge.job_id, CandidatesJudged{plan});
  });
}

void SimulatedCluster::Perform(const PublishEvent& publish) {
  std::vector<v1::JobEvent>& events = events_[publish.job_id];
  if (publish.event.sequence() != static_cast<int64_t>(events.size()) + 1) {
    violations_.push_back(absl::StrCat("event ", publish.event.sequence(), " of ", publish.job_id,
                                       " after ", events.size()));
  }
  events.push_back(publish.event);
  if (publish.event.has_state_changed()) {
    Say(absl::StrCat("    ", publish.job_id, " is ", Describe(publish.event.state_changed())));
  } else if (publish.event.has_log()) {
    Say(absl::StrCat("    ", publish.job_id, " log: ", publish.event.log()));
  } else if (publish.event.has_checkpoint_done()) {
    Say(absl::StrCat("    ", publish.job_id, " has checkpoint ",
                     publish.event.checkpoint_done().directory()));
  }
}

void SimulatedCluster::Perform(const SaveJob& save) {
  const std::string& job_id = save.record.summary().job_id();
  const v1::JobState before = saved_[job_id].summary().state();
  if (IsTerminal(before) && save.record.summary().state() != before) {
    violations_.push_back(absl::StrCat(job_id, " changed its terminal state"));
  }
  saved_[job_id] = save.record;
}

std::vector<std::string> WorkersOf(const v1::GetJobResponse& job) {
  std::vector<std::string> workers;
  for (const v1::StageAssignment& stage : job.plan().stages()) workers.push_back(stage.worker());
  return workers;
}

}  // namespace penstock
