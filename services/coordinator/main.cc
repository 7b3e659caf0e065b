// penstock-coordinator: plans jobs, assigns stages to workers, watches them, keeps the records.
//
// Parts, in the order they are made: signals, flags, log, exporter of spans, server (coordinator_server.h, or of several
// coordinators coordinator_member.h), HTTP (status page, metrics).
// The first SIGTERM or SIGINT drains, the second ends at once.
#include <signal.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/confined_files.h"
#include "base/fault_points.h"
#include "base/rejected_messages.h"
#include "base/status.h"
#include "data/digest_store.h"
#include "services/coordinator/coordinator_member.h"
#include "services/coordinator/coordinator_metrics.h"
#include "services/coordinator/coordinator_server.h"
#include "services/coordinator/status_page.h"
#include "services/etcd/etcd_client.h"
#include "services/etcd/etcd_location.h"
#include "services/http/guard.h"
#include "services/http/server.h"
#include "services/metrics/cluster_metrics.h"
#include "services/metrics/endpoint.h"
#include "services/metrics/process_metrics.h"
#include "services/rpc/connection_acceptor.h"
#include "services/rpc/grpc_log.h"
#include "services/rpc/grpc_process.h"
#include "services/rpc/host_name.h"
#include "services/rpc/one_line_sink.h"
#include "services/rpc/refusal_log.h"
#include "services/rpc/server_flags.h"
#include "services/tracing/otlp_flags.h"
#include "services/tracing/span_exporter.h"

namespace penstock {
namespace {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kBadUsage = 2;

// This is longer than a drain of the state machine may take (JobRunLimits).
constexpr absl::Duration kDrainTimeout = absl::Seconds(180);

// The time for the spans that wait when the coordinator ends.
constexpr absl::Duration kExportTimeout = absl::Seconds(5);

struct Flags {
  ServerFlags server;
  OtlpFlags otlp;
  std::string state = "penstock-state.sqlite";  // a file, or where in etcd
  std::optional<EtcdLocation> etcd;             // that is `state`; none: a file
  EtcdTls etcd_tls;
  std::string advertise;  // with etcd: HOST:PORT for users and workers
  bool drop_damaged = false;
  std::string audit_file;       // empty: off
  std::string checkpoint_root;  // empty: jobs have no checkpoints
  std::string data_directory;   // empty: users put no files here
  int64_t data_bytes_max = int64_t{256} << 30;
};

int Complain(const absl::Status& status, int exit_code) {
  std::cerr << "penstock-coordinator: " << std::string(status.message()) << "\n";
  return exit_code;
}

// Reads where the state is, and what belongs to it. Errors: InvalidArgument naming the flag.
absl::Status ReadState(Flags& flags) {
  if (!IsEtcdLocation(flags.state)) {
    if (flags.advertise.empty() && flags.etcd_tls.authority.empty() &&
        flags.etcd_tls.certificate.empty() && flags.etcd_tls.key.empty()) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        "--advertise, --etcd-ca, --etcd-cert and --etcd-key go with --state etcd://...");
  }
  const absl::StatusOr<EtcdLocation> location = ParseEtcdLocation(flags.state);
  if (!location.ok()) return Annotate(location.status(), "--state");
  flags.etcd = *location;
  if (flags.drop_damaged) {
    return absl::InvalidArgumentError(
        "--drop-damaged is for a state file; see docs/deploy.md for etcd");
  }
  if (flags.server.listen.port == 0) {
    return absl::InvalidArgumentError(
        "--listen: a coordinator among others needs a port of its own, and not any free one");
  }
  if (flags.advertise.empty()) flags.advertise = flags.server.listen.ToString();
  const absl::StatusOr<HostPort> advertised = ParseHostPort(flags.advertise);
  if (!advertised.ok()) return Annotate(advertised.status(), "--advertise");
  if (!advertised->IsWildcard() && advertised->port != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--advertise: nobody can connect to ", flags.advertise,
                   "; name an address of this machine that users and workers reach"));
}

