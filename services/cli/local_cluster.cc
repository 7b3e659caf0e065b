#include "services/cli/local_cluster.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "compute/device.h"
#include "services/coordinator/coordinator_metrics.h"
#include "services/http/guard.h"
#include "services/metrics/process_metrics.h"
#include "services/security/authority_directory.h"
#include "services/security/identity.h"

namespace penstock {
namespace {

constexpr absl::Duration kPollInterval = absl::Milliseconds(20);
constexpr int64_t kLastWordsBytesMax = 2000;
constexpr char kLoopback[] = "127.0.0.1";
constexpr char kTrustDomain[] = "penstock";

// The last line a worker printed, where the reason of its end normally stands.
std::string LastWords(const Supervisor& supervisor, int worker) {
  const std::string tail = supervisor.LogTail(worker, kLastWordsBytesMax);
  const absl::string_view text = absl::StripSuffix(tail, "\n");
  const size_t line = text.rfind('\n');
  return std::string(line == absl::string_view::npos ? text : text.substr(line + 1));
}

}  // namespace

std::string LocalWorkerName(int worker) { return absl::StrCat("worker-", worker); }

absl::StatusOr<std::string> FindWorkerProgram() {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path program = self.parent_path() / "penstock-worker";
  if (error || !std::filesystem::exists(program, error)) {
    return absl::NotFoundError(absl::StrCat("there is no penstock-worker beside this program (",
                                            program.string(),
                                            "); build or install both into one directory"));
  }
  return program.string();
}

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Fork(LocalClusterOptions options) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<Supervisor> supervisor,
                            Supervisor::Fork(options.workers));
  if (!options.checkpoint_directory.empty()) {
    PENSTOCK_RETURN_IF_ERROR(supervisor->SweepAtEnd(options.checkpoint_directory));
  }
  return std::unique_ptr<LocalCluster>(new LocalCluster(std::move(options), std::move(supervisor)));
}

LocalCluster::~LocalCluster() { Stop(absl::ZeroDuration()); }

absl::Status LocalCluster::Start(Clock& clock) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string program, FindWorkerProgram());
  const absl::Time now = absl::Now();
  PENSTOCK_RETURN_IF_ERROR(Annotate(MakeCredentials(now), "certificates of this cluster"));
  PENSTOCK_ASSIGN_OR_RETURN(
      const TransportSecurity security,
      TransportSecurity::Tls(JoinPath(credentials_, RoleName(Role::kCoordinator)), now));
  PENSTOCK_ASSIGN_OR_RETURN(
      client_security_,
      TransportSecurity::Tls(JoinPath(credentials_, RoleName(Role::kClient)), now));
  PENSTOCK_ASSIGN_OR_RETURN(
      coordinator_,
      CoordinatorServer::Start({.listen = {.host = kLoopback, .port = 0}, .security = security},
                               clock, RealFiles()));
  if (options_.metrics.has_value()) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::shared_ptr<HttpGuard> guard,
                              HttpGuard::Make({.security = security}));
    PENSTOCK_ASSIGN_OR_RETURN(metrics_, MetricsEndpoint::Listen(*options_.metrics, guard, [this] {
                                return CollectMetrics();
                              }));
  }
  if (options_.device != "cpu") gpus_ = UsableGpus();
  for (int worker = 0; worker < options_.workers; ++worker) {
    PENSTOCK_RETURN_IF_ERROR(SpawnWorker(program, worker));
  }
  return AwaitRegistration(clock);
}

absl::Status LocalCluster::MakeCredentials(absl::Time now) {
  std::error_code error;
  credentials_ = JoinPath(std::filesystem::temp_directory_path(error).string(), "penstock-XXXXXX");
  if (error || mkdtemp(credentials_.data()) == nullptr) {
    return absl::ErrnoToStatus(error ? error.value() : errno, credentials_);
  }
  PENSTOCK_RETURN_IF_ERROR(supervisor_->RemoveAtEnd(credentials_));
  PENSTOCK_ASSIGN_OR_RETURN(const AuthorityDirectory authority,
                            AuthorityDirectory::Make(credentials_, kTrustDomain, now));
  for (const Role role : {Role::kCoordinator, Role::kWorker, Role::kClient, Role::kMonitor}) {
    // Who checks host names, as Prometheus does, can be told to expect the role's.
    PENSTOCK_RETURN_IF_ERROR(
        authority
            .Issue(role, /*name=*/"", {RoleName(role)}, AuthorityDirectory::kAuthorityLifetime, now)
            .status());
  }
  return absl::OkStatus();
}

CoordinatorClient LocalCluster::Connect() const {
  return CoordinatorClient::Connect(coordinator_->address().ToString(), client_security_);
}

std::string LocalCluster::NameOf(int worker) const {
  const std::vector<std::string>& names = options_.names;
  if (worker < static_cast<int>(names.size())) return names[worker];
  // The first that are not taken.
  int left = worker - static_cast<int>(names.size());
  for (int number = 0;; ++number) {
    std::string name = LocalWorkerName(number);
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    if (left-- == 0) return name;
  }
}

