#include "services/cli/coordinator_client.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/leader_note.h"
#include "base/status.h"
#include "job/keys/suggest.h"
#include "services/cli/next_commands.h"
#include "services/rpc/address.h"
#include "services/rpc/channel.h"

namespace penstock {
namespace {

// Distinguishes this submission from every other, so that repeating it makes no second job.
std::string RandomKey() {
  std::random_device device;
  return absl::StrFormat("%08x%08x%08x%08x", device(), device(), device(), device());
}

// Returns the trace of the caller of this command.
absl::StatusOr<CallTrace> TraceOfEnvironment() {
  constexpr char kVariable[] = "TRACEPARENT";
  const char* text = std::getenv(kVariable);
  if (text == nullptr || *text == '\0') return CallTrace();
  const absl::StatusOr<TraceContext> trace = ParseTraceparent(text);
  if (!trace.ok()) return Annotate(trace.status(), kVariable);
  return CallTrace(*trace);
}

}  // namespace

void AddCoordinatorOptions(CLI::App& app, CoordinatorOptions& options) {
  options.address = kDefaultCoordinator;
  app.add_option("--coordinator", options.address, "HOST:PORT of the coordinator")
      ->envname("PENSTOCK_COORDINATOR")
      ->type_name("ADDRESS")
      ->capture_default_str();
  AddSecurityFlags(app, options.security);
}

absl::StatusOr<CoordinatorClient> CoordinatorClient::Connect(const CoordinatorOptions& options) {
  const absl::StatusOr<std::vector<HostPort>> addresses = ParseHostPorts(options.address);
  if (!addresses.ok()) return Annotate(addresses.status(), "--coordinator");
  PENSTOCK_ASSIGN_OR_RETURN(const TransportSecurity security,
                            MakeTransportSecurity(options.security, *addresses, absl::Now()));
  PENSTOCK_ASSIGN_OR_RETURN(const CallTrace trace, TraceOfEnvironment());
  CoordinatorClient client = Connect(options.address, security, trace);
  client.flags_ = FlagsOf(options);
  return client;
}

CoordinatorClient CoordinatorClient::Connect(const std::string& address,
                                             const TransportSecurity& security,
                                             const CallTrace& trace) {
  const auto dial = [&security](const std::string& one) {
    return MakeControlChannel(one, security.ForChannel(Role::kCoordinator));
  };
  return {address, security.encrypted() ? security.directory() : "",
          std::make_unique<LeaderStub<v1::JobService>>(*ParseHostPorts(address), dial), trace};
}

absl::StatusOr<std::string> CoordinatorClient::SubmitJob(const v1::JobSpec& spec,
                                                         const std::string& key) {
  v1::SubmitJobRequest request;
  *request.mutable_spec() = spec;
  request.set_idempotency_key(key.empty() ? RandomKey() : key);
  const auto response =
      stub_->Call(&v1::JobService::Stub::SubmitJob, request, kClientCallTimeout, trace_);
  if (!response.ok()) return Explain(response.status());
  return response->job_id();
}

absl::StatusOr<std::string> CoordinatorClient::SubmitProfile(const v1::JobSpec& spec,
                                                             const v1::ProfileSpec& profile) {
  v1::SubmitProfileRequest request;
  *request.mutable_spec() = spec;
  *request.mutable_profile() = profile;
  request.set_idempotency_key(RandomKey());
  const auto response =
      stub_->Call(&v1::JobService::Stub::SubmitProfile, request, kClientCallTimeout, trace_);
  if (!response.ok()) return Explain(response.status());
  return response->job_id();
}

absl::StatusOr<v1::ListJobsResponse> CoordinatorClient::ListJobs() {
  return Explained(stub_->Call(&v1::JobService::Stub::ListJobs, {}, kClientCallTimeout, trace_));
}

absl::StatusOr<v1::ListWorkersResponse> CoordinatorClient::ListWorkers() {
  return Explained(stub_->Call(&v1::JobService::Stub::ListWorkers, {}, kClientCallTimeout, trace_));
}

absl::StatusOr<v1::GetJobResponse> CoordinatorClient::GetJob(const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_job_id(job_id);
  return ExplainedForJob(
      stub_->Call(&v1::JobService::Stub::GetJob, request, kClientCallTimeout, trace_), job_id);
}

absl::StatusOr<v1::CancelJobResponse> CoordinatorClient::CancelJob(const std::string& job_id) {
  v1::CancelJobRequest request;
  request.set_job_id(job_id);
  return ExplainedForJob(
      stub_->Call(&v1::JobService::Stub::CancelJob, request, kClientCallTimeout, trace_), job_id);
}

absl::StatusOr<v1::GetTimelineResponse> CoordinatorClient::GetTimeline(const std::string& job_id) {
  v1::GetTimelineRequest request;
  request.set_job_id(job_id);
  return ExplainedForJob(
      stub_->Call(&v1::JobService::Stub::GetTimeline, request, kTimelineCallTimeout, trace_),
      job_id);
}

absl::Status CoordinatorClient::WatchJob(const std::string& job_id, int64_t after_sequence,
                                         StreamCanceller& canceller,
                                         const std::function<bool(const v1::JobEvent&)>& on_event) {
  v1::WatchJobRequest request;
  request.set_job_id(job_id);
  request.set_after_sequence(after_sequence);
  return stub_->Read(&v1::JobService::Stub::WatchJob, request, kWatchTimeout, canceller, on_event,
                     trace_);
}

absl::Status CoordinatorClient::ReadPast(const std::string& job_id, int64_t after_sequence,
                                         const std::function<bool(const v1::JobEvent&)>& on_event) {
  v1::WatchJobRequest request;
  request.set_job_id(job_id);
  request.set_after_sequence(after_sequence);
  request.set_past_only(true);
  StreamCanceller canceller;
  return stub_->Read(&v1::JobService::Stub::WatchJob, request, kWatchTimeout, canceller, on_event,
                     trace_);
}

std::string CoordinatorClient::WhyUnreached(const std::string& said) const {
  const auto has = [&](absl::string_view part) { return absl::StrContains(said, part); };
  const std::string reason = said.substr(said.rfind(": ") + 2);  // gRPC puts the system's last
  const std::string there = absl::StrCat(" at ", address_);
  if (has("certificate verify failed")) {
    return absl::StrCat("the coordinator", there, " is not trusted: its certificate is not of the ",
                        "authority in ", JoinPath(certificates_, "ca.crt"),
                        "; name with --certificates (or PENSTOCK_CERTIFICATES) the directory "
                        "`client` that the authority of its cluster has issued, as `penstock certs "
                        "issue client` does there");
  }
  if (has("Custom verification check failed")) {
    return absl::StrCat("what answers", there, " is not a coordinator (", reason,
                        "); --coordinator names the coordinator's gRPC address");
  }
  if (has("handshake failed") || has("ALPN")) {
    return absl::StrCat("what answers", there, " does not speak TLS as a coordinator does (",
                        reason,
                        "); --coordinator names the coordinator's gRPC address, and one that was ",
                        "started with --insecure is reached with --insecure");
  }
  if (has("Socket closed") || has("Connection reset")) {
    return absl::StrCat(
        "what answers", there, " hung up (", reason, "): it has just ended, or ",
        certificates_.empty()
            ? "it wants certificates: give --certificates DIR instead of --insecure"
            : absl::StrCat("it does not trust the certificate in ", certificates_,
                           ", which then is of another authority than that of its cluster"));
  }
  return absl::StrCat("no coordinator answers", there, " (", reason,
                      "); start one with `penstock-coordinator --certificates DIR --listen ",
                      address_, "`, or name another with --coordinator or PENSTOCK_COORDINATOR");
}

absl::Status CoordinatorClient::Explain(const absl::Status& status) const {
  const std::string said(status.message());
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      if (LeaderOf(status).has_value()) {
        return absl::UnavailableError(
            absl::StrCat(said,
                         "; name all coordinators of the cluster with --coordinator or "
                         "PENSTOCK_COORDINATOR, with commas between them"));
      }
      if (IsNotDone(status) || IsPerhapsDone(status)) return status;
      return absl::UnavailableError(WhyUnreached(said));
    case absl::StatusCode::kDeadlineExceeded:
      return absl::DeadlineExceededError(
          absl::StrCat(said, "; is it a Penstock coordinator, and not overloaded?"));
    case absl::StatusCode::kUnimplemented:
      return absl::UnimplementedError(
          absl::StrCat(said, "; what answers there is not a Penstock coordinator of this version"));
    default:
      return status;
  }
}

absl::Status CoordinatorClient::ExplainUnknownJob(const absl::Status& status,
                                                  const std::string& job_id) {
  const absl::StatusOr<v1::ListJobsResponse> list = ListJobs();
  std::vector<std::string> ids;
  if (list.ok()) {
    for (const v1::JobSummary& job : list->jobs()) ids.push_back(job.job_id());
  }
  // If the job is there, the status is about something else.
  if (std::find(ids.begin(), ids.end(), job_id) != ids.end()) return status;
  const std::string nearest = NearestName(job_id, ids);
  return absl::NotFoundError(absl::StrCat(peer_, ": no job '", job_id, "'; ",
                                          nearest.empty()
                                              ? "`penstock list` shows the jobs"
                                              : absl::StrCat("did you mean ", nearest, "?")));
}

}  // namespace penstock
