// penstock-worker: holds stages of models and trains them, as the coordinator says.
//
// Ends on SIGTERM or SIGINT: it tells the coordinator that it leaves, which drains its job, and ends when that is done, or
// at the second signal. Then, or at once when its parent is gone, it stops serving, tells the coordinator of a run that it
// still has that it failed because the worker shuts down, and is gone within 10 s.
//
// Exit codes: 0 ended as asked, 1 failed, 2 bad usage or an address that is taken.
#include <grpcpp/grpcpp.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/confined_files.h"
#include "base/fault_points.h"
#include "base/files.h"
#include "base/status.h"
#include "data/digest_store.h"
#include "job/profile/device_times.h"
#include "penstock/v1/checkpoint_files.grpc.pb.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "penstock/v1/data.grpc.pb.h"
#include "services/http/guard.h"
#include "services/metrics/endpoint.h"
#include "services/metrics/finished_runs.h"
#include "services/metrics/process_metrics.h"
#include "services/metrics/run_metrics.h"
#include "services/rpc/channel.h"
#include "services/rpc/client.h"
#include "services/rpc/connection_acceptor.h"
#include "services/rpc/grpc_log.h"
#include "services/rpc/grpc_process.h"
#include "services/rpc/leader_stub.h"
#include "services/rpc/memory.h"
#include "services/rpc/one_line_sink.h"
#include "services/rpc/refusal_log.h"
#include "services/rpc/server.h"
#include "services/security/aes_instructions.h"
#include "services/transport/tensor_hub.h"
#include "services/worker/data_cache.h"
#include "services/worker/event_reporter.h"
#include "services/worker/flags.h"
#include "services/worker/job_backend.h"
#include "services/worker/product_rates.h"
#include "services/worker/registration.h"
#include "services/worker/remote_checkpoints.h"
#include "services/worker/run_host.h"
#include "services/worker/run_peers.h"
#include "services/worker/run_snapshot.h"
#include "services/worker/snapshot_calls.h"
#include "services/worker/stop_signal.h"
#include "services/worker/worker_service.h"

namespace penstock {
namespace {

constexpr int kFailed = 1;
constexpr int kBadUsage = 2;

// Together below the 10 s in which a worker must be gone.
constexpr absl::Duration kStopTimeout = absl::Seconds(5);
constexpr absl::Duration kFlushTimeout = absl::Seconds(2);
constexpr absl::Duration kServerGrace = absl::Seconds(1);
// The time in which the answer to a scrape reaches the client.
constexpr absl::Duration kAnswerTime = absl::Seconds(1);

std::string Text(const absl::Status& status) { return std::string(status.message()); }

uint64_t RandomIncarnation() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// The files that jobs may use.
struct JobFiles {
  Files& data;
  Files& checkpoints;
  DigestStore* cache;  // null: none of the cluster
};

absl::StatusOr<std::unique_ptr<ConfinedFiles>> FilesBelow(std::vector<std::string> roots) {
  std::erase(roots, "");
  return ConfinedFiles::Open(roots);
}

// The files of the cluster that this worker has; null: it fetches none.
absl::StatusOr<std::unique_ptr<DigestStore>> OpenCache(const WorkerFlags& flags) {
  if (flags.data_cache.empty()) return nullptr;
  absl::StatusOr<std::unique_ptr<DigestStore>> store =
      DigestStore::Open({.directory = flags.data_cache,
                         .bytes_max = flags.data_cache_bytes_max,
                         .removes_unused = true});
  if (!store.ok()) return Annotate(store.status(), "--data-cache");
  return store;
}

// The whole program. Its members stand in the order they are made; each uses those above it.
class Worker {
 public:
  Worker(const WorkerFlags& flags, const TransportSecurity& security, JobFiles files,
         spdlog::logger& log, StopSignal& stop)
      : flags_(flags), security_(security), files_(files), log_(log), stop_(stop) {}

  // Returns the exit code.
  int Serve() {
    absl::StatusOr<DeviceDescription> device = host_.Device();
    if (!device.ok()) {
      log_.error("{}", Text(device.status()));
      return kFailed;
    }
    device_ = *std::move(device);
    if (const absl::Status started = Start(); !started.ok()) {
      log_.error("{}", Text(started));
      return kBadUsage;
    }
    StopReason reason = stop_.Await();
    log_.info("ending: {}", reason.text);
    if (reason.by_signal) reason = Leave(reason);
    return End(reason.text);
  }

