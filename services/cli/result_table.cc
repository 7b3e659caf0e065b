#include "services/cli/result_table.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/run_progress.h"
#include "services/cli/feedback_output.h"
#include "services/cli/metric_text.h"
#include "services/cli/table.h"
#include "services/cli/text.h"
#include "services/documents/work_done.h"

namespace penstock {
namespace {

// Returns "input 12 %, credit 3 %": the largest shares of a stage's time without work.
std::string IdleText(const v1::StageReport& stage) {
  std::vector<std::string> parts;
  for (const v1::IdleCause& cause : stage.idle_causes()) {
    const double share = stage.window_seconds() > 0 ? cause.seconds() / stage.window_seconds() : 0;
    if (share >= 0.005) parts.push_back(absl::StrFormat("%s %.0f %%", cause.cause(), share * 100));
  }
  return parts.empty() ? "-" : absl::StrJoin(parts, ", ");
}

std::string StatisticText(const v1::Statistic& statistic) {
  return absl::StrFormat("%g / %.2f", statistic.max(), statistic.mean());
}

// That of a result is no step's own.
std::string TrainLossText(const v1::JobResult& result) {
  const size_t steps = std::min<size_t>(result.losses_size(), RunProgress::kTrainLossSteps);
  return absl::StrCat("training loss ", FormatLoss(result.train_loss()),
                      steps > 1 ? absl::StrCat(" (mean of the last ", steps, " steps)") : "");
}

// Returns "810 samples/s, model 2.5G FLOP/s, MFU 31 % of 8.1G FLOP/s in matrix products", as a line; empty before the first cut.
std::string RateText(const v1::JobResult& result) {
  if (result.model_flops_per_second() <= 0) return "";
  std::string text = WorkDoneOf(result).unit == kSamples
                         ? ""
                         : absl::StrCat(FormatCount(result.samples_per_second()), " samples/s, ");
  absl::StrAppend(&text, "model ", FormatCount(result.model_flops_per_second()), " FLOP/s");
  if (result.has_mfu()) {
    absl::StrAppend(&text, ", MFU ", FormatPercent(result.mfu()), " of ",
                    FormatCount(result.product_flops_per_second()), " FLOP/s in matrix products");
  }
  return absl::StrCat(text, "\n");
}

std::string StageTable(const v1::JobResult& result) {
  using Align = Table::Align;
  Table table({{"STAGE", Align::kRight},
               {"WORKER"},
               {"LAYERS"},
               {"BUSY", Align::kRight},
               {"BUBBLE", Align::kRight},
               {"WAITS FOR"},
               {"STALENESS", Align::kRight},
               {"VERSIONS", Align::kRight},
               {"ACTIVATIONS", Align::kRight},
               {"SENT", Align::kRight},
               {"MEMORY", Align::kRight},
               {"PREDICTED", Align::kRight}});
  for (const v1::StageReport& stage : result.per_stage()) {
    table.AddRow({absl::StrCat(stage.stage()), stage.worker(),
                  LayersText(stage.first_layer(), stage.layers()),
                  FormatDuration(stage.busy_seconds()), FormatPercent(stage.bubble_ratio()),
                  IdleText(stage), StatisticText(stage.staleness()),
                  absl::StrCat(stage.versions_peak()), absl::StrCat(stage.activations_peak()),
                  FormatBytes(stage.bytes_sent()), FormatBytes(stage.peak_memory_bytes()),
                  FormatBytes(stage.predicted_memory_bytes())});
  }
  return table.Render();
}

// How often the job was begun and why, if that was more than once.
std::string AttemptsText(const v1::JobResult& result) {
  if (result.attempts_size() < 2) return "";
  using Align = Table::Align;
  Table table({{"ATTEMPT", Align::kRight},
               {"STEPS", Align::kRight},
               {"BACK AFTER", Align::kRight},
               {"DONE AGAIN", Align::kRight},
               {"ENDED BECAUSE"}});
  for (int i = 0; i < result.attempts_size(); ++i) {
    const v1::Attempt& attempt = result.attempts(i);
    const bool is_back = attempt.resumed_ms() > 0 && attempt.detected_ms() > 0;
    table.AddRow({absl::StrCat(i + 1),
                  attempt.last_step() > attempt.first_step()
                      ? absl::StrCat(attempt.first_step() + 1, "-", attempt.last_step())
                      : "-",
                  is_back ? FormatDuration(1e-3 * static_cast<double>(attempt.resumed_ms() -
                                                                      attempt.detected_ms()))
                          : "-",
                  absl::StrCat(attempt.steps_redone()),
                  attempt.message().empty() ? "-" : attempt.message()});
  }
  return table.Render();
}

}  // namespace

std::string LayersText(int first, int count) {
  return count <= 1 ? absl::StrCat(first) : absl::StrCat(first, "-", first + count - 1);
}

std::string ResultText(const v1::GetJobResponse& job) {
  const v1::JobResult& result = job.result();
  const bool reported = result.per_stage_size() > 0;
  const WorkDone work = WorkDoneOf(result);
  const double per_second = WorkPerSecond(result);
  std::string text = absl::StrFormat(
      "%s: %s on %d stage%s, %d steps, %s %s in %s (%s %s/s)\n", job.summary().name(),
      job.summary().method(), result.stages(), result.stages() == 1 ? "" : "s", result.steps(),
      FormatCount(static_cast<double>(work.count)), work.unit,
      FormatDuration(result.wall_seconds()),
      reported || per_second > 0 ? FormatCount(per_second) : "-", work.unit);
  absl::StrAppend(&text, TrainLossText(result));
  if (result.has_validation_loss()) {
    absl::StrAppend(&text, ", validation loss ", FormatLoss(result.validation_loss()),
                    MetricsAfterLoss(result.validation_metrics()));
  }
  absl::StrAppend(&text, ", bubble ", reported ? FormatPercent(result.bubble_ratio()) : "-");
  if (result.has_block_delay()) {
    absl::StrAppendFormat(&text, ", block delay max %g, mean %.2f", result.block_delay().max(),
                          result.block_delay().mean());
  }
  if (result.block_delay().max() > 0 && result.has_block_delay_measured()) {
    absl::StrAppendFormat(&text, ", measured max %g, mean %.2f",
                          result.block_delay_measured().max(),
                          result.block_delay_measured().mean());
  }
  absl::StrAppend(&text, "\n");
  absl::StrAppend(&text, RateText(result));
  if (!result.weights_sha256().empty()) {
    absl::StrAppend(&text, "weights ", result.weights_sha256(), "\n");
  }
  if (!result.checkpoint().empty()) {
    absl::StrAppend(&text, "checkpoint ", result.checkpoint(), "\n");
  }
  if (result.per_stage_size() > 0) absl::StrAppend(&text, "\n", StageTable(result));
  if (const std::string attempts = AttemptsText(result); !attempts.empty()) {
    absl::StrAppend(&text, "\n", attempts);
  }
  if (const std::string feedback = FeedbackText(result.feedback()); !feedback.empty()) {
    absl::StrAppend(&text, "\n", feedback);
  }
  return text;
}

}  // namespace penstock
