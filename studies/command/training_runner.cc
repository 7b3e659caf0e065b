#include "studies/command/training_runner.h"

#include <algorithm>

#include "absl/strings/str_format.h"
#include "services/cli/command.h"
#include "services/cli/text.h"
#include "studies/experiments/study_threads.h"

namespace penstock {
namespace {

constexpr int64_t kTimedMicrobatches = 3;  // of each run at a time

absl::Status Stopped() { return InterruptedError("interrupted"); }

}  // namespace

TrainingRunner::TrainingRunner(int threads, Console& console, Clock& clock, Interrupt& interrupt)
    : threads_(threads),
      console_(console),
      clock_(clock),
      interrupt_(interrupt),
      display_(console, clock) {}

absl::Status TrainingRunner::ForEachRun(int64_t runs, int64_t microbatches,
                                        const std::function<absl::Status(int64_t)>& train) {
  runs_ = runs;
  microbatches_ = microbatches;
  const int64_t at_a_time = std::min<int64_t>(threads_, runs);
  {
    MutexLock lock(mutex_);
    progress_ = Progress(microbatches, "microbatch");
    timing_ = {.warm_microbatches = at_a_time,
               .timed_microbatches = kTimedMicrobatches * at_a_time};
  }
  const auto run = [&](int64_t i) {
    if (failed_ || stopping_) return;
    const absl::Status status = train(i);
    if (status.ok()) return;
    failed_ = true;
    MutexLock lock(mutex_);
    if (error_.ok()) error_ = status;
  };
  RunOnThreads(threads_, runs, run, [&] {
    if (interrupt_.Count() > 0) stopping_ = true;
    Look();
    return true;
  });
  Progress progress(0);
  absl::Status error;
  {
    MutexLock lock(mutex_);
    progress = progress_;
    error = error_;
  }
  if (progress.step() > 0) display_.Finish(progress);
  return interrupt_.Count() > 0 ? Stopped() : error;
}

absl::Status TrainingRunner::MicrobatchDone(double loss, int64_t tokens) {
  const int64_t now_ns = clock_.MonotonicNs();
  {
    MutexLock lock(mutex_);
    v1::JobEvent event;
    event.mutable_step_done()->set_step(++microbatches_done_);
    event.mutable_step_done()->set_loss(loss);
    event.mutable_step_done()->set_tokens(tokens);
    event.mutable_step_done()->set_monotonic_ns(now_ns);
    progress_.Add(event);
    Time(now_ns);
  }
  return stopping_ ? Stopped() : absl::OkStatus();
}

void TrainingRunner::Note(const std::string& line) { display_.Note(line); }

void TrainingRunner::Time(int64_t now_ns) {
  const int64_t timed = microbatches_done_ - timing_.warm_microbatches;
  if (timed == 0) timing_.start_ns = now_ns;
  if (timed != timing_.timed_microbatches) return;
  timing_.seconds = static_cast<double>(now_ns - timing_.start_ns) * 1e-9 /
                    static_cast<double>(timing_.timed_microbatches);
}

std::string TrainingRunner::Estimate(double seconds) const {
  const int64_t at_a_time = std::min<int64_t>(threads_, runs_);
  return absl::StrFormat(
      "runs: %d, %d at a time; %d microbatches in all, %s each: about %s. Ctrl-C keeps the runs "
      "that "
      "are finished",
      runs_, at_a_time, microbatches_, FormatDuration(seconds * static_cast<double>(at_a_time)),
      FormatDuration(seconds * static_cast<double>(microbatches_)));
}

void TrainingRunner::Look() {
  Progress progress(0);
  std::optional<double> seconds;
  {
    MutexLock lock(mutex_);
    if (microbatches_done_ == 0) return;
    progress = progress_;
    seconds = timing_.seconds;
  }
  if (seconds.has_value() && !estimated_) {
    estimated_ = true;
    display_.Note(Estimate(*seconds));
  }
  display_.Update(progress);
}

}  // namespace penstock
