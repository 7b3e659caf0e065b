#include "worker/run.h"

#include <utility>

#include "base/status.h"
#include "worker/profile_run.h"
#include "worker/run_plan.h"
#include "worker/training_run.h"

namespace penstock {

absl::StatusOr<std::unique_ptr<Run>> Run::Prepare(const RunRequest& any_request,
                                                  RunEnvironment environment) {
  if (const auto* profile = std::get_if<v1::PrepareProfileRequest>(&any_request)) {
    return ProfileRun::Create(*profile, std::move(environment));
  }
  const auto& request = std::get<v1::PrepareRunRequest>(any_request);
  PENSTOCK_ASSIGN_OR_RETURN(RunPlan plan, MakeRunPlan(request, environment.limits));
  const std::function<absl::Status()> may_go_on = environment.may_go_on;
  PENSTOCK_RETURN_IF_ERROR(may_go_on());
  auto run = std::make_unique<TrainingRun>(request, std::move(plan), std::move(environment));
  PENSTOCK_RETURN_IF_ERROR(run->CheckRoomForLayers());
  PENSTOCK_RETURN_IF_ERROR(run->OpenData());
  PENSTOCK_RETURN_IF_ERROR(may_go_on());
  PENSTOCK_RETURN_IF_ERROR(run->MakeStages());
  PENSTOCK_RETURN_IF_ERROR(may_go_on());
  PENSTOCK_RETURN_IF_ERROR(run->LoadStart());
  PENSTOCK_RETURN_IF_ERROR(run->OpenEdges());
  PENSTOCK_RETURN_IF_ERROR(run->MakeExecutor());
  return run;
}

}  // namespace penstock
