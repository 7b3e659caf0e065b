#include "coordinator/run_progress.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "checkpoint/weights_digest.h"

namespace penstock {

std::vector<double> BubblesByWorker(
    const google::protobuf::RepeatedPtrField<v1::StageReport>& stages) {
  std::vector<std::string> workers;
  std::vector<double> bubbles;
  for (const v1::StageReport& stage : stages) {
    const auto known = std::find(workers.begin(), workers.end(), stage.worker());
    const auto index = static_cast<size_t>(known - workers.begin());
    if (known == workers.end()) {
      workers.push_back(stage.worker());
      bubbles.push_back(1.0);
    }
    bubbles[index] -= 1.0 - stage.bubble_ratio();
  }
  for (double& bubble : bubbles) bubble = std::max(bubble, 0.0);
  return bubbles;
}

namespace {

// The rates of the stages' workers together, each once; 0: not known of all.
double ProductRateOf(const std::map<int32_t, v1::StageReport>& stages) {
  std::map<std::string, double> by_worker;
  for (const auto& [number, stage] : stages) {
    if (!(stage.product_flops_per_second() > 0)) return 0;
    by_worker[stage.worker()] = stage.product_flops_per_second();
  }
  return std::accumulate(by_worker.begin(), by_worker.end(), 0.0,
                         [](double sum, const auto& worker) { return sum + worker.second; });
}

}  // namespace

void RunProgress::Curve::Add(v1::LossPoint point) {
  last = std::move(point);
  if (++skipped < stride) {
    return;
  }
  skipped = 0;
  points.push_back(last);
  if (points.size() > kLossPointsMax) {
    for (size_t i = 1; 2 * i < points.size(); ++i) {
      points[i] = points[2 * i];
    }
    points.resize((points.size() + 1) / 2);
    stride *= 2;
  }
}

void RunProgress::Curve::DropAfter(int64_t step) {
  std::erase_if(points, [step](const v1::LossPoint& point) { return point.step() > step; });
  if (last.step() > step) skipped = 0;
}

void RunProgress::TakeRecentLosses() {
  recent_losses_.clear();
  const std::vector<v1::LossPoint>& losses = losses_.points;
  const size_t recent = losses_.stride > 1 ? 0 : std::min(kTrainLossSteps, losses.size());
  for (size_t i = losses.size() - recent; i < losses.size(); ++i) {
    recent_losses_.push_back(losses[i].loss());
  }
}

void RunProgress::GoOnFrom(const v1::JobResult& before) {
  const auto until_here = [this](const google::protobuf::RepeatedPtrField<v1::LossPoint>& points) {
    std::vector<v1::LossPoint> kept;
    std::copy_if(points.begin(), points.end(), std::back_inserter(kept),
                 [this](const v1::LossPoint& point) { return point.step() <= step_; });
    return kept;
  };
  losses_.points = until_here(before.losses());
  validations_.points = until_here(before.validations());
  const std::vector<v1::LossPoint>& losses = losses_.points;
  if (losses.size() > 1)
    losses_.stride = losses[1].step() - losses[0].step();  // every step has one
  TakeRecentLosses();
  if (!validations_.points.empty()) validation_ = validations_.points.back();
  if (!before.validations().empty()) told_validation_ = before.validations().rbegin()->step();
  if (before.steps() == 0) return;
  // All steps have as many.
  work_of_step_ = {.samples = before.samples() / before.steps(),
                   .tokens = before.tokens() / before.steps()};
  told_step_ = std::max(step_, before.steps());
  const int64_t unknown = told_step_ - before.steps();
  work_ = {.samples = before.samples() + unknown * work_of_step_.samples,
           .tokens = before.tokens() + unknown * work_of_step_.tokens};
}

void RunProgress::WriteTo(v1::RunUnderWay& run) const {
  run.set_samples(work_here_.samples);
  run.set_tokens(work_here_.tokens);
}

void RunProgress::TakeOver(const v1::JobResult& before, const v1::RunUnderWay& run) {
  GoOnFrom(before);
  for (const v1::WorkerOrder& order : before.order()) OnOrder(order.worker_index(), order);
  work_here_ = {.samples = run.samples(), .tokens = run.tokens()};
  OnReports(before.per_stage());
  // The reports are of the last cut, and the work up to there was told as a rate.
  const auto work = [this](double per_second) {
    return static_cast<int64_t>(std::llround(per_second * window_seconds_));
  };
  window_work_ = {.samples = work(before.samples_per_second()),
                  .tokens = work(before.tokens_per_second())};
}

void RunProgress::Curve::WriteTo(google::protobuf::RepeatedPtrField<v1::LossPoint>& curve) const {
  curve.Assign(points.begin(), points.end());
  if (skipped > 0) *curve.Add() = last;
}

void RunProgress::BeginAgain(int64_t first_step, int64_t first_microbatch,
                             int32_t reporting_stage) {
  if (first_step < step_) {
    losses_.DropAfter(first_step);
    validations_.DropAfter(first_step);
    validation_.reset();
    if (!validations_.points.empty()) validation_ = validations_.points.back();
    TakeRecentLosses();
    std::erase_if(orders_,
                  [=](const auto& order) { return order.first.first >= first_microbatch; });
  }
  step_ = first_step;
  told_step_ = std::max(told_step_, step_);
  reporting_stage_ = reporting_stage;
  work_here_ = {};
  window_work_ = {};
  window_seconds_ = 0.0;
  stages_.clear();
  layer_digests_.clear();
}

void RunProgress::EndHere() {
  const int64_t undone = told_step_ - step_;
  work_.samples -= undone * work_of_step_.samples;
  work_.tokens -= undone * work_of_step_.tokens;
  told_step_ = step_;
}

bool RunProgress::OnStep(const v1::StepDone& done, int64_t unix_ms) {
  if (done.step() <= step_) {
    return false;
  }
  step_ = done.step();
  work_of_step_ = {.samples = done.samples(), .tokens = done.tokens()};
  const auto add = [this](Work& work) {
    work.samples += work_of_step_.samples;
    work.tokens += work_of_step_.tokens;
  };
  add(work_here_);
  if (step_ > told_step_) {
    told_step_ = step_;
    add(work_);
  }
  recent_losses_.push_back(done.loss());
  if (recent_losses_.size() > kTrainLossSteps) {
    recent_losses_.pop_front();
  }
  v1::LossPoint point;
  point.set_step(done.step());
  point.set_loss(done.loss());
  point.set_unix_ms(unix_ms);
  losses_.Add(std::move(point));
  return true;
}

bool RunProgress::OnValidation(const v1::ValidationDone& done) {
  if (validation_.has_value() && done.step() <= validation_->step()) return false;
  v1::LossPoint point;
  point.set_step(done.step());
  point.set_loss(done.loss());
  *point.mutable_metrics() = done.metrics();
  validation_ = point;
  validations_.Add(std::move(point));
  const bool is_first = done.step() > told_validation_;
  told_validation_ = std::max(told_validation_, done.step());
  return is_first;
}

std::optional<double> RunProgress::ValidationAt(int64_t step) const {
  if (validation_.has_value() && validation_->step() == step) return validation_->loss();
  for (const v1::LossPoint& point : validations_.points) {
    if (point.step() == step) return point.loss();
  }
  return std::nullopt;
}

EarlyStop::Course RunProgress::CourseUpTo(int64_t step) const {
  EarlyStop early_stop(/*stop_after=*/0);
  int64_t last = -1;
  for (const v1::LossPoint& point : validations_.points) {
    if (point.step() > step) break;
    early_stop.Ends(point.loss());
    last = point.step();
  }
  if (validation_.has_value() && last < validation_->step() && validation_->step() <= step) {
    early_stop.Ends(validation_->loss());
  }
  return early_stop.course();
}

void RunProgress::OnReports(const google::protobuf::RepeatedPtrField<v1::StageReport>& stages) {
  for (const v1::StageReport& stage : stages) {
    stages_[stage.stage()] = stage;
    if (stage.stage() == reporting_stage_) {
      window_work_ = work_here_;
      window_seconds_ = stage.window_seconds();
    }
  }
}

void RunProgress::OnOrder(int32_t worker_index, const v1::WorkerOrder& order) {
  v1::WorkerOrder& kept = orders_[{order.first_microbatch(), worker_index}];
  kept = order;
  kept.set_worker_index(worker_index);
}

void RunProgress::OnLayers(const google::protobuf::RepeatedPtrField<v1::LayerDigest>& layers) {
  for (const v1::LayerDigest& layer : layers) {
    layer_digests_[layer.layer()] = layer.sha256();
  }
}

std::string RunProgress::WeightsSha256(int32_t layers) const {
  std::vector<std::string> digests;
  for (int32_t layer = 0; layer < layers; ++layer) {
    const auto digest = layer_digests_.find(layer);
    if (digest == layer_digests_.end()) {
      return "";
    }
    digests.push_back(digest->second);
  }
  return CombineLayerDigests(digests);
}

google::protobuf::RepeatedPtrField<v1::StageReport> RunProgress::Reports() const {
  google::protobuf::RepeatedPtrField<v1::StageReport> reports;
  for (const auto& [stage, report] : stages_) *reports.Add() = report;
  return reports;
}

void RunProgress::WriteTo(v1::JobResult& result) const {
  result.set_steps(told_step_);
  result.set_samples(work_.samples);
  result.set_tokens(work_.tokens);
  if (!recent_losses_.empty()) {
    result.set_train_loss(std::accumulate(recent_losses_.begin(), recent_losses_.end(), 0.0) /
                          static_cast<double>(recent_losses_.size()));
  }
  if (validation_.has_value()) {
    result.set_validation_loss(validation_->loss());
    *result.mutable_validation_metrics() = validation_->metrics();
  }
  losses_.WriteTo(*result.mutable_losses());
  validations_.WriteTo(*result.mutable_validations());

  result.clear_order();
  for (const auto& [place, order] : orders_) *result.add_order() = order;

  *result.mutable_per_stage() = Reports();
  if (const std::vector<double> bubbles = BubblesByWorker(result.per_stage()); !bubbles.empty()) {
    result.set_bubble_ratio(std::accumulate(bubbles.begin(), bubbles.end(), 0.0) /
                            static_cast<double>(bubbles.size()));
  }
  result.set_product_flops_per_second(ProductRateOf(stages_));
  if (window_seconds_ > 0.0) {
    result.set_samples_per_second(static_cast<double>(window_work_.samples) / window_seconds_);
    result.set_tokens_per_second(static_cast<double>(window_work_.tokens) / window_seconds_);
  }
}

}  // namespace penstock