// Returns nothing after --help or bad usage; `exit_code` then says how to end.
std::optional<Flags> ParseFlags(int argc, char** argv, int& exit_code) {
  Flags flags;
  std::string audit;
  CLI::App app("The coordinator of a Penstock cluster: plans, assigns and watches jobs.",
               "penstock-coordinator");
  app.option_defaults()->always_capture_default();
  const auto read_server_flags = AddServerFlags(
      app, flags.server,
      {.listen = "127.0.0.1:7070",
       .metrics = "127.0.0.1:7071",
       .metrics_help = "HOST:PORT of the status page and the Prometheus endpoint, or off"});
  app.add_option("--state", flags.state,
                 "SQLite file of the job records; or etcd://HOST:PORT,HOST:PORT,.../PREFIX, where "
                 "several coordinators share them");
  app.add_option("--etcd-ca", flags.etcd_tls.authority,
                 "file with the authority of the certificates of etcd's members, for TLS to etcd")
      ->type_name("FILE");
  app.add_option("--etcd-cert", flags.etcd_tls.certificate,
                 "file with the certificate that is shown to etcd")
      ->type_name("FILE");
  app.add_option("--etcd-key", flags.etcd_tls.key, "file with its key")->type_name("FILE");
  app.add_option("--advertise", flags.advertise,
                 "HOST:PORT where users and workers reach this coordinator, for others to name it; "
                 "with etcd only; default: the address of --listen")
      ->type_name("ADDRESS");
  app.add_flag(
      "--drop-damaged", flags.drop_damaged,
      "drop what is damaged in the state file, and log what, instead of refusing to start");
  app.add_option(
      "--audit-log", audit,
      "file that says who submitted and cancelled what, or off; default: the state file's "
      "name and .audit.jsonl");
  app.add_option("--checkpoint-root", flags.checkpoint_root,
                 "directory below which jobs may have their checkpoints; default: nowhere")
      ->type_name("DIR");
  app.add_option("--data-directory", flags.data_directory,
                 "directory for the files that `penstock data put` brings, of this coordinator "
                 "alone; default: it takes none")
      ->type_name("DIR");
  app.add_option("--data-bytes", flags.data_bytes_max,
                 "most that these files may have of the disk, such as 64GiB")
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->default_str("256GiB");
  AddOtlpFlags(app, flags.otlp, /*use_environment=*/true,
               "URL of an OpenTelemetry collector that the spans of jobs are sent to, by OTLP over "
               "HTTP; default: none");
  try {  // CLI11 reports by exception
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error, std::cout, std::cerr) == 0 ? kDone : kBadUsage;
    return std::nullopt;
  }
  if (const absl::Status read = read_server_flags(); !read.ok()) {
    exit_code = Complain(read, kBadUsage);
    return std::nullopt;
  }
  if (const absl::Status read = ReadState(flags); !read.ok()) {
    exit_code = Complain(read, kBadUsage);
    return std::nullopt;
  }
  if (audit.empty()) {
    audit = flags.etcd.has_value() ? "penstock-audit.jsonl" : flags.state + ".audit.jsonl";
  }
  if (audit != "off") flags.audit_file = audit;
  return flags;
}

// Blocks the signals that end the program and returns them, so that they are taken where we wait for them. Threads
// inherit the block: call it before any is started.
sigset_t BlockEndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

bool EndSignalCame(const sigset_t& signals, absl::Duration within) {
  const timespec timeout = absl::ToTimespec(within);
  return sigtimedwait(&signals, nullptr, &timeout) > 0;
}

// The coordinator that runs: alone, or one of several.
struct Running {
  std::unique_ptr<EtcdClient> etcd;  // null: alone
  std::unique_ptr<ClusterView> view;
  std::function<absl::Status(absl::Duration)> drain;
  std::function<void()> shutdown;
  std::function<bool()> leads;
  std::string address;
  std::string health_address;
};

// Errors: those of CoordinatorServer::Start or of CoordinatorMember::Start and MakeEtcdCredentials.
absl::StatusOr<Running> Start(const Flags& flags, CoordinatorServerOptions options, Files& files) {
  Running running;
  if (flags.etcd.has_value()) {
    PENSTOCK_ASSIGN_OR_RETURN(
        const auto credentials,
        MakeEtcdCredentials(flags.etcd_tls, *flags.etcd, flags.server.security.insecure_network));
    running.etcd = std::make_unique<EtcdClient>(flags.etcd->members, credentials);
    PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<CoordinatorMember> member,
                              CoordinatorMember::Start({.server = std::move(options),
                                                        .prefix = flags.etcd->prefix,
                                                        .advertise = flags.advertise},
                                                       *running.etcd, RealClock(), files));
    CoordinatorMember* const one = member.get();
    running.drain = [one](absl::Duration timeout) { return one->Drain(timeout); };
    running.shutdown = [one] { one->Shutdown(); };
    running.leads = [one] { return one->leads(); };
    running.address = flags.server.listen.ToString();
    if (flags.server.health.has_value()) running.health_address = flags.server.health->ToString();
    running.view = std::move(member);
    return running;
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<CoordinatorServer> server,
                            CoordinatorServer::Start(options, RealClock(), files));
  CoordinatorServer* const alone = server.get();
  running.drain = [alone](absl::Duration timeout) { return alone->Drain(timeout); };
  running.shutdown = [alone] { alone->Shutdown(); };
  running.leads = [] { return true; };
  running.address = alone->address().ToString();
  if (flags.server.health.has_value()) running.health_address = alone->health_address().ToString();
  running.view = std::move(server);
  return running;
}

