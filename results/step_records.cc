#include "results/step_records.h"

#include <utility>

#include "coordinator/job_state.h"

namespace penstock {

std::vector<StepRecord> StepRecords::Add(const v1::JobEvent& event) {
  last_sequence_ = event.sequence();
  if (event.has_planned()) {
    ++attempt_;
    before_.reset();
  } else if (event.has_step_done()) {
    OnStep(event);
  } else if (event.has_validation_done()) {
    OnValidation(event.validation_done());
  } else if (event.has_state_changed()) {
    ended_ = IsTerminal(event.state_changed().state());
  }
  std::vector<StepRecord> complete;
  while (!waiting_.empty() &&
         (ended_ || waiting_.front().validated || waiting_.size() > kWaitingMax)) {
    complete.push_back(std::move(waiting_.front().record));
    waiting_.pop_front();
  }
  return complete;
}

void StepRecords::OnStep(const v1::JobEvent& event) {
  const v1::StepDone& done = event.step_done();
  StepRecord record = {.step = done.step(),
                       .loss = done.loss(),
                       .learning_rate = done.learning_rate(),
                       .gradient_norm = done.gradient_norm(),
                       .samples = done.samples(),
                       .tokens = done.tokens(),
                       .attempt = attempt_,
                       .unix_ms = event.unix_ms()};
  if (before_.has_value() && before_->step() + 1 == done.step()) {
    record.seconds = 1e-9 * static_cast<double>(done.monotonic_ns() - before_->monotonic_ns());
  }
  before_ = done;
  const bool validates =
      validate_every_ > 0 && (done.step() == steps_ || done.step() % validate_every_ == 0);
  waiting_.push_back({.record = std::move(record), .validated = !validates});
}

void StepRecords::OnValidation(const v1::ValidationDone& done) {
  for (Waiting& waiting : waiting_) {
    if (waiting.record.step != done.step()) continue;
    waiting.record.validation_loss = done.loss();
    waiting.record.validation_metrics = {done.metrics().begin(), done.metrics().end()};
    waiting.validated = true;
  }
}

}  // namespace penstock
