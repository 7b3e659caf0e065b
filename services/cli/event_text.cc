#include "services/cli/event_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/job_state.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/metric_text.h"
#include "services/cli/planning_text.h"
#include "services/cli/result_table.h"
#include "services/cli/text.h"
#include "services/documents/result_json.h"

namespace penstock {
namespace {

std::string StepText(const v1::StepDone& done) {
  std::string text = absl::StrCat("step ", done.step(), "  loss ", FormatLoss(done.loss()),
                                  "  rate ", FormatDigits(done.learning_rate(), 3));
  if (done.gradient_norm() > 0) {
    absl::StrAppend(&text, "  gradient norm ", FormatDigits(done.gradient_norm(), 3));
  }
  return text;
}

std::string PlanText(const v1::Plan& plan) {
  std::vector<std::string> stages;
  for (const v1::StageAssignment& stage : plan.stages()) {
    stages.push_back(absl::StrCat("stage ", stage.stage(), " (layers ",
                                  LayersText(stage.first_layer(), stage.layers()), ") on ",
                                  stage.worker()));
  }
  return absl::StrCat("plan: ", plan.method(), ", ", absl::StrJoin(stages, ", "));
}

std::string StateText(const v1::JobSummary& job) {
  std::string text = JobStateName(job.state());
  for (const std::string& cause : {job.error(), job.reason()}) {
    if (!cause.empty()) absl::StrAppend(&text, ": ", cause);
  }
  return text;
}

std::string ProgressText(const v1::ProfileProgress& progress) {
  return absl::StrCat("measurement ", progress.done(), " of ", progress.total(), "  worker ",
                      progress.worker(), ": ", progress.what());
}

std::string BodyText(const v1::JobEvent& event) {
  switch (event.kind_case()) {
    case v1::JobEvent::kStateChanged:
      return StateText(event.state_changed());
    case v1::JobEvent::kPlanned:
      return PlanText(event.planned());
    case v1::JobEvent::kStepDone:
      return StepText(event.step_done());
    case v1::JobEvent::kValidationDone:
      return absl::StrCat("step ", event.validation_done().step(), "  validation loss ",
                          FormatLoss(event.validation_done().loss()),
                          MetricsAfterLoss(event.validation_done().metrics()));
    case v1::JobEvent::kCheckpointDone:
      return absl::StrCat("step ", event.checkpoint_done().step(), "  checkpoint ",
                          event.checkpoint_done().directory());
    case v1::JobEvent::kLog:
      return event.log();
    case v1::JobEvent::kProfileProgress:
      return ProgressText(event.profile_progress());
    case v1::JobEvent::kPlanChosen:
      return PlanningText(event.plan_chosen());
    case v1::JobEvent::KIND_NOT_SET:
      break;
  }
  return "an event of a newer version";
}

}  // namespace

std::string EventText(const v1::JobEvent& event) {
  return absl::StrCat(FormatUnixMs(event.unix_ms()), "  ", BodyText(event));
}

nlohmann::ordered_json EventJson(const v1::JobEvent& event) {
  nlohmann::ordered_json json = {{"sequence", event.sequence()}, {"unix_ms", event.unix_ms()}};
  switch (event.kind_case()) {
    case v1::JobEvent::kStateChanged:
      json["event"] = "state_changed";
      json["job"] = JobJson(event.state_changed());
      break;
    case v1::JobEvent::kPlanned:
      json["event"] = "planned";
      json["method"] = event.planned().method();
      json["schedule_digest"] = event.planned().schedule_digest();
      break;
    case v1::JobEvent::kStepDone:
      json["event"] = "step_done";
      json["step"] = event.step_done().step();
      json["loss"] = event.step_done().loss();
      json["learning_rate"] = event.step_done().learning_rate();
      json["gradient_norm"] = event.step_done().gradient_norm();
      json["tokens"] = event.step_done().tokens();
      json["samples"] = event.step_done().samples();
      break;
    case v1::JobEvent::kValidationDone:
      json["event"] = "validation_done";
      json["step"] = event.validation_done().step();
      json["loss"] = event.validation_done().loss();
      AddMetrics(event.validation_done().metrics(), json);
      break;
    case v1::JobEvent::kCheckpointDone:
      json["event"] = "checkpoint_done";
      json["step"] = event.checkpoint_done().step();
      json["directory"] = event.checkpoint_done().directory();
      break;
    case v1::JobEvent::kProfileProgress:
      json["event"] = "profile_progress";
      json["done"] = event.profile_progress().done();
      json["total"] = event.profile_progress().total();
      json["worker"] = event.profile_progress().worker();
      json["what"] = event.profile_progress().what();
      break;
    case v1::JobEvent::kPlanChosen:
      json["event"] = "plan_chosen";
      json["planning"] = PlanningJson(event.plan_chosen());
      break;
    case v1::JobEvent::kLog:
      json["event"] = "log";
      json["message"] = event.log();
      break;
    case v1::JobEvent::KIND_NOT_SET:
      json["event"] = nullptr;
      break;
  }
  return json;
}

}  // namespace penstock