absl::Status DrainUnlessSignalled(const Running& coordinator, const sigset_t& signals) {
  constexpr absl::Duration kSignalInterval = absl::Milliseconds(200);
  const int64_t give_up_ns = RealClock().MonotonicNs() + absl::ToInt64Nanoseconds(kDrainTimeout);
  PENSTOCK_FAULT_POINT(kDrainBeforeCoordinator);
  for (;;) {
    const absl::Status drained = coordinator.drain(kSignalInterval);
    if (!absl::IsDeadlineExceeded(drained) || RealClock().MonotonicNs() >= give_up_ns) {
      return drained;
    }
    if (EndSignalCame(signals, absl::ZeroDuration())) {
      return absl::AbortedError("a second signal ended the drain");
    }
  }
}

uint32_t DrawWord() {
  std::random_device device;
  return device();
}

// A collector's client and what feeds it; without a collector nothing.
struct Tracing {
  std::unique_ptr<OtlpClient> client;
  std::unique_ptr<SpanExporter> exporter;
  SpanCounts counts() const { return exporter == nullptr ? SpanCounts() : exporter->counts(); }
};

// Tells this coordinator from others, also after a restart.
std::string InstanceName(const HostPort& listen) {
  return HostPort{.host = HostName(), .port = listen.port}.ToString();
}

// Errors: those of MakeOtlpClient.
absl::StatusOr<Tracing> StartTracing(const Flags& flags, spdlog::logger& log) {
  Tracing tracing;
  PENSTOCK_ASSIGN_OR_RETURN(tracing.client, MakeOtlpClient(flags.otlp));
  OtlpClient* const client = tracing.client.get();
  if (client == nullptr) return tracing;
  tracing.exporter = std::make_unique<SpanExporter>(
      SpanExporter::Parts{.sender = {.name = "penstock-coordinator",
                                     .version = PENSTOCK_VERSION,
                                     .instance = InstanceName(flags.server.listen)},
                          .send = [client](const std::string& json) { return client->Post(json); },
                          .cancel = [client] { client->Cancel(); },
                          .log = [&log](const std::string& line) { log.warn("{}", line); }});
  return tracing;
}

std::vector<MetricFamily> Collect(const Running& coordinator, const Tracing& tracing,
                                  const TransportSecurity& security,
                                  const RejectedMessages& refused_requests) {
  MetricSet metrics;
  AddProcessMetrics("penstock-coordinator", PENSTOCK_VERSION, metrics);
  AddSpanMetrics(tracing.counts(), metrics);
  if (security.encrypted()) AddCertificateMetrics(security.directory(), metrics);
  absl::StatusOr<CoordinatorSnapshot> snapshot = coordinator.view->Snapshot();
  if (snapshot.ok()) {
    refused_requests.AddTo(snapshot->rejected);
    AddCoordinatorMetrics(*snapshot, metrics);
  } else {
    AddRoleMetrics(coordinator.leads(), metrics);
  }
  return metrics.Take();
}