 private:
  // Errors: an address that cannot be had.
  absl::Status Start() {
    server_.AddExtension(hub_);
    AddWorkerControl(server_, host_, terms_, RealClock());
    AddSnapshotService(server_, snapshots_);
    PENSTOCK_RETURN_IF_ERROR(server_.Start());
    if (flags_.server.metrics.has_value()) {
      PENSTOCK_ASSIGN_OR_RETURN(std::shared_ptr<HttpGuard> guard,
                                HttpGuard::Make({.security = security_,
                                                 .token_file = flags_.server.metrics_token_file,
                                                 .on_refused = RefusalListener(),
                                                 .on_trouble = [this](const absl::Status& status) {
                                                   log_.error("{}", Text(status));
                                                 }}));
      PENSTOCK_ASSIGN_OR_RETURN(metrics_,
                                MetricsEndpoint::Listen(*flags_.server.metrics, guard,
                                                        [this] { return CollectMetrics(); }));
    }
    registration_ = std::make_unique<Registration>(RegistrationParts());
    server_.SetServing(true);
    if (flags_.server.health.has_value()) {
      log_.info("health at {}", server_.health_address().ToString());
    }
    log_.info("worker {} on {}: {}, gRPC {}", flags_.name, server_.address().ToString(),
              device_.name, grpc::Version());
    if (security_.encrypted()) {
      const AesInstructions aes = AesInstructionsOfThisCpu();
      const auto level = aes == AesInstructions::kNone ? spdlog::level::warn : spdlog::level::info;
      log_.log(level, "{}", TextOf(aes));
    }
    return absl::OkStatus();
  }

  // Waits until no job needs this worker: its job is drained and saved first, if it can be. Returns why it ends.
  StopReason Leave(const StopReason& reason) {
    constexpr absl::Duration kLookInterval = absl::Milliseconds(20);
    const absl::Time deadline = absl::Now() + flags_.drain_timeout;
    if (host_.GetActivity(/*with_stages=*/false).active) {
      log_.info("waits up to {} for its job to drain; a second signal ends at once",
                absl::FormatDuration(flags_.drain_timeout));
    }
    PENSTOCK_FAULT_POINT(kDrainBeforeWorker);
    registration_->Leave();
    while (!registration_->may_leave()) {
      StopReason again = stop_.AwaitFor(kLookInterval);
      if (!again.text.empty()) return again;
      if (absl::Now() >= deadline) {
        log_.warn("its job did not drain within {}", absl::FormatDuration(flags_.drain_timeout));
        break;
      }
    }
    PENSTOCK_FAULT_POINT(kDrainAfterWorker);
    return reason;
  }

  int End(const std::string& reason) {
    server_.SetServing(false);
    host_.Close(absl::StrCat("worker ", flags_.name, " is shutting down (", reason, ")"));
    const bool idle = host_.AwaitIdle(absl::Now() + kStopTimeout);
    if (!reporter_.Flush(absl::Now() + kFlushTimeout)) {
      log_.warn("the coordinator did not take the last events");
    }
    if (!idle) {
      log_.error("the run did not stop within {}", absl::FormatDuration(kStopTimeout));
      log_.flush();
      std::_Exit(kFailed);  // its thread cannot be joined
    }
    server_.Shutdown(kServerGrace);
    // Its stream ends when nobody listens here any more, so the coordinator knows at once.
    registration_.reset();
    if (metrics_ != nullptr && flags_.linger > absl::ZeroDuration()) Linger();
    return refused_ || device_lost_ ? kFailed : 0;
  }

  void Linger() {
    if (!finished_.AwaitShown(absl::Now() + flags_.linger)) {
      log_.info("no scrape has seen how the last run ended");
      return;
    }
    // The endpoint hangs up when it ends, and the last answer is still on its way.
    absl::SleepFor(kAnswerTime);
  }

  std::function<void(const absl::Status&)> RefusalListener() {
    return refusals_.Listener([this](const std::string& line) { log_.warn("{}", line); });
  }

  std::optional<EmulatedDevice> Emulated() const {
    if (!flags_.emulated.has_value()) return std::nullopt;
    const unsigned cores = std::max(1u, std::thread::hardware_concurrency());
    return EmulatedDevice{.times = *flags_.emulated, .cores = static_cast<int>(cores)};
  }

  // 0 where it says nothing of the run: of a device that is not there, and of a profile.
  double ProductRateFor(const RunRequest& request) {
    if (flags_.emulated || !std::holds_alternative<v1::PrepareRunRequest>(request)) return 0;
    const absl::StatusOr<double> rate = product_rates_.Of(SpecOf(request), RealClock());
    if (!rate.ok()) log_.warn("the rate of matrix products is not known: {}", Text(rate.status()));
    return rate.value_or(0);
  }

