// CoordinatorClient: the calls a user makes, with deadlines and errors that say what to do.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "services/rpc/client.h"
#include "services/rpc/leader_stub.h"
#include "services/rpc/security_flags.h"
#include "services/rpc/transport_security.h"

namespace penstock {

inline constexpr char kDefaultCoordinator[] = "127.0.0.1:7070";
inline constexpr absl::Duration kClientCallTimeout = absl::Seconds(10);
// A timeline is gathered from all workers first.
inline constexpr absl::Duration kTimelineCallTimeout = absl::Seconds(30);
inline constexpr absl::Duration kWatchTimeout = absl::Minutes(10);

// Which coordinator, and how it is reached.
struct CoordinatorOptions {
  std::string address;  // HOST:PORT; of several coordinators with commas
  SecurityFlags security;
};

// Declares --coordinator, which PENSTOCK_COORDINATOR replaces, and the flags of security_flags.h.
void AddCoordinatorOptions(CLI::App& app, CoordinatorOptions& options);

// Errors of all calls: Unavailable (nobody answers, or nobody who is trusted, with the address and what to do; or the
// coordinator could not do it, with its reason), Unimplemented (what answers is not a coordinator). Calls with a job id
// also: NotFound, with the nearest id.
class CoordinatorClient {
 public:
  // Its calls are part of the trace that TRACEPARENT names in the environment, if it does.
  // Errors: InvalidArgument if an address is not HOST:PORT or TRACEPARENT is malformed, those of
  // MakeTransportSecurity.
  static absl::StatusOr<CoordinatorClient> Connect(const CoordinatorOptions& options);
  // Its calls are part of `trace`, if it is given. REQUIRES: `address` is one HOST:PORT or several.
  static CoordinatorClient Connect(const std::string& address, const TransportSecurity& security,
                                   const CallTrace& trace = {});

  // Flags of commands that reach the same coordinator (FlagsOf in next_commands.h); empty if given by address.
  const std::string& flags() const { return flags_; }

  // Returns the job's id; of a key that was submitted before, that of the job it made then. Empty key: a new one.
  // Errors: InvalidArgument, FailedPrecondition (the job does not fit).
  absl::StatusOr<std::string> SubmitJob(const v1::JobSpec& spec, const std::string& key = "");
  // Submits a job that measures instead of training.
  absl::StatusOr<std::string> SubmitProfile(const v1::JobSpec& spec,
                                            const v1::ProfileSpec& profile);
  absl::StatusOr<v1::ListJobsResponse> ListJobs();
  absl::StatusOr<v1::GetJobResponse> GetJob(const std::string& job_id);
  absl::StatusOr<v1::CancelJobResponse> CancelJob(const std::string& job_id);
  absl::StatusOr<v1::ListWorkersResponse> ListWorkers();
  absl::StatusOr<v1::GetTimelineResponse> GetTimeline(const std::string& job_id);

  // Hands each event after `after_sequence` to `on_event`, which returns false to stop. Returns when the
  // job has ended, and with DeadlineExceeded after kWatchTimeout (watch again from the last event).
  absl::Status WatchJob(const std::string& job_id, int64_t after_sequence,
                        StreamCanceller& canceller,
                        const std::function<bool(const v1::JobEvent&)>& on_event);
  // Reads the events so far: returns after the last one there is.
  absl::Status ReadPast(const std::string& job_id, int64_t after_sequence,
                        const std::function<bool(const v1::JobEvent&)>& on_event);

 private:
  CoordinatorClient(std::string address, std::string certificates,
                    std::unique_ptr<LeaderStub<v1::JobService>> stub, CallTrace trace)
      : address_(std::move(address)),
        certificates_(std::move(certificates)),
        peer_("coordinator " + address_),
        stub_(std::move(stub)),
        trace_(trace) {}

  // Why nothing could be asked, and what to do, by what gRPC `said` of it.
  std::string WhyUnreached(const std::string& said) const;
  // Adds to an error what the user can do about it.
  absl::Status Explain(const absl::Status& status) const;
  absl::Status ExplainUnknownJob(const absl::Status& status, const std::string& job_id);
  template <typename Response>
  absl::StatusOr<Response> Explained(absl::StatusOr<Response> response) {
    return response.ok() ? std::move(response) : Explain(response.status());
  }
  template <typename Response>
  absl::StatusOr<Response> ExplainedForJob(absl::StatusOr<Response> response,
                                           const std::string& job_id) {
    if (absl::IsNotFound(response.status())) return ExplainUnknownJob(response.status(), job_id);
    return Explained(std::move(response));
  }

  std::string address_;
  std::string certificates_;  // the directory; empty: plain text
  std::string flags_;
  std::string peer_;
  std::unique_ptr<LeaderStub<v1::JobService>> stub_;
  CallTrace trace_;  // of all calls
};

}  // namespace penstock
