#include "worker/profile_run.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "job/profile/cluster_profile.h"
#include "job/profile/device_times.h"
#include "model/describe.h"
#include "worker/copy_rate.h"
#include "worker/layer_profiler.h"
#include "worker/link_probe.h"
#include "worker/open_offload_store.h"

namespace penstock {
namespace {

// For the links between two workers, both ways. A network that brings 1 MB a second needs half of it.
constexpr absl::Duration kLinkTimeout = absl::Minutes(2);

constexpr double kMsPerSecond = 1e3;
constexpr double kUsPerSecond = 1e6;
constexpr double kBytesOfGigabit = 1e9 / 8;

v1::MeasuredTime Exactly(double seconds) {
  v1::MeasuredTime time;
  time.set_ms(seconds * kMsPerSecond);
  return time;
}

void SetTimes(const StageCosts& costs, v1::ShapeProfile& shape) {
  *shape.mutable_update() = Exactly(costs.update_s);
  for (v1::SizeProfile& size : *shape.mutable_sizes()) {
    *size.mutable_forward() = Exactly(costs.forward_s);
    *size.mutable_backward_input() = Exactly(costs.backward_input_s);
    *size.mutable_backward_weight() = Exactly(costs.backward_weight_s);
  }
}

bool SameTimes(const StageCosts& a, const StageCosts& b) {
  return a.forward_s == b.forward_s && a.backward_input_s == b.backward_input_s &&
         a.backward_weight_s == b.backward_weight_s && a.update_s == b.update_s;
}

// Returns the costs of each shape of a layer on an emulated device.
absl::StatusOr<std::vector<StageCosts>> CostsOfShapes(const v1::DeviceTimes& times,
                                                      const ModelGraph& model) {
  if (!times.speeds().empty() || !times.links().empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", times.device(),
                     " is emulated with `speeds` or `links`, which are of a job's "
                     "workers by number; for a profile, start each worker with times of its own"));
  }
  std::vector<LayerRange> each;
  each.reserve(model.size());
  for (int i = 0; i < model.size(); ++i) each.push_back({i, 1});
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StageCosts> costs, StageCostsOf(times, model, each));
  std::vector<StageCosts> of_shapes;
  for (const int first : FirstLayersOfShapes(model)) {
    for (int i = first; i < model.size(); ++i) {
      if (DescribeWork(model, model.layers[i]) != DescribeWork(model, model.layers[first])) {
        continue;
      }
      if (SameTimes(costs[i], costs[first])) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("device ", times.device(), " is emulated with other times for ",
                       model.layers[i].name, " than for ", model.layers[first].name,
                       ", which has the same shape; a profile needs the same for both"));
    }
    of_shapes.push_back(costs[first]);
  }
  return of_shapes;
}

// Returns the host of each worker, as a number.
std::vector<int> HostsOf(const v1::Plan& plan) {
  std::map<std::string, int> numbers;
  std::vector<int> hosts;
  for (const v1::StageAssignment& stage : plan.stages()) {
    const auto next = static_cast<int>(numbers.size());
    hosts.push_back(numbers.emplace(HostOf(stage.address()), next).first->second);
  }
  return hosts;
}