std::string LocalCluster::MetricsOf(int worker) const {
  if (!options_.metrics.has_value()) return "off";
  HostPort address = *options_.metrics;
  if (address.port != 0) address.port += 1 + worker;
  return address.ToString();
}

absl::Status LocalCluster::SpawnWorker(const std::string& program, int worker) {
  std::vector<std::string> arguments = {
      program,
      "--coordinator",
      coordinator_->address().ToString(),
      "--certificates",
      JoinPath(credentials_, RoleName(Role::kWorker)),
      "--listen",
      absl::StrCat(kLoopback, ":0"),
      "--name",
      NameOf(worker),
      "--data-root",
      options_.data_root,
      "--any-path",
      "--device",
      DeviceOfWorker(options_.device, worker, gpus_),
      "--workers-on-device",
      absl::StrCat(WorkersOnDeviceOf(options_.device, worker, options_.workers, gpus_)),
      "--threads",
      absl::StrCat(options_.threads),
      "--metrics",
      MetricsOf(worker),
      "--snapshot-memory",
      "0",  // nobody takes the place of a worker that dies
      "--parent-fd",
      "{parent-fd}"};
  if (options_.metrics.has_value()) {
    arguments.insert(arguments.end(), {"--linger", absl::StrCat(absl::ToInt64Seconds(kLinger))});
  }
  if (!options_.emulate.empty()) arguments.insert(arguments.end(), {"--emulate", options_.emulate});
  return supervisor_->Spawn(worker, arguments, {absl::StrCat("OMP_NUM_THREADS=", options_.threads)})
      .status();
}

absl::Duration LocalCluster::StartTimeout() const {
  return UsesGpu(options_.device, gpus_) ? kGpuStartTimeout : kStartTimeout;
}

absl::Status LocalCluster::AwaitRegistration(Clock& clock) {
  CoordinatorClient client = Connect();
  const absl::Duration timeout = StartTimeout();
  const int64_t give_up_ns = clock.MonotonicNs() + absl::ToInt64Nanoseconds(timeout);
  for (;;) {
    PENSTOCK_RETURN_IF_ERROR(Health());
    PENSTOCK_ASSIGN_OR_RETURN(const v1::ListWorkersResponse list, client.ListWorkers());
    if (list.workers_size() >= options_.workers) return absl::OkStatus();
    if (clock.MonotonicNs() > give_up_ns) {
      return absl::DeadlineExceededError(
          absl::StrCat("only ", list.workers_size(), " of ", options_.workers,
                       " workers registered within ", absl::FormatDuration(timeout)));
    }
    absl::SleepFor(kPollInterval);
  }
}

absl::Status LocalCluster::Health() {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<WorkerExit> exits, supervisor_->TakeExits());
  if (exits.empty()) return absl::OkStatus();
  const WorkerExit& exit = exits.front();
  const std::string words = LastWords(*supervisor_, exit.worker);
  return absl::UnavailableError(absl::StrCat(NameOf(exit.worker), " ", exit.ToString(),
                                             words.empty() ? "" : absl::StrCat(": ", words)));
}

std::vector<MetricFamily> LocalCluster::CollectMetrics() {
  MetricSet metrics;
  AddProcessMetrics("penstock", PENSTOCK_VERSION, metrics);
  const absl::StatusOr<CoordinatorSnapshot> snapshot = coordinator_->Snapshot();
  if (snapshot.ok()) AddCoordinatorMetrics(*snapshot, metrics);
  ++scrapes_;
  return metrics.Take();
}

absl::StatusOr<std::vector<std::string>> LocalCluster::MetricsAddresses() {
  std::vector<std::string> addresses;
  if (metrics_ == nullptr) return addresses;
  const auto add = [&addresses](absl::string_view name, absl::string_view address) {
    addresses.push_back(absl::StrCat(name, " https://", address, "/metrics"));
  };
  addresses.push_back(absl::StrCat("certificate for scrapes in ",
                                   JoinPath(credentials_, RoleName(Role::kMonitor))));
  add("coordinator", metrics_->address().ToString());
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ListWorkersResponse list, Connect().ListWorkers());
  for (const v1::WorkerSummary& worker : list.workers())
    add(worker.name(), worker.metrics_address());
  return addresses;
}

void LocalCluster::StopOnceScraped(const std::function<bool()>& give_up) {
  if (metrics_ == nullptr) return;
  const int64_t before = scrapes_;
  const absl::Time deadline = absl::Now() + kLinger;
  while (scrapes_ == before && absl::Now() < deadline && !give_up()) absl::SleepFor(kPollInterval);
  // Each worker waits for a scrape of its own (--linger).
  constexpr absl::Duration kGraceMin = absl::Seconds(2);
  supervisor_->Stop(give_up() ? absl::ZeroDuration() : std::max(kGraceMin, deadline - absl::Now()));
  metrics_.reset();
  coordinator_.reset();
}

void LocalCluster::Stop(absl::Duration grace) {
  metrics_.reset();
  // Workers that end in good order speak to the coordinator to their end. Killed workers leave unfinished
  // checkpoints, which the supervisor sweeps when the coordinator holds the directory no more.
  if (grace <= absl::ZeroDuration()) coordinator_.reset();
  supervisor_->Stop(grace);
  coordinator_.reset();
}

}  // namespace penstock
