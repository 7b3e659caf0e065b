#include "services/cli/progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/job_state.h"
#include "coordinator/run_progress.h"
#include "services/cli/coordinator_client.h"
#include "services/cli/metric_text.h"
#include "services/cli/text.h"

namespace penstock {
namespace {

constexpr int64_t kSpeedWindowNs = 5'000'000'000;
constexpr int kBarColumnsMax = 24;

std::string Bar(double fraction, int columns) {
  const int full = static_cast<int>(fraction * columns);
  std::string bar(static_cast<size_t>(columns), ' ');
  std::fill_n(bar.begin(), full, '=');
  if (full < columns) bar[static_cast<size_t>(full)] = '>';
  return absl::StrCat("[", bar, "]");
}

}  // namespace

std::string Progress::Add(const v1::JobEvent& event) {
  switch (event.kind_case()) {
    case v1::JobEvent::kStepDone: {
      const v1::StepDone& done = event.step_done();
      // Another worker tells the steps from here on, on a clock of its own.
      if (!recent_.empty() && done.monotonic_ns() < recent_.back().monotonic_ns) recent_.clear();
      if (recent_.empty()) {
        first_step_ = done.step();
        first_ns_ = done.monotonic_ns();
      }
      if (remaining_) remaining_->OnStep(done.step(), done.monotonic_ns());
      step_ = done.step();
      loss_ = done.loss();
      const WorkDone of_step = WorkDoneOf(done);
      work_ = {of_step.unit, work_.count + of_step.count};
      recent_.push_back({done.monotonic_ns(), work_.count});
      while (recent_.size() > 2 &&
             recent_.back().monotonic_ns - recent_[1].monotonic_ns >= kSpeedWindowNs) {
        recent_.pop_front();
      }
      return "";
    }
    case v1::JobEvent::kPlanned:
      recent_.clear();
      return "";
    case v1::JobEvent::kValidationDone:
      validation_ = event.validation_done();
      return absl::StrCat("step ", validation_->step(), ": validation loss ",
                          FormatLoss(validation_->loss()),
                          MetricsAfterLoss(validation_->metrics()));
    case v1::JobEvent::kCheckpointDone:
      return absl::StrFormat("step %d: checkpoint %s", event.checkpoint_done().step(),
                             event.checkpoint_done().directory());
    case v1::JobEvent::kStateChanged:
      state_ = event.state_changed().state();
      reason_ = event.state_changed().reason();
      return "";
    case v1::JobEvent::kLog:
      return event.log();
    default:
      return "";
  }
}

void Progress::SetStages(const v1::JobResult& result) {
  bubbles_ = BubblesByWorker(result.per_stage());
}

double Progress::work_per_second() const {
  if (recent_.size() < 2) return 0;
  const double seconds =
      static_cast<double>(recent_.back().monotonic_ns - recent_.front().monotonic_ns) * 1e-9;
  if (seconds <= 0) return 0;
  return static_cast<double>(recent_.back().work - recent_.front().work) / seconds;
}

std::optional<double> Progress::remaining_seconds() const {
  if (remaining_) return remaining_->Seconds();
  if (step_ <= first_step_ || recent_.empty()) return std::nullopt;
  const double seconds = static_cast<double>(recent_.back().monotonic_ns - first_ns_) * 1e-9;
  return seconds / static_cast<double>(step_ - first_step_) * static_cast<double>(steps_ - step_);
}

std::vector<std::string> Progress::Facts() const {
  if (recent_.empty()) {
    std::vector<std::string> facts = {JobStateName(state_)};
    if (!reason_.empty()) facts.push_back(reason_);
    return facts;
  }
  const bool interrupted = state_ == v1::JOB_STATE_DRAINING || state_ == v1::JOB_STATE_RECOVERING;
  std::vector<std::string> facts = {absl::StrCat("loss ", FormatLoss(loss_))};
  if (validation_) {
    facts.push_back(absl::StrCat("validation ", FormatLoss(validation_->loss())));
    // A line has room for one.
    if (validation_->metrics_size() > 0) facts.push_back(MetricText(validation_->metrics(0)));
  }
  if (work_per_second() > 0) {
    facts.push_back(absl::StrCat(FormatCount(work_per_second()), " ", work_.unit, "/s"));
  }
  if (const auto seconds = remaining_seconds(); seconds && step_ < steps_ && !interrupted) {
    facts.push_back(absl::StrCat(FormatDuration(*seconds), " left"));
  }
  if (!bubbles_.empty()) {
    facts.push_back(absl::StrCat("bubble ",
                                 absl::StrJoin(bubbles_, " | ",
                                               [](std::string* out, double ratio) {
                                                 absl::StrAppendFormat(out, "%.0f", ratio * 100);
                                               }),
                                 " %"));
  }
  if (interrupted) facts.push_back(JobStateName(state_));
  return facts;
}

std::string Progress::Line(int columns) const {
  const double fraction =
      steps_ > 0 ? std::clamp(static_cast<double>(step_) / static_cast<double>(steps_), 0.0, 1.0)
                 : 0;
  std::string line = absl::StrFormat("%s %d/%d ", unit_, step_, steps_);
  absl::StrAppend(&line, Bar(fraction, std::clamp(columns / 5, 6, kBarColumnsMax)));
  for (const std::string& fact : Facts()) {
    if (line.size() + 2 + fact.size() > static_cast<size_t>(columns)) break;
    absl::StrAppend(&line, "  ", fact);
  }
  return line;
}

std::string Progress::PlainLine() const {
  return absl::StrCat(unit_, " ", step_, "/", steps_, "  ", absl::StrJoin(Facts(), "  "));
}

}  // namespace penstock
