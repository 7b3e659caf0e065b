#include "tests/services/coordinator/acting_worker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "base/clock.h"
#include "job/profile/model_profile.h"
#include "job/resolve.h"
#include "model/describe.h"
#include "services/rpc/channel.h"
#include "services/rpc/client.h"

namespace penstock {
namespace {

constexpr absl::Duration kCallTimeout = absl::Seconds(5);
constexpr uint64_t kIncarnation = 4711;

template <typename Response>
absl::StatusOr<Response> Done() {
  return Response();
}

}  // namespace

ActingWorker::ActingWorker(ActingWorkerOptions options)
    : options_(std::move(options)),
      registry_(v1::WorkerRegistry::NewStub(
          MakeControlChannel(options_.coordinator, grpc::InsecureChannelCredentials()))),
      server_({.listen = {"127.0.0.1", 0}}) {
  AddHandlers();
  const absl::Status started = server_.Start();
  (void)started;
  heartbeat_ = std::thread([this] { HeartbeatLoop(); });
}

ActingWorker::~ActingWorker() {
  going_ = true;
  heartbeat_.join();
  server_.Shutdown(absl::ZeroDuration());
  EndTraining();
}

absl::Status ActingWorker::Register() {
  v1::RegisterWorkerRequest request;
  request.set_name(options_.name);
  request.set_address(server_.address().ToString());
  request.set_incarnation(kIncarnation);
  request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
  return Call("coordinator", *registry_, &v1::WorkerRegistry::Stub::RegisterWorker, request,
              kCallTimeout)
      .status();
}

void ActingWorker::HeartbeatLoop() {
  while (!going_) {
    v1::HeartbeatRequest request;
    request.set_name(options_.name);
    request.set_incarnation(kIncarnation);
    {
      MutexLock lock(mutex_);
      if (training_) {
        request.set_job_id(run_.job_id());
        request.set_epoch(run_.epoch());
        request.set_actions_done(step_);
      }
    }
    const absl::Status status =
        Call("coordinator", *registry_, &v1::WorkerRegistry::Stub::Heartbeat, request, kCallTimeout)
            .status();
    if (absl::IsNotFound(status)) {
      (void)Register();
    }
    absl::SleepFor(absl::Milliseconds(50));
  }
}

void ActingWorker::NoteTrace(const CallInfo& call) {
  MutexLock lock(mutex_);
  traces_.insert(call.trace.has_value() ? FormatTraceparent(*call.trace) : "none");
}

void ActingWorker::AddHandlers() {
  Service& service = server_.AddService<Service>();
  server_.Unary(service, &Service::RequestPrepareRun,
                [this](const v1::PrepareRunRequest& request,
                       const CallInfo& call) -> absl::StatusOr<v1::PrepareRunResponse> {
                  NoteTrace(call);
                  ++prepares_;
                  if (!options_.prepare_status.ok()) {
                    return options_.prepare_status;
                  }
                  EndTraining();
                  MutexLock lock(mutex_);
                  run_ = request;
                  profile_.reset();
                  step_ = request.first_step();
                  held_.reset();
                  cut_.reset();
                  v1::PrepareRunResponse response;
                  response.set_schedule_digest(
                      options_.digest.empty() ? request.plan().schedule_digest() : options_.digest);
                  return response;
                });
  server_.Unary(service, &Service::RequestPrepareProfile,
                [this](const v1::PrepareProfileRequest& request,
                       const CallInfo& call) -> absl::StatusOr<v1::PrepareProfileResponse> {
                  NoteTrace(call);
                  ++prepares_;
                  if (!options_.prepare_status.ok()) return options_.prepare_status;
                  EndTraining();
                  MutexLock lock(mutex_);
                  run_.Clear();
                  run_.set_job_id(request.job_id());
                  run_.set_epoch(request.epoch());
                  *run_.mutable_spec() = request.spec();
                  profile_ = request;
                  return v1::PrepareProfileResponse();
                });
  server_.Unary(service, &Service::RequestStartRun,
                [this](const v1::StartRunRequest&, const CallInfo& call) {
                  NoteTrace(call);
                  MutexLock trainer_lock(trainer_mutex_);
                  if (!training_.exchange(true)) {
                    MutexLock lock(mutex_);
                    stop_training_ = false;
                    next_sequence_ = 0;
                    trainer_ = std::thread([this, run = run_, profile = profile_] {
                      profile.has_value() ? Measure(run, *profile) : Train(run);
                    });
                  }
                  return Done<v1::StartRunResponse>();
                });
  server_.Unary(service, &Service::RequestHoldRun,
                [this](const v1::HoldRunRequest&,
                       const CallInfo& call) -> absl::StatusOr<v1::HoldRunResponse> {
                  NoteTrace(call);
                  if (!training_) {
                    return absl::FailedPreconditionError("not running");
                  }
                  MutexLock lock(mutex_);
                  held_ = held_.value_or(std::min(step_ + 1, run_.spec().training().steps()));
                  v1::HoldRunResponse response;
                  response.set_step(*held_);
                  return response;
                });
  server_.Unary(service, &Service::RequestCutRun,
                [this](const v1::CutRunRequest& request, const CallInfo& call) {
                  NoteTrace(call);
                  MutexLock lock(mutex_);
                  cut_ = request.step();
                  return Done<v1::CutRunResponse>();
                });
  server_.Unary(service, &Service::RequestStopRun,
                [this](const v1::StopRunRequest&, const CallInfo& call) {
                  NoteTrace(call);
                  ++stops_;
                  EndTraining();
                  return Done<v1::StopRunResponse>();
                });
  server_.Unary(service, &Service::RequestGetRunTimeline,
                [this](const v1::GetRunTimelineRequest& request,
                       const CallInfo& call) -> absl::StatusOr<v1::GetRunTimelineResponse> {
                  NoteTrace(call);
                  if (options_.timeline_gate.valid()) {
                    options_.timeline_gate.wait();
                  }
                  v1::GetRunTimelineResponse response;
                  response.set_monotonic_ns(RealClock().MonotonicNs());
                  response.add_spans()->set_microbatch(3);
                  if (request.with_stages()) {
                    response.add_stages()->set_worker(options_.name);
                  }
                  return response;
                });
}

void ActingWorker::EndTraining() {
  MutexLock lock(trainer_mutex_);
  stop_training_ = true;
  if (trainer_.joinable()) {
    trainer_.join();
  }
  training_ = false;
}

std::optional<int64_t> ActingWorker::EndOf(const v1::PrepareRunRequest& run, int64_t step) {
  MutexLock lock(mutex_);
  if (held_.has_value() && !cut_.has_value() && step >= *held_) {
    return std::nullopt;
  }
  return cut_.value_or(run.spec().training().steps());
}

void ActingWorker::Measure(const v1::PrepareRunRequest& run,
                           const v1::PrepareProfileRequest& profile) {
  if (profile.times_layers()) {
    ++timings_;
    const absl::StatusOr<ResolvedJob> job = ResolveJob(run.spec());
    PENSTOCK_CHECK(job.ok());
    v1::RunEvent event;
    v1::ModelProfile& model = *event.mutable_layers_timed()->mutable_model();
    model.set_time_steps(job->model.targets_per_sample());
    SetLayers(job->model, job->precision, model);
    for (const int layer : FirstLayersOfShapes(job->model)) {
      v1::ShapeProfile& shape = *model.add_shapes();
      shape.set_shape(model.layers(layer).shape());
      for (const int64_t samples : profile.profile().samples()) {
        v1::SizeProfile& size = *shape.add_sizes();
        size.set_samples(samples);
        for (int n = 0; n < job->model.layers[layer].node_count; ++n) size.add_nodes();
      }
    }
    Report(run, event);
  }
  v1::RunEvent event;
  event.mutable_run_done();
  training_ = false;
  Report(run, event);
}

void ActingWorker::Train(const v1::PrepareRunRequest& run) {
  const bool last = run.worker_index() + 1 == run.plan().stages_size();
  int64_t step = run.first_step();
  for (;;) {
    if (stop_training_) {
      return;
    }
    const std::optional<int64_t> end = EndOf(run, step);
    if (end.has_value() && step >= *end) {
      break;
    }
    absl::SleepFor(options_.step_time);
    if (!end.has_value()) {
      continue;
    }
    {
      MutexLock lock(mutex_);
      step = ++step_;
    }
    if (last) {
      v1::RunEvent event;
      event.mutable_step_done()->set_step(step);
      event.mutable_step_done()->set_loss(2.0);
      event.mutable_step_done()->set_tokens(10);
      Report(run, event);
    }
    if (step == options_.fail_after_step) {
      v1::RunEvent event;
      event.mutable_run_failed()->set_message(
          absl::StrCat("the loss of step ", step, " is not finite"));
      Report(run, event);
      training_ = false;
      return;
    }
  }
  v1::RunEvent event;
  event.mutable_run_done()->set_step(step);
  const v1::StageAssignment& stage = run.plan().stages(run.worker_index());
  v1::StageReport& report = *event.mutable_run_done()->add_stages();
  report.set_stage(stage.stage());
  report.set_window_seconds(0.5);
  for (int32_t layer = stage.first_layer(); layer < stage.first_layer() + stage.layers(); ++layer) {
    v1::LayerDigest& digest = *event.mutable_run_done()->add_layers();
    digest.set_layer(layer);
    digest.set_sha256(absl::StrCat("digest ", layer));
  }
  training_ = false;
  Report(run, event);
}

void ActingWorker::Report(const v1::PrepareRunRequest& run, v1::RunEvent event) {
  v1::ReportRunRequest request;
  request.set_worker(options_.name);
  request.set_incarnation(kIncarnation);
  request.set_job_id(run.job_id());
  request.set_epoch(run.epoch());
  request.set_first_sequence(next_sequence_++);
  *request.add_events() = std::move(event);
  while (!stop_training_) {
    const absl::Status status =
        Call("coordinator", *registry_, &v1::WorkerRegistry::Stub::ReportRun, request, kCallTimeout)
            .status();
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) {
      return;
    }
    absl::SleepFor(absl::Milliseconds(20));
  }
}

}  // namespace penstock