  EventReporter::Parts ReporterParts() {
    return {.worker = flags_.name,
            .incarnation = incarnation_,
            .send =
                [this](const v1::ReportRunRequest& request, const CallTrace& trace) {
                  return registry_.Call(&v1::WorkerRegistry::Stub::ReportRun, request,
                                        rpc_limits::kQuickCallTimeout, trace);
                },
            .give_up =
                [this](const std::string& job_id, int64_t epoch, const absl::Status& reason) {
                  log_.warn("job {}: giving the run up: {}", job_id, Text(reason));
                  // Does not wait, so its status says only that.
                  (void)host_.Stop(job_id, epoch, Text(reason), absl::InfinitePast());
                }};
  }

  RunHostParts HostParts() {
    return {
        .describe_device = [this]() -> absl::StatusOr<DeviceDescription> {
          PENSTOCK_ASSIGN_OR_RETURN(const auto backend,
                                    MakeBackendOn(flags_.device, flags_.threads));
          std::string name(backend->name());
          if (flags_.emulated) absl::StrAppend(&name, " as ", NameOfTimes(*flags_.emulated));
          return DeviceDescription{std::move(name),
                                   backend->memory_bytes(flags_.workers_on_device)};
        },
        .check =
            [this](const RunRequest& request) {
              return PeersOf(request, flags_.name, incarnation_).status();
            },
        .make_backend =
            [this](const RunRequest& request) {
              return MakeJobBackend(SpecOf(request), flags_.device, flags_.threads);
            },
        .join = [this](const RunRequest& request) -> absl::StatusOr<std::unique_ptr<Transport>> {
          PENSTOCK_ASSIGN_OR_RETURN(RunPeers peers, PeersOf(request, flags_.name, incarnation_));
          return hub_.Join(std::move(peers));
        },
        .prepare =
            [this](const RunRequest& request, Backend& backend, Transport& transport,
                   std::function<void(v1::RunEvent)> events,
                   std::function<absl::Status()> may_go_on) {
              return Run::Prepare(
                  request,
                  {.clock = RealClock(),
                   .files = files_.checkpoints,
                   .backend = backend,
                   .transport = transport,
                   .data_root = flags_.data_root,
                   .data_files = &files_.data,
                   .open_checkpoints = CheckpointOpener(),
                   .limits = flags_.limits,
                   .events = std::move(events),
                   .notice = [this](const std::string& text) { log_.info("run: {}", text); },
                   .may_go_on = std::move(may_go_on),
                   .snapshots = &snapshot_calls_,
                   .data_fetcher = cache_.has_value() ? &*cache_ : nullptr,
                   .emulated_device = Emulated(),
                   .offload_directory = flags_.offload_directory,
                   .product_flops_per_second = ProductRateFor(request)});
            },
        .on_attempt_over = [this] { finished_.Add(Snapshot(), RealClock().MonotonicNs()); },
        .on_device_lost =
            [this](const absl::Status& status) {
              device_lost_ = true;
              log_.error("{}; a new process can", Text(status));
              stop_.Trigger("its device is lost to this process");
            },
        .on_attempt =
            [this](const std::string& job_id, int64_t epoch, const CallTrace& trace) {
              log_.info("job {}: preparing epoch {}{}", job_id, epoch,
                        trace ? ", trace " + ToHex(trace->trace_id) : "");
              reporter_.Begin(job_id, epoch, trace);
            },
        .on_event =
            [this](v1::RunEvent event) {
              if (event.has_run_failed()) {
                log_.error("run failed: {}", event.run_failed().message());
              } else if (event.has_run_done()) {
                log_.info("run done after step {}", event.run_done().step());
              }
              reporter_.Add(std::move(event));
            }};
  }

  std::optional<DataCache> MakeCache() {
    if (files_.cache == nullptr) return std::nullopt;
    return std::optional<DataCache>(
        std::in_place, *files_.cache,
        [this](const v1::ReadDataRequest& request, absl::Duration timeout) {
          return data_service_.Call(&v1::DataService::Stub::ReadData, request, timeout);
        },
        [this](const std::string& line) { log_.info("{}", line); });
  }

  RemoteCheckpoints::Calls CheckpointCalls() {
    using Stub = v1::CheckpointFiles::Stub;
    return {.write =
                [this](const v1::WritePartRequest& request, absl::Duration timeout) {
                  return checkpoint_service_.Call(&Stub::WritePart, request, timeout);
                },
            .read =
                [this](const v1::ReadPartRequest& request, absl::Duration timeout) {
                  return checkpoint_service_.Call(&Stub::ReadPart, request, timeout);
                }};
  }

