#include "worker/hold_gate.h"

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/deadline.h"

namespace penstock {

HoldGate::HoldGate(int64_t first_step, int64_t microbatches_per_step, absl::Duration hold_timeout)
    : microbatches_per_step_(microbatches_per_step),
      hold_timeout_(hold_timeout),
      begun_by_executor_(first_step * microbatches_per_step),
      frontier_(begun_by_executor_) {
  PENSTOCK_CHECK(microbatches_per_step > 0);
}

absl::StatusOr<HoldGate::Passage> HoldGate::Enter(int64_t microbatch,
                                                  absl::FunctionRef<void()> on_wait) {
  if (microbatch < begun_by_executor_) return Passage();
  MutexLock lock(mutex_);
  Passage passage;
  if (MustWait(microbatch)) {
    passage.waited = true;
    on_wait();
    const auto until = After(hold_timeout_);
    while (MustWait(microbatch)) {
      if (changed_.WaitUntil(mutex_, until) || !MustWait(microbatch)) continue;
      return absl::DeadlineExceededError(absl::StrCat("held after step ", *held_step_,
                                                      ", but no cut was announced within ",
                                                      absl::FormatDuration(hold_timeout_)));
    }
  }
  if (!cancelled_.ok()) return cancelled_;
  if (cut_step_.has_value() && microbatch >= MicrobatchOf(*cut_step_)) {
    passage.cut = true;
    passage.cut_step = *cut_step_;
    return passage;
  }
  frontier_ = microbatch + 1;
  begun_by_executor_ = frontier_;
  return passage;
}

bool HoldGate::MustWait(int64_t microbatch) const {
  return cancelled_.ok() && held_step_.has_value() && !cut_step_.has_value() &&
         microbatch >= MicrobatchOf(*held_step_);
}

absl::StatusOr<int64_t> HoldGate::Hold() {
  MutexLock lock(mutex_);
  if (closed_) return absl::FailedPreconditionError("cannot hold: the run is not executing");
  if (!held_step_.has_value()) {
    held_step_ = (frontier_ + microbatches_per_step_ - 1) / microbatches_per_step_;
  }
  return *held_step_;
}

absl::Status HoldGate::CutAt(int64_t step) {
  MutexLock lock(mutex_);
  if (closed_) return absl::FailedPreconditionError("cannot cut: the run is not executing");
  if (!held_step_.has_value()) {
    return absl::FailedPreconditionError("cannot cut: the run was not held before");
  }
  if (step < *held_step_ || (cut_step_.has_value() && *cut_step_ != step)) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot cut after step ", step, ": the run ",
                     cut_step_.has_value() ? "is cut after step " : "is held after step ",
                     cut_step_.value_or(*held_step_)));
  }
  cut_step_ = step;
  changed_.NotifyAll();
  return absl::OkStatus();
}

std::optional<int64_t> HoldGate::cut_step() const {
  MutexLock lock(mutex_);
  return cut_step_;
}

void HoldGate::Cancel(const absl::Status& reason) {
  MutexLock lock(mutex_);
  if (cancelled_.ok()) cancelled_ = reason;
  changed_.NotifyAll();
}

absl::Status HoldGate::cancelled() const {
  MutexLock lock(mutex_);
  return cancelled_;
}

void HoldGate::Close() {
  MutexLock lock(mutex_);
  closed_ = true;
}

}  // namespace penstock
