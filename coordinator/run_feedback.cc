#include "coordinator/run_feedback.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "job/resolve.h"

namespace penstock {
namespace {

std::string PercentText(double drift) { return absl::StrFormat("%+.0f %%", drift * 100.0); }

}  // namespace

void RunFeedback::Begin(const v1::JobSpec& spec, const v1::Plan& plan, int64_t first_step,
                        absl::Span<const int64_t> extra_cuts) {
  prediction_ = spec.prediction();
  rules_ = spec.feedback();
  first_step_ = first_step;
  worker_of_stage_.assign(plan.stages_size(), 0);
  workers_.clear();
  for (const v1::StageAssignment& stage : plan.stages()) {
    const auto worker = static_cast<size_t>(stage.worker_index());
    worker_of_stage_[stage.stage()] = stage.worker_index();
    workers_.resize(std::max(workers_.size(), worker + 1));
    workers_[worker].worker = stage.worker();
  }
  std::vector<int64_t> cuts;
  for (const Cut& cut : CutsOf(spec, first_step, extra_cuts)) cuts.push_back(cut.step);
  // The prediction is for the method's own step, not for the steps which drain before it begins.
  const int64_t method_begins = spec.pipeline().synchronous_steps();
  times_.emplace(std::max(first_step, method_begins), cuts, rules_.drift_steps());
  drift_.reset();
  if (spec.has_prediction()) {
    drift_.emplace(prediction_.step_seconds(), rules_.drift_bound(), rules_.drift_steps());
  }
}

RunFeedback::News RunFeedback::OnStep(const v1::StepDone& done) {
  if (!times_->OnStep(done.step(), done.monotonic_ns()) || !drift_.has_value()) return {};
  const double measured_s = *times_->MedianSeconds();
  const Drift::Turn turn = drift_->OnStep(measured_s);
  if (turn == Drift::Turn::kNone) return {};
  ++told_;
  return {turn, TextOf(turn, measured_s)};
}

std::string RunFeedback::TextOf(Drift::Turn turn, double measured_s) const {
  const double predicted_s = prediction_.step_seconds();
  const std::string percent = PercentText(DriftOf(predicted_s, measured_s));
  if (turn == Drift::Turn::kReturns) {
    return absl::StrFormat("steps take %.4g s, near the %.4g s that were predicted (%s) again",
                           measured_s, predicted_s, percent);
  }
  return absl::StrFormat(
      "steps take %.4g s, %.4g s were predicted (%s), in the median of the last %d steps: %s",
      measured_s, predicted_s, percent, rules_.drift_steps(),
      rules_.replan() == "auto"
          ? "a new split is looked for at the next cut"
          : "`penstock plan JOB.yaml --coordinator HOST:PORT` makes a new plan");
}

std::vector<std::string> RunFeedback::OnReports(
    int64_t step, const google::protobuf::RepeatedPtrField<v1::StageReport>& stages) {
  std::map<int32_t, double> sent;  // bytes by worker
  for (const v1::StageReport& stage : stages) {
    if (stage.stage() < 0 || stage.stage() >= static_cast<int32_t>(worker_of_stage_.size())) {
      continue;
    }
    const int32_t worker = worker_of_stage_[stage.stage()];
    workers_[worker].memory_bytes = stage.peak_memory_bytes();
    sent[worker] += static_cast<double>(stage.bytes_sent() - stage.validation_bytes_sent());
  }
  std::vector<std::string> news;
  for (const auto& [index, bytes] : sent) {
    Use& use = workers_[index];
    if (step > first_step_) {
      use.sent_bytes_per_step = bytes / static_cast<double>(step - first_step_);
    }
    const int64_t predicted =
        index < prediction_.memory_bytes_size() ? prediction_.memory_bytes(index) : 0;
    if (use.memory_is_off || predicted == 0 || *use.memory_bytes == 0) continue;
    const double drift =
        DriftOf(static_cast<double>(predicted), static_cast<double>(*use.memory_bytes));
    if (std::abs(drift) <= rules_.drift_bound()) continue;
    use.memory_is_off = true;
    ++told_;
    news.push_back(
        absl::StrFormat("worker %s has taken %d bytes of memory at most, %d were predicted (%s)",
                        use.worker, *use.memory_bytes, predicted, PercentText(drift)));
  }
  return news;
}

void RunFeedback::WriteTo(v1::Feedback& feedback) const {
  feedback.clear_predicted();
  feedback.clear_measured();
  v1::RunUse& measured = *feedback.mutable_measured();
  if (const std::optional<double> median = times_->MedianSeconds(); median.has_value()) {
    measured.set_step_seconds(*median);
  }
  bool drifts = drift_.has_value() && drift_->off();
  for (const Use& use : workers_) {
    v1::WorkerUse& worker = *measured.add_workers();
    worker.set_worker(use.worker);
    if (use.memory_bytes.has_value()) worker.set_memory_bytes(*use.memory_bytes);
    if (use.sent_bytes_per_step.has_value()) {
      worker.set_sent_bytes_per_step(*use.sent_bytes_per_step);
    }
    drifts = drifts || use.memory_is_off;
  }
  feedback.set_drifts(drifts);
  feedback.set_drifts_told(told_);
  if (!drift_.has_value()) return;
  v1::RunUse& predicted = *feedback.mutable_predicted();
  predicted.set_step_seconds(prediction_.step_seconds());
  for (int i = 0; i < static_cast<int>(workers_.size()); ++i) {
    v1::WorkerUse& worker = *predicted.add_workers();
    worker.set_worker(workers_[i].worker);
    if (i < prediction_.memory_bytes_size()) {
      worker.set_memory_bytes(prediction_.memory_bytes(i));
    }
    if (i < prediction_.sent_bytes_size()) {
      worker.set_sent_bytes_per_step(prediction_.sent_bytes(i));
    }
  }
}

}  // namespace penstock
