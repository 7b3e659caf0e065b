// penstock-coordinator: plans jobs, assigns stages to workers, watches them, keeps the records.
//
// Parts, in the order they are made: signals, flags, log, exporter of spans, server (coordinator_server.h), HTTP
// (status page, metrics).
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
#include "base/rejected_messages.h"
#include "base/status.h"
#include "services/coordinator/coordinator_metrics.h"
#include "services/coordinator/coordinator_server.h"
#include "services/coordinator/status_page.h"
#include "services/http/guard.h"
#include "services/http/server.h"
#include "services/metrics/cluster_metrics.h"
#include "services/metrics/endpoint.h"
#include "services/metrics/process_metrics.h"
#include "services/rpc/connection_acceptor.h"
#include "services/rpc/grpc_log.h"
#include "services/rpc/grpc_polling.h"
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
  std::string state_file = "penstock-state.sqlite";
  bool drop_damaged = false;
  std::string audit_file;       // empty: off
  std::string checkpoint_root;  // empty: jobs have no checkpoints
};

int Complain(const absl::Status& status, int exit_code) {
  std::cerr << "penstock-coordinator: " << std::string(status.message()) << "\n";
  return exit_code;
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
  app.add_option("--state", flags.state_file, "SQLite file of the job records");
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
  if (audit.empty()) audit = flags.state_file + ".audit.jsonl";
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

absl::Status DrainUnlessSignalled(CoordinatorServer& server, const sigset_t& signals) {
  constexpr absl::Duration kSignalInterval = absl::Milliseconds(200);
  const int64_t give_up_ns = RealClock().MonotonicNs() + absl::ToInt64Nanoseconds(kDrainTimeout);
  for (;;) {
    const absl::Status drained = server.Drain(kSignalInterval);
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

std::vector<MetricFamily> Collect(CoordinatorServer& server, const Tracing& tracing,
                                  const TransportSecurity& security,
                                  const RejectedMessages& refused_requests) {
  MetricSet metrics;
  AddProcessMetrics("penstock-coordinator", PENSTOCK_VERSION, metrics);
  AddSpanMetrics(tracing.counts(), metrics);
  if (security.encrypted()) AddCertificateMetrics(security.directory(), metrics);
  absl::StatusOr<CoordinatorSnapshot> snapshot = server.Snapshot();
  if (snapshot.ok()) {
    refused_requests.AddTo(snapshot->rejected);
    AddCoordinatorMetrics(*snapshot, metrics);
  }
  return metrics.Take();
}

int Main(int argc, char** argv) {
  const sigset_t signals = BlockEndSignals();
  int exit_code = kDone;
  const std::optional<Flags> flags = ParseFlags(argc, argv, exit_code);
  if (!flags.has_value()) {
    return exit_code;
  }
  spdlog::logger log("coordinator", std::make_shared<OneLineStderrSink>());
  log.set_level(spdlog::level::from_str(flags->server.log_level));
  log.flush_on(spdlog::level::trace);
  RaiseDescriptorLimit();
  PollIdleChannelsOften();
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
  const absl::StatusOr<Tracing> tracing = StartTracing(*flags, log);
  if (!tracing.ok()) {
    return Complain(tracing.status(), kBadUsage);
  }
  std::function<void(std::vector<TraceSpan>)> spans;
  if (tracing->exporter != nullptr) {
    spans = [&tracing](std::vector<TraceSpan> made) { tracing->exporter->Add(std::move(made)); };
  }
  const absl::StatusOr<std::unique_ptr<CoordinatorServer>> server = CoordinatorServer::Start(
      {.listen = flags->server.listen,
       .state_file = flags->state_file,
       .drop_damaged = flags->drop_damaged,
       .reflection = flags->server.reflection,
       .security = *security,
       .health = flags->server.health,
       .limits = {.draw = DrawWord},
       .audit_file = flags->audit_file,
       .open_lock = [](const std::string& path) { return files->OpenOwn(path); },
       .log = [&log](const std::string& line) { log.info("{}", line); },
       .spans = spans},
      RealClock(), *files);
  if (!server.ok()) {
    return Complain(server.status(), kBadUsage);
  }
  std::unique_ptr<HttpServer> http;
  if (flags->server.metrics.has_value()) {
    HttpServerOptions options = {.listen = *flags->server.metrics,
                                 .routes = StatusPageRoutes(**server)};
    options.routes.push_back(MetricsRoute(
        [&] { return Collect(**server, *tracing, *security, refused_requests.rejected()); }));
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
    log.info("health at {}", (*server)->health_address().ToString());
  }
  if (const auto warning = WarningOf(*security); warning.has_value()) log.warn("{}", *warning);
  log.info("listens on {}, state in {}", (*server)->address().ToString(), flags->state_file);

  constexpr absl::Duration kForever = absl::Hours(1);
  while (!EndSignalCame(signals, kForever)) {
  }
  log.info("draining; a second signal ends at once");
  const absl::Status drained = DrainUnlessSignalled(**server, signals);
  if (!drained.ok()) {
    log.warn("not drained: {}", std::string(drained.message()));
  }
  http.reset();
  (*server)->Shutdown();
  if (tracing->exporter != nullptr) tracing->exporter->Stop(absl::Now() + kExportTimeout);
  log.info("stopped");
  return drained.ok() ? kDone : kFailed;
}

}  // namespace
}  // namespace penstock

int main(int argc, char** argv) { return penstock::Main(argc, argv); }
