#include "services/rpc/access.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace penstock {

absl::Span<const AccessRule> AccessTable() {
  using enum Role;
  static const auto& table = *new std::vector<AccessRule>{
      {"/penstock.v1.JobService/SubmitJob", {kClient}},
      {"/penstock.v1.JobService/SubmitProfile", {kClient}},
      {"/penstock.v1.JobService/ListJobs", {kClient}},
      {"/penstock.v1.JobService/GetJob", {kClient}},
      {"/penstock.v1.JobService/WatchJob", {kClient}},
      {"/penstock.v1.JobService/CancelJob", {kClient}},
      {"/penstock.v1.JobService/ListWorkers", {kClient}},
      {"/penstock.v1.JobService/GetTimeline", {kClient}},

      {"/penstock.v1.DataService/FindData", {kClient}},
      {"/penstock.v1.DataService/WriteData", {kClient}},
      {"/penstock.v1.DataService/FinishData", {kClient}},
      {"/penstock.v1.DataService/ListData", {kClient}},
      {"/penstock.v1.DataService/RemoveData", {kClient}},
      {"/penstock.v1.DataService/ReadData", {kWorker}},

      {"/penstock.v1.CheckpointFiles/WritePart", {kWorker}},
      {"/penstock.v1.CheckpointFiles/ReadPart", {kWorker}},

      {"/penstock.v1.WorkerRegistry/RegisterWorker", {kWorker}},
      {"/penstock.v1.WorkerRegistry/Heartbeat", {kWorker}},
      {"/penstock.v1.WorkerRegistry/Attach", {kWorker}},
      {"/penstock.v1.WorkerRegistry/ReportRun", {kWorker}},

      {"/penstock.v1.WorkerControl/PrepareRun", {kCoordinator}},
      {"/penstock.v1.WorkerControl/PrepareProfile", {kCoordinator}},
      {"/penstock.v1.WorkerControl/StartRun", {kCoordinator}},
      {"/penstock.v1.WorkerControl/HoldRun", {kCoordinator}},
      {"/penstock.v1.WorkerControl/CutRun", {kCoordinator}},
      {"/penstock.v1.WorkerControl/StopRun", {kCoordinator}},
      {"/penstock.v1.WorkerControl/GetRunTimeline", {kCoordinator}},

      {"/penstock.v1.SnapshotPeers/WriteSnapshot", {kWorker}},
      {"/penstock.v1.SnapshotPeers/ReadSnapshot", {kWorker}},

      {"/penstock.v1.TensorStream/Exchange", {kWorker}},

      {"/grpc.health.v1.Health/Check", {kClient, kWorker, kCoordinator, kMonitor}},
      {"/grpc.health.v1.Health/Watch", {kClient, kWorker, kCoordinator, kMonitor}},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", {kClient}},
  };
  return table;
}

absl::Status CheckAccess(absl::string_view method, const Identity& caller) {
  const absl::Span<const AccessRule> table = AccessTable();
  const auto rule = std::find_if(table.begin(), table.end(), [&](const AccessRule& candidate) {
    return candidate.method == method;
  });
  if (rule == table.end()) {
    return absl::PermissionDeniedError(absl::StrCat("nobody may call ", method));
  }
  if (std::find(rule->callers.begin(), rule->callers.end(), caller.role) != rule->callers.end()) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      caller.ToUri(), " may not call ", method, ", which is for ",
      absl::StrJoin(rule->callers, ", ",
                    [](std::string* out, Role role) { absl::StrAppend(out, RoleName(role)); })));
}

absl::Status CheckSpeaksFor(const Identity& caller, absl::string_view name) {
  if (caller.role == Role::kWorker && (caller.name.empty() || caller.name == name)) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat(caller.ToUri(), " may not speak for the worker ", name));
}

}  // namespace penstock