int Main(int argc, char** argv) {
  const sigset_t signals = BlockEndSignals();
  if (const absl::Status armed = PENSTOCK_ARM_FAULT_POINTS(); !armed.ok()) {
    return Complain(armed, kBadUsage);
  }
  int exit_code = kDone;
  const std::optional<Flags> flags = ParseFlags(argc, argv, exit_code);
  if (!flags.has_value()) {
    return exit_code;
  }
  spdlog::logger log("coordinator", std::make_shared<OneLineStderrSink>());
  log.set_level(spdlog::level::from_str(flags->server.log_level));
  log.flush_on(spdlog::level::trace);
  RaiseDescriptorLimit();
  PrepareProcessForGrpc();
  // Failed calls are reported in our own words.
  WriteGrpcLog("coordinator", /*errors=*/log.should_log(spdlog::level::debug));

  const absl::StatusOr<TransportSecurity> security =
      MakeTransportSecurity(flags->server, /*others=*/{});
  if (!security.ok()) {
    return Complain(security.status(), kBadUsage);
  }
  RefusalLog refused_requests;
  const auto guard =
      HttpGuard::Make({.security = *security,
                       .token_file = flags->server.metrics_token_file,
                       .on_refused = refused_requests.Listener(
                           [&log](const std::string& line) { log.warn("{}", line); }),
                       .on_trouble = [&log](const absl::Status& status) {
                         log.error("{}", std::string(status.message()));
                       }});
  if (!guard.ok()) {
    return Complain(guard.status(), kBadUsage);
  }
  std::vector<std::string> roots;
  if (!flags->checkpoint_root.empty()) roots.push_back(flags->checkpoint_root);
  absl::StatusOr<std::unique_ptr<ConfinedFiles>> opened = ConfinedFiles::Open(roots);
  if (!opened.ok()) {
    return Complain(opened.status(), kBadUsage);
  }
  // They live as long as the process: a disk that hangs may keep a thread in them until then.
  static ConfinedFiles* const files = opened->release();
  static DigestStore* data = nullptr;  // lives as long, for the same reason
  if (!flags->data_directory.empty()) {
    absl::StatusOr<std::unique_ptr<DigestStore>> store =
        DigestStore::Open({.directory = flags->data_directory, .bytes_max = flags->data_bytes_max});
    if (!store.ok()) return Complain(Annotate(store.status(), "--data-directory"), kBadUsage);
    data = store->release();
  }
  const absl::StatusOr<Tracing> tracing = StartTracing(*flags, log);
  if (!tracing.ok()) {
    return Complain(tracing.status(), kBadUsage);
  }
  std::function<void(std::vector<TraceSpan>)> spans;
  if (tracing->exporter != nullptr) {
    spans = [&tracing](std::vector<TraceSpan> made) { tracing->exporter->Add(std::move(made)); };
  }
  const absl::StatusOr<Running> running =
      Start(*flags,
            {.listen = flags->server.listen,
             .state_file = flags->state,
             .drop_damaged = flags->drop_damaged,
             .reflection = flags->server.reflection,
             .security = *security,
             .health = flags->server.health,
             .limits = {.draw = DrawWord},
             .audit_file = flags->audit_file,
             .data = data,
             .checkpoint_files = roots.empty() ? nullptr : files,
             .open_lock = [](const std::string& path) { return files->OpenOwn(path); },
             .log = [&log](const std::string& line) { log.info("{}", line); },
             .spans = spans},
            *files);
  if (!running.ok()) {
    return Complain(running.status(), kBadUsage);
  }
  std::unique_ptr<HttpServer> http;
  if (flags->server.metrics.has_value()) {
    HttpServerOptions options = {.listen = *flags->server.metrics,
                                 .routes = StatusPageRoutes(*running->view)};
    options.routes.push_back(MetricsRoute(
        [&] { return Collect(*running, *tracing, *security, refused_requests.rejected()); }));
    HttpGuard::Protect(*guard, options);
    absl::StatusOr<std::unique_ptr<HttpServer>> started = HttpServer::Start(std::move(options));
    if (!started.ok()) {
      return Complain(Annotate(started.status(), "metrics"), kBadUsage);
    }
    http = *std::move(started);
    log.info("status page at {0}://{1}/, metrics at {0}://{1}/metrics",
             security->encrypted() ? "https" : "http", http->address().ToString());
  }
  if (flags->server.health.has_value()) {
    log.info("health at {}", running->health_address);
  }
  if (const auto warning = WarningOf(*security); warning.has_value()) log.warn("{}", *warning);
  log.info("listens on {}, state in {}", running->address, flags->state);

  constexpr absl::Duration kForever = absl::Hours(1);
  while (!EndSignalCame(signals, kForever)) {
  }
  log.info("draining; a second signal ends at once");
  const absl::Status drained = DrainUnlessSignalled(*running, signals);
  if (!drained.ok()) {
    log.warn("not drained: {}", std::string(drained.message()));
  }
  PENSTOCK_FAULT_POINT(kDrainAfterCoordinator);
  http.reset();
  running->shutdown();
  if (tracing->exporter != nullptr) tracing->exporter->Stop(absl::Now() + kExportTimeout);
  log.info("stopped");
  return drained.ok() ? kDone : kFailed;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return penstock::Main(argc, argv); }
