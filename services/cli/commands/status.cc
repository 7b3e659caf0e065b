// penstock status: one job, its plan and its result so far.
#include "base/status.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "coordinator/job_state.h"
#include "job/job_trace.h"
#include "services/cli/commands/commands.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/json_output.h"
#include "services/cli/planning_text.h"
#include "services/cli/profile_output.h"
#include "services/cli/result_table.h"
#include "services/cli/table.h"
#include "services/cli/text.h"
#include "services/documents/result_json.h"

namespace penstock {
namespace {

struct StatusOptions {
  CoordinatorOptions coordinator;
  std::string job_id;
  bool json = false;
};

nlohmann::ordered_json StatusJson(const v1::GetJobResponse& job) {
  nlohmann::ordered_json json = JobJson(job.summary());
  json["trace_id"] = ToHex(JobTraceOf(job).trace_id);
  if (job.has_profile_spec()) {
    json["profile"] = job.has_profile() ? ProfileJson(job.profile()) : nlohmann::ordered_json();
    return json;
  }
  json["planning"] = PlanningJson(job.planning());
  json["plan"] = PlanJson(job.plan());
  json["result"] = ResultJson(job, {.losses = true});
  return json;
}

// ", 42 %, 3m 20s left"; without what is not known.
std::string StepsText(const v1::JobSummary& job) {
  std::string text;
  if (const auto percentage = ProgressPercentage(job))
    absl::StrAppend(&text, ", ", *percentage, " %");
  if (job.has_estimated_remaining_seconds() && !IsTerminal(job.state())) {
    absl::StrAppend(&text, ", ", FormatDuration(job.estimated_remaining_seconds()), " left");
  }
  return text;
}

std::string StagesText(const v1::Plan& plan) {
  Table table({{"STAGE", Table::Align::kRight}, {"WORKER"}, {"ADDRESS"}, {"LAYERS"}});
  for (const v1::StageAssignment& stage : plan.stages()) {
    table.AddRow({absl::StrCat(stage.stage()), stage.worker(), stage.address(),
                  LayersText(stage.first_layer(), stage.layers())});
  }
  return table.Render();
}

absl::Status RunStatus(const StatusOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(CoordinatorClient client,
                            CoordinatorClient::Connect(options.coordinator));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse job, client.GetJob(options.job_id));
  if (options.json) {
    PrintJson(StatusJson(job), console);
    return absl::OkStatus();
  }
  const v1::JobSummary& summary = job.summary();
  console.out << summary.job_id() << " (" << summary.name() << ") is "
              << JobStateName(summary.state())
              << (job.has_profile_spec() ? ", measurement " : ", step ") << summary.step() << " of "
              << summary.steps() << StepsText(summary) << "\n"
              << "submitted " << FormatUnixMs(summary.submitted_unix_ms()) << ", started "
              << FormatUnixMs(summary.started_unix_ms()) << ", ended "
              << FormatUnixMs(summary.ended_unix_ms()) << "\n";
  for (const std::string& line : {summary.error(), summary.reason()}) {
    if (!line.empty()) console.out << line << "\n";
  }
  if (job.has_profile()) console.out << "\n" << ProfileText(job.profile());
  if (job.has_profile_spec()) return absl::OkStatus();
  if (job.has_planning()) console.out << "\n" << PlanningText(job.planning());
  if (job.plan().stages_size() > 0) console.out << "\n" << StagesText(job.plan());
  if (job.result().steps() > 0) console.out << "\n" << ResultText(job);
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclareStatus(CLI::App& app) {
  const auto options = std::make_shared<StatusOptions>();
  app.add_option("ID", options->job_id, "The job")->required()->type_name("");
  AddCoordinatorOptions(app, options->coordinator);
  app.add_flag("--json", options->json, "Print JSON, the curve of the losses included");
  return [options](Console& console) { return RunStatus(*options, console); };
}

}  // namespace penstock
