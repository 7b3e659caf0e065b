// penstock timeline: the measured timeline of a job's last steps, and what was to be expected of them.
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "results/job_timeline.h"
#include "services/cli/commands/commands.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/drawings.h"
#include "services/cli/feedback_output.h"
#include "services/cli/json_output.h"
#include "services/cli/timeline_export.h"
#include "services/cli/timeline_shares.h"
#include "services/documents/result_json.h"

namespace penstock {
namespace {

struct TimelineOptions {
  CoordinatorOptions coordinator;
  std::string job_id;
  DrawingOptions drawing;
  OtlpFlags otlp;
  bool json = false;
};

absl::Status RunTimeline(const TimelineOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(CoordinatorClient client,
                            CoordinatorClient::Connect(options.coordinator));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::GetTimelineResponse response,
                            client.GetTimeline(options.job_id));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse job, client.GetJob(options.job_id));
  const absl::StatusOr<JobTimeline> timeline = JobTimelineOf(job, response);
  if (!timeline.ok()) return Annotate(timeline.status(), absl::StrCat("job ", options.job_id));
  const v1::Feedback& feedback = job.result().feedback();
  const std::string title =
      absl::StrCat(options.job_id, StepUseText(feedback), TitleNotes(*timeline));
  console.err << TimelineNotes(*timeline);
  const std::vector<DrawnTimeline> rows = RowsOf(*timeline);
  PENSTOCK_RETURN_IF_ERROR(Draw(rows, title, options.drawing, console));
  PENSTOCK_RETURN_IF_ERROR(ExportTimeline(options.otlp, job, rows.front(), console));
  if (options.json) {
    nlohmann::ordered_json json = SharesJson(*timeline);
    json["feedback"] = FeedbackJson(feedback);
    PrintJson(json, console);
  } else {
    console.out << title << "\n" << SharesText(*timeline);
  }
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclareTimeline(CLI::App& app) {
  const auto options = std::make_shared<TimelineOptions>();
  app.add_option("ID", options->job_id, "The job")->required()->type_name("");
  CLI::Option* text = AddDrawingOptions(app, "-o,--trace", options->drawing);
  AddTimelineExportOptions(app, options->otlp);
  AddCoordinatorOptions(app, options->coordinator);
  app.add_flag("--json", options->json, "Print where the time went as JSON")->excludes(text);
  return [options](Console& console) { return RunTimeline(*options, console); };
}

}  // namespace penstock
