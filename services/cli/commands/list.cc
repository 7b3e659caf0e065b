// penstock list: the coordinator's jobs.
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "coordinator/job_state.h"
#include "services/cli/commands/commands.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/json_output.h"
#include "services/cli/table.h"
#include "services/cli/text.h"
#include "services/documents/result_json.h"

namespace penstock {
namespace {

struct ListOptions {
  CoordinatorOptions coordinator;
  bool json = false;
};

// Returns how long the job has run, or ran; "-" before it started.
std::string DurationText(const v1::JobSummary& job) {
  if (job.started_unix_ms() == 0) return "-";
  const int64_t end_ms =
      job.ended_unix_ms() != 0 ? job.ended_unix_ms() : absl::ToUnixMillis(absl::Now());
  return FormatDuration(static_cast<double>(end_ms - job.started_unix_ms()) * 1e-3);
}

std::string PercentageText(const v1::JobSummary& job) {
  const std::optional<int> percentage = ProgressPercentage(job);
  return percentage ? absl::StrCat(*percentage, " %") : "-";
}

std::string LeftText(const v1::JobSummary& job) {
  if (IsTerminal(job.state()) || !job.has_estimated_remaining_seconds()) return "-";
  return FormatDuration(job.estimated_remaining_seconds());
}

absl::Status RunList(const ListOptions& options, Console& console) {
  PENSTOCK_ASSIGN_OR_RETURN(CoordinatorClient client,
                            CoordinatorClient::Connect(options.coordinator));
  PENSTOCK_ASSIGN_OR_RETURN(const v1::ListJobsResponse list, client.ListJobs());
  if (options.json) {
    nlohmann::ordered_json jobs = nlohmann::ordered_json::array();
    for (const v1::JobSummary& job : list.jobs()) jobs.push_back(JobJson(job));
    PrintJson(jobs, console);
    return absl::OkStatus();
  }
  if (list.jobs_size() == 0) {
    console.out << "no jobs yet; `penstock submit JOB.yaml` starts one\n";
    return absl::OkStatus();
  }
  Table table({{"ID"},
               {"NAME"},
               {"METHOD"},
               {"STATE"},
               {"STEP", Table::Align::kRight},
               {"DONE", Table::Align::kRight},
               {"SUBMITTED"},
               {"DURATION", Table::Align::kRight},
               {"LEFT", Table::Align::kRight},
               {"NOTE"}});
  for (const v1::JobSummary& job : list.jobs()) {
    table.AddRow({job.job_id(), job.name(), job.method(), JobStateName(job.state()),
                  absl::StrCat(job.step(), "/", job.steps()), PercentageText(job),
                  FormatUnixMs(job.submitted_unix_ms()), DurationText(job), LeftText(job),
                  job.error().empty() ? job.reason() : job.error()});
  }
  console.out << table.Render();
  return absl::OkStatus();
}

}  // namespace

CommandRunner DeclareList(CLI::App& app) {
  const auto options = std::make_shared<ListOptions>();
  AddCoordinatorOptions(app, options->coordinator);
  app.add_flag("--json", options->json, "Print JSON");
  return [options](Console& console) { return RunList(*options, console); };
}

}  // namespace penstock
