#include "services/cli/planning_text.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/cli/table.h"
#include "services/cli/text.h"

namespace penstock {
namespace {

std::string RaceText(const v1::RaceRecord& race) {
  if (!race.failed().empty()) return absl::StrCat("failed: ", race.failed());
  if (race.rounds() == 0) return "not begun";
  std::string text =
      absl::StrFormat("loss %.4g +- %.2g, step %d", race.loss(), race.loss_error(), race.steps());
  if (race.has_reached_seconds()) {
    absl::StrAppend(&text, ", there in ", FormatDuration(race.reached_seconds()));
  }
  return text;
}

// "1.32 (0.9-1.9)".
std::string FactorText(const v1::PlannedCandidate& candidate) {
  if (!candidate.has_steps_factor()) return "-";
  const v1::StepsFactor& factor = candidate.steps_factor();
  if (candidate.update_pattern().synchronous()) return "1";
  return absl::StrFormat("%.3g (%.2g-%.2g)", factor.expected(), factor.low(), factor.high());
}

std::string TookText(const v1::JobPlanning& planning) {
  std::vector<std::string> parts;
  parts.push_back(planning.measuring_seconds() > 0
                      ? absl::StrCat("measured in ", FormatDuration(planning.measuring_seconds()))
                      : "nothing had to be measured");
  parts.push_back(absl::StrCat("planned in ", FormatDuration(planning.choosing_seconds())));
  if (planning.racing_seconds() > 0) {
    parts.push_back(absl::StrCat("raced for ", FormatDuration(planning.racing_seconds())));
  }
  return absl::StrJoin(parts, ", ");
}

}  // namespace

std::string PlanningText(const v1::JobPlanning& planning) {
  if (planning.candidates().empty()) return "";
  using Align = Table::Align;
  bool raced = false;
  bool predicted = false;
  for (const v1::PlannedCandidate& candidate : planning.candidates()) {
    raced = raced || candidate.has_race();
    predicted = predicted || candidate.has_steps_factor();
  }
  std::vector<Table::Column> columns = {{"CANDIDATE"},
                                        {"LAYERS"},
                                        {"STEP", Align::kRight},
                                        {"BUBBLE", Align::kRight},
                                        {"MEMORY", Align::kRight},
                                        {"STALENESS", Align::kRight}};
  if (predicted) columns.push_back({"STEPS TO A LOSS"});
  if (raced) columns.push_back({"RACE"});
  Table table(columns);
  std::vector<std::string> rejected;
  for (const v1::PlannedCandidate& candidate : planning.candidates()) {
    if (!candidate.rejected().empty()) {
      rejected.push_back(absl::StrCat("  ", candidate.name(), ": ", candidate.rejected()));
      continue;
    }
    std::vector<std::string> row = {candidate.name(),
                                    absl::StrJoin(candidate.stage_layers(), "-"),
                                    FormatDuration(candidate.step_seconds()),
                                    FormatPercent(candidate.bubble_ratio()),
                                    FormatBytes(candidate.memory_bytes()),
                                    absl::StrCat(candidate.staleness_max())};
    if (predicted) row.push_back(FactorText(candidate));
    if (raced) row.push_back(candidate.has_race() ? RaceText(candidate.race()) : "-");
    table.AddRow(row);
  }
  std::string text =
      absl::StrCat("planned: ", planning.candidates(0).name(), ", chosen by ", planning.reason(),
                   planning.in_time() ? "" : " (cut short by its limit of time)", "; ",
                   TookText(planning), "\n", table.Render());
  if (predicted) {
    absl::StrAppend(&text,
                    "STEPS TO A LOSS: expected, in those of a method that drains at every step; in "
                    "brackets the range that holds 9 of 10\n");
  }
  if (!rejected.empty()) {
    absl::StrAppend(&text, "cannot run:\n", absl::StrJoin(rejected, "\n"), "\n");
  }
  return text;
}

std::string RepeatText(const v1::GetJobResponse& job, const std::string& order_file,
                       const std::string& order_command) {
  if (job.planning().candidates().empty()) return "";
  const v1::PipelineSpec& pipeline = job.spec().pipeline();
  std::string text = absl::StrCat(
      "to repeat this run, put into the job:\n  pipeline: {method: ", pipeline.method(),
      ", stages: ", pipeline.stages(), ", stage_layers: [",
      absl::StrJoin(pipeline.stage_layers(), ", "), "]");
  if (!pipeline.layer_order().empty()) {
    absl::StrAppend(&text, ", layer_order: [", absl::StrJoin(pipeline.layer_order(), ", "), "]");
  }
  if (!pipeline.replicas().empty()) {
    absl::StrAppend(&text, ", replicas: [", absl::StrJoin(pipeline.replicas(), ", "), "]");
  }
  if (!pipeline.recompute().empty() && pipeline.recompute() != "none") {
    absl::StrAppend(&text, ", recompute: \"", pipeline.recompute(), "\"");
  }
  if (!pipeline.offload().empty() && pipeline.offload() != "none") {
    absl::StrAppend(&text, ", offload: \"", pipeline.offload(), "\"");
  }
  const bool is_searched = !pipeline.schedule().empty();
  if (is_searched) absl::StrAppend(&text, ", schedule_file: \"", order_file, "\"");
  absl::StrAppend(&text, ", worker_names: [",
                  absl::StrJoin(job.planning().candidates(0).workers(), ", "),
                  "]}\n  training: {microbatches: ", job.spec().training().microbatches(), "}\n");
  if (is_searched) {
    absl::StrAppend(&text, order_file, " holds the order that was found: `", order_command,
                    "` writes it\n");
  }
  return text;
}

}  // namespace penstock