absl::Status CheckPlan(const v1::PrepareProfileRequest& request) {
  const v1::Plan& plan = request.plan();
  for (int i = 0; i < plan.stages_size(); ++i) {
    if (plan.stages(i).worker_index() == i) continue;
    return absl::InvalidArgumentError(absl::StrCat("plan: the profile's stage ", i,
                                                   " is on worker ", plan.stages(i).worker_index(),
                                                   "; expected one stage on every worker"));
  }
  if (request.worker_index() < 0 || request.worker_index() >= plan.stages_size()) {
    return absl::InvalidArgumentError(absl::StrCat("worker_index: is ", request.worker_index(),
                                                   "; expected 0 to ", plan.stages_size() - 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Run>> ProfileRun::Create(const v1::PrepareProfileRequest& request,
                                                        RunEnvironment environment) {
  PENSTOCK_RETURN_IF_ERROR(CheckPlan(request));
  PENSTOCK_RETURN_IF_ERROR(CheckProfileSpec(request.profile()));
  PENSTOCK_ASSIGN_OR_RETURN(ResolvedJob job, ResolveJob(request.spec()));
  std::vector<StageCosts> costs;
  if (environment.emulated_device.has_value()) {
    PENSTOCK_ASSIGN_OR_RETURN(costs, CostsOfShapes(environment.emulated_device->times, job.model));
  }
  return std::unique_ptr<Run>(
      new ProfileRun(request, std::move(job), std::move(costs), std::move(environment)));
}

ProfileRun::ProfileRun(const v1::PrepareProfileRequest& request, ResolvedJob job,
                       std::vector<StageCosts> emulated_costs, RunEnvironment environment)
    : request_(request),
      job_(std::move(job)),
      emulated_costs_(std::move(emulated_costs)),
      environment_(std::move(environment)) {}

absl::Status ProfileRun::Execute() {
  absl::Status status = Measure();
  if (!status.ok()) environment_.transport.Cancel(status);
  ReportEnd(status);
  return status;
}

absl::StatusOr<int64_t> ProfileRun::Hold() {
  return absl::FailedPreconditionError("a profile has no steps to be held at");
}

absl::Status ProfileRun::CutAt(int64_t) { return Hold().status(); }

void ProfileRun::Stop(const std::string& reason) {
  const absl::Status status = absl::AbortedError(absl::StrCat("stopped: ", reason));
  {
    MutexLock lock(mutex_);
    if (stopped_.ok()) stopped_ = status;
  }
  environment_.transport.Cancel(status);
}

absl::Status ProfileRun::MayGoOn() {
  looks_.Add(1);
  MutexLock lock(mutex_);
  return stopped_;
}

absl::Status ProfileRun::Measure() {
  PENSTOCK_RETURN_IF_ERROR(MayGoOn());
  if (workers() > 1) PENSTOCK_RETURN_IF_ERROR(MeasureLinks());
  PENSTOCK_RETURN_IF_ERROR(MayGoOn());
  MeasureCopies();
  return request_.times_layers() ? TimeLayers() : absl::OkStatus();
}

absl::Status ProfileRun::MeasureLinks() {
  const LinkProbeOptions options = {.self = request_.worker_index(),
                                    .workers = workers(),
                                    .hosts = HostsOf(request_.plan()),
                                    .timeout = kLinkTimeout,
                                    .on_peer =
                                        [this](int peer) {
                                          looks_.Add(1);
                                          current_peer_ = peer;
                                        },
                                    .on_pair =
                                        [this](int peer) {
                                          ReportNext(absl::StrCat("the link to ", NameOf(peer)));
                                          ++measured_;
                                        }};
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<LinkMeasurement> links,
                            ProbeLinks(environment_.transport, environment_.backend.host_pool(),
                                       environment_.clock, options));
  current_peer_.reset();
  v1::RunEvent event;
  for (const LinkMeasurement& link : links) {
    v1::MeasuredLink& entry = *event.mutable_links_measured()->add_links();
    entry.set_to_worker_index(link.to);
    entry.set_latency_us(link.latency_s * kUsPerSecond);
    entry.set_bytes_per_second(link.bytes_per_second);
  }
  environment_.events(std::move(event));
  return absl::OkStatus();
}

// A worker that cannot offload can still train, so whatever fails here fails no profile: its plans do not offload.
void ProfileRun::MeasureCopies() {
  absl::StatusOr<double> rate = absl::UnavailableError("an emulated device copies nothing");
  if (!emulates()) {
    Backend& backend = environment_.backend;
    absl::StatusOr<std::unique_ptr<OffloadStore>> store = OpenOffloadStore(
        backend, environment_.offload_directory, RoomInFile(kCopyRateBytes), environment_.clock);
    rate = store.ok() ? MeasureCopyRate(backend, **store) : store.status();
  } else if (const v1::DeviceTimes& times = environment_.emulated_device->times;
             times.has_offload_gigabits_per_second()) {
    rate = times.offload_gigabits_per_second() * kBytesOfGigabit;
  }
  if (!rate.ok()) return;
  v1::RunEvent event;
  event.mutable_copies_measured()->set_bytes_per_second(*rate);
  environment_.events(std::move(event));
}

absl::Status ProfileRun::TimeLayers() {
  const v1::ProfileSpec& spec = request_.profile();
  LayerProfilerOptions options = {.samples = {spec.samples().begin(), spec.samples().end()},
                                  .precision = job_.precision,
                                  .optimizer = job_.optimizer,
                                  .seed = job_.seed,
                                  .seconds = spec.seconds(),
                                  .may_go_on = [this] { return MayGoOn(); }};
  options.times = !emulates();
  // All workers of a host measure at once, in one memory if their devices are its processors.
  const std::vector<int> hosts = HostsOf(request_.plan());
  const int64_t sharing = std::count(hosts.begin(), hosts.end(), hosts[request_.worker_index()]);
  options.memory_bytes = environment_.backend.memory_bytes(/*processes=*/1) / 2 / sharing;
  PENSTOCK_ASSIGN_OR_RETURN(
      v1::ModelProfile model,
      ProfileLayers(environment_.backend, job_.model, options, environment_.clock,
                    [this](const ProfilerProgress& progress) -> absl::Status {
                      PENSTOCK_RETURN_IF_ERROR(MayGoOn());
                      measured_ = workers() - 1 + progress.done;
                      ReportNext(absl::StrCat(progress.layers, ", ", progress.samples, " samples"));
                      return absl::OkStatus();
                    }));
  if (emulates()) Emulate(model);
  v1::RunEvent event;
  *event.mutable_layers_timed()->mutable_model() = std::move(model);
  environment_.events(std::move(event));
  return absl::OkStatus();
}

void ProfileRun::Emulate(v1::ModelProfile& model) const {
  model.set_device(
      absl::StrCat(model.device(), " as ", NameOfTimes(environment_.emulated_device->times)));
  *model.mutable_bundles() = environment_.emulated_device->times.bundles();
  for (int i = 0; i < model.shapes_size(); ++i) {
    SetTimes(emulated_costs_[i], *model.mutable_shapes(i));
  }
}

void ProfileRun::ReportNext(const std::string& what) {
  v1::RunEvent event;
  event.mutable_measurement_begun()->set_done(measured_);
  event.mutable_measurement_begun()->set_what(what);
  environment_.events(std::move(event));
}

void ProfileRun::ReportEnd(const absl::Status& status) {
  v1::RunEvent event;
  if (status.ok()) {
    event.mutable_run_done();
  } else {
    v1::RunFailed& failed = *event.mutable_run_failed();
    failed.set_code(static_cast<v1::StatusCode>(status.code()));
    failed.set_message(CleanUtf8(status.message(), kErrorBytesMax));
    // Memory of its own is all that this worker can lack while it deals with another.
    if (current_peer_.has_value() && !absl::IsResourceExhausted(status) && MayGoOn().ok()) {
      failed.set_peer(NameOf(*current_peer_));
    }
  }
  environment_.events(std::move(event));
}

}  // namespace penstock
