// Audited: what a user asks for, written down before and after it is done. What cannot be written down is not done.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "services/coordinator/audit_log.h"
#include "services/rpc/server_call.h"
#include "services/rpc/status.h"

namespace penstock {

// Records an entry (AuditLog::Record). Null: nobody does.
using Auditor = std::function<void(const AuditEntry&, const CallInfo&, AuditLog::Done)>;

// What is asked for.
struct AuditedAction {
  std::string action;
  std::string job_id = {};  // empty: none, or that of the response
};

// Does `act` for a caller and replies. `act` runs on a thread of the lane of the call; none waits for the log's disk.
template <typename Response>
void Audited(const Auditor& audit, const AuditedAction& asked, const CallInfo& call,
             std::function<absl::StatusOr<Response>()> act, const Reply<Response>& reply) {
  if (audit == nullptr) return reply(act());
  const auto act_and_record = [=, act = std::move(act)] {
    const absl::Status wanted = CheckStillWanted(call);
    const absl::StatusOr<Response> response =
        wanted.ok() ? act() : absl::StatusOr<Response>(wanted);
    std::string job = asked.job_id;
    if constexpr (requires { response->job_id(); }) {
      if (response.ok()) job = response->job_id();
    }
    // The request is written down already; the log says if this line is missing.
    audit({asked.action, job, response.status()}, call,
          [reply, response](const absl::Status&) { reply(response); });
  };
  audit({asked.action, asked.job_id, std::nullopt}, call,
        [reply, run = call.run, act_and_record](const absl::Status& written) {
          if (written.ok()) return run(act_and_record);
          reply(absl::UnavailableError(absl::StrCat(
              kNotDone, "the coordinator's audit log cannot be written: ", written.message())));
        });
}

}  // namespace penstock