  // Connects to a coordinator.
  std::function<std::shared_ptr<grpc::Channel>(const std::string& address)> ChannelMaker() const {
    return [this](const std::string& address) {
      return MakeControlChannel(address, security_.ForChannel(Role::kCoordinator));
    };
  }

  // Null where checkpoints are on a disk here, or nowhere.
  decltype(RunEnvironment::open_checkpoints) CheckpointOpener() {
    if (!flags_.checkpoints_at_coordinator) return nullptr;
    return [this](std::function<absl::Status()> may_go_on) {
      return remote_checkpoints_.ForRun(std::move(may_go_on));
    };
  }

  // Of what is fetched while a run is prepared.
  int64_t FetchedParts() const {
    return (cache_.has_value() ? cache_->parts() : 0) + remote_checkpoints_.parts();
  }

  Registration::Parts RegistrationParts() {
    using Registry = v1::WorkerRegistry::Stub;
    return {.worker = Introduction(),
            .register_worker =
                [this](const v1::RegisterWorkerRequest& request) {
                  auto answer = registry_.Call(&Registry::RegisterWorker, request,
                                               rpc_limits::kQuickCallTimeout);
                  if (answer.ok()) terms_.OnRegistered(answer->term());
                  return answer;
                },
            .heartbeat =
                [this](const v1::HeartbeatRequest& request) {
                  auto answer = registry_.Call(&Registry::Heartbeat, request,
                                               rpc_limits::kHeartbeatCallTimeout);
                  if (answer.ok()) snapshots_.KeepNeeded(request, *answer);
                  return answer;
                },
            .attach =
                [this](const v1::AttachRequest& request, StreamCanceller& canceller) {
                  return registry_.Read(&Registry::Attach, request, rpc_limits::kAttachTimeout,
                                        canceller, [](const v1::AttachResponse&) { return true; });
                },
            .fill_activity =
                [this](v1::HeartbeatRequest& request) {
                  for (std::string& job : snapshots_.Jobs()) {
                    request.add_snapshot_jobs(std::move(job));
                  }
                  const RunHost::Activity activity = host_.GetActivity(/*with_stages=*/false);
                  if (!activity.active) return;
                  request.set_job_id(activity.job_id);
                  request.set_epoch(activity.epoch);
                  // While data and a checkpoint are fetched, no action is done.
                  const int64_t done = activity.preparing ? FetchedParts() : activity.actions_done;
                  request.set_actions_done(done);
                  request.set_pulse(activity.pulse);
                  request.set_unsteady_pulse(activity.unsteady_pulse);
                  request.set_held(activity.held);
                  AddSilentLinks(hub_.Traffic(activity.job_id), request);
                },
            .on_change =
                [this](const absl::Status& status) {
                  if (status.ok()) {
                    log_.info("registered with {}", registry_.peer());
                    reporter_.AskAgain();
                  } else {
                    log_.warn("trying again: {}", Text(status));
                  }
                },
            .on_refused =
                [this](const absl::Status& status) {
                  refused_ = true;
                  stop_.Trigger(absl::StrCat("refused by ", Text(status)));
                }};
  }

  v1::RegisterWorkerRequest Introduction() const {
    v1::RegisterWorkerRequest request;
    request.set_name(flags_.name);
    const std::string address =
        flags_.advertise.empty() ? server_.address().ToString() : flags_.advertise;
    request.set_address(address);
    request.set_incarnation(incarnation_);
    request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
    request.set_device(device_.name);
    request.set_memory_bytes(device_.memory_bytes);
    if (metrics_ != nullptr) {
      HostPort metrics = metrics_->address();
      if (metrics.IsWildcard())
        metrics.host = ParseHostPort(address)->host;  // checked with the flags
      request.set_metrics_address(metrics.ToString());
    }
    request.set_build(PENSTOCK_VERSION);
    return request;
  }

  std::vector<MetricFamily> CollectMetrics() {
    MetricSet metrics;
    AddProcessMetrics("penstock-worker", PENSTOCK_VERSION, metrics);
    if (security_.encrypted()) AddCertificateMetrics(security_.directory(), metrics);
    AddRejectedMessages({&hub_.rejected(), &host_.rejected(), &refusals_.rejected()}, metrics);
    RunSnapshot current = Snapshot();
    AddWorkerMetrics(current, metrics);
    for (const RunSnapshot& run : finished_.Show(std::move(current), RealClock().MonotonicNs())) {
      AddRunMetrics(run, metrics);
    }
    return metrics.Take();
  }

