// penstock timeline: the measured timeline of a job's last steps.
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "services/cli/commands/commands.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/drawings.h"
#include "services/cli/feedback_output.h"
#include "services/cli/json_output.h"
#include "services/cli/table.h"
#include "services/cli/text.h"
#include "services/cli/timeline_export.h"
#include "services/documents/result_json.h"
#include "services/documents/timeline_json.h"

namespace penstock {
namespace {

constexpr double kSecondsPerNs = 1e-9;

struct Options {
  CoordinatorOptions coordinator;
  std::string job_id;
  DrawingOptions drawing;
  OtlpFlags otlp;
  bool json = false;
};

nlohmann::ordered_json SharesJson(const Timeline& timeline) {
  nlohmann::ordered_json workers = nlohmann::ordered_json::array();
  int32_t worker = 0;
  for (const TimeShares& shares : SharesOf(timeline)) {
    nlohmann::ordered_json waits = nlohmann::ordered_json::object();
    for (int cause = 1; cause < kWaits; ++cause) {
      const absl::string_view name = WaitName(static_cast<Wait>(cause));
      waits[std::string(name)] =
          static_cast<double>(shares.waiting_ns(static_cast<Wait>(cause))) * kSecondsPerNs;
    }
    workers.push_back({{"worker", worker++},
                       {"busy_seconds", static_cast<double>(shares.busy_ns()) * kSecondsPerNs},
                       {"idle_causes", waits}});
  }
  return {{"seconds", static_cast<double>(timeline.end_ns() - timeline.start_ns()) * kSecondsPerNs},
          {"spans", timeline.spans.size()},
          {"workers", workers}};
}

std::string SharesText(const Timeline& timeline) {
  const double window_ns = static_cast<double>(timeline.end_ns() - timeline.start_ns());
  Table table({{"WORKER", Table::Align::kRight},
               {"BUSY", Table::Align::kRight},
               {"WAITING", Table::Align::kRight}});
  int32_t worker = 0;
  for (const TimeShares& shares : SharesOf(timeline)) {
    table.AddRow({absl::StrCat(worker++),
                  FormatPercent(static_cast<double>(shares.busy_ns()) / window_ns),
                  FormatPercent(static_cast<double>(shares.waiting_ns()) / window_ns)});
  }
  return absl::StrCat("the last ", FormatDuration(window_ns * kSecondsPerNs), ", ",
                      timeline.spans.size(), " spans\n", table.Render());
}

absl::Status Run(const Options& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(CoordinatorClient client,
                            CoordinatorClient::Connect(options.coordinator));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::GetTimelineResponse response,
                            client.GetTimeline(options.job_id));
  PENSTOCK_ASSIGN_OR_RETURN(const Timeline timeline, TimelineOf(response));
  if (timeline.spans.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "job ", options.job_id, " has no timeline yet; it is there once steps are done"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const v1::GetJobResponse job, client.GetJob(options.job_id));
  const v1::Feedback& feedback = job.result().feedback();
  const std::string title = absl::StrCat(options.job_id, StepUseText(feedback));
  PENSTOCK_RETURN_IF_ERROR(Draw(timeline, title, options.drawing, console));
  PENSTOCK_RETURN_IF_ERROR(ExportTimeline(options.otlp, job, timeline, console));
  if (options.json) {
    nlohmann::ordered_json json = SharesJson(timeline);
    json["feedback"] = FeedbackJson(feedback);
    PrintJson(json, console);
  } else {
    console.out << title << "\n" << SharesText(timeline);
  }
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclareTimeline(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("ID", options->job_id, "The job")->required()->type_name("");
  CLI::Option* text = AddDrawingOptions(app, "-o,--trace", options->drawing);
  AddTimelineExportOptions(app, options->otlp);
  AddCoordinatorOptions(app, options->coordinator);
  app.add_flag("--json", options->json, "Print where the time went as JSON")->excludes(text);
  return [options](Console& console) { return Run(*options, console); };
}

}  // namespace penstock