  RunSnapshot Snapshot() {
    RunSnapshot run = SnapshotOf(flags_.name, host_, reporter_, hub_, RealClock());
    run.snapshot_bytes = snapshots_.bytes();
    return run;
  }

  const WorkerFlags& flags_;
  const TransportSecurity security_;
  const JobFiles files_;
  spdlog::logger& log_;
  StopSignal& stop_;
  const uint64_t incarnation_ = RandomIncarnation();
  std::atomic<bool> refused_ = false;  // by the coordinator, for good
  std::atomic<bool> device_lost_ = false;
  DeviceDescription device_;
  RefusalLog refusals_;

  LeaderStub<v1::WorkerRegistry> registry_{flags_.coordinators, ChannelMaker()};
  LeaderStub<v1::DataService> data_service_{flags_.coordinators, ChannelMaker()};
  std::optional<DataCache> cache_ = MakeCache();
  LeaderStub<v1::CheckpointFiles> checkpoint_service_{flags_.coordinators, ChannelMaker()};
  RemoteCheckpoints remote_checkpoints_{CheckpointCalls()};
  TensorHub hub_{{.refused =
                      [this](const absl::Status& refused) {
                        log_.warn("refused a tensor stream: {}", Text(refused));
                      },
                  .opened = [this](const std::string& edge) { log_.info("edge {}", edge); },
                  .disturbed = [this](const std::string& edge) { log_.warn("edge {}", edge); }},
                 security_.ForChannel(Role::kWorker)};
  FinishedRuns finished_;
  TermFence terms_;
  SnapshotMemory snapshots_{flags_.snapshot_bytes_max};
  SnapshotCalls snapshot_calls_{snapshots_, [this](const std::string& address) {
                                  return MakeControlChannel(address,
                                                            security_.ForChannel(Role::kWorker));
                                }};
  ProductRates product_rates_{flags_.device, flags_.threads};  // the executor thread's
  // These two use each other: a reporter that gives up stops the run. When they end, no run is left.
  RunHost host_{HostParts()};
  EventReporter reporter_{ReporterParts()};
  RpcServer server_{{.listen = flags_.server.listen,
                     .reflection = flags_.server.reflection,
                     .security = security_,
                     .health = flags_.server.health,
                     .on_refused = RefusalListener()}};
  std::unique_ptr<MetricsEndpoint> metrics_;
  std::unique_ptr<Registration> registration_;
};

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) {
  if (const absl::Status armed = PENSTOCK_ARM_FAULT_POINTS(); !armed.ok()) {
    std::cerr << "penstock-worker: " << std::string(armed.message()) << "\n";
    return penstock::kBadUsage;
  }
  int exit_code = 0;
  const auto flags = penstock::ParseWorkerFlags(argc, argv, exit_code);
  if (!flags.has_value()) return exit_code;
  penstock::StopSignal stop(flags->parent_fd);  // before any thread starts
  penstock::KeepFreedMemory();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      flags->name, std::make_shared<penstock::OneLineStderrSink>()));
  spdlog::set_level(spdlog::level::from_str(flags->server.log_level));
  penstock::RaiseDescriptorLimit();
  penstock::PrepareProcessForGrpc();
  // Failed calls are reported in our own words.
  penstock::WriteGrpcLog(flags->name, /*errors=*/spdlog::should_log(spdlog::level::debug));
  const auto security =
      penstock::MakeTransportSecurity(flags->server, /*others=*/flags->coordinators);
  if (!security.ok()) {
    spdlog::error("{}", std::string(security.status().message()));
    return penstock::kBadUsage;
  }
  if (const auto warning = penstock::WarningOf(*security); warning.has_value()) {
    spdlog::warn("{}", *warning);
  }
  const auto cache = penstock::OpenCache(*flags);
  if (!cache.ok()) {
    spdlog::error("{}", std::string(cache.status().message()));
    return penstock::kBadUsage;
  }
  const auto data = penstock::FilesBelow({flags->data_root, flags->data_cache});
  const auto checkpoints = penstock::FilesBelow({flags->checkpoint_root});
  for (const absl::Status& opened : {data.status(), checkpoints.status()}) {
    if (flags->any_path || opened.ok()) continue;
    spdlog::error("{}", std::string(opened.message()));
    return penstock::kBadUsage;
  }
  penstock::Files& all = penstock::RealFiles();
  const penstock::JobFiles files = flags->any_path
                                       ? penstock::JobFiles{all, all, cache->get()}
                                       : penstock::JobFiles{**data, **checkpoints, cache->get()};
  penstock::Worker worker(*flags, *security, files, *spdlog::default_logger(), stop);
  return worker.Serve();
}
