#include "worker/paused_reference.h"

#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include "base/files.h"
#include "base/mutex.h"
#include "base/status.h"
#include "job/resolve.h"

namespace penstock {
namespace {

constexpr std::chrono::milliseconds kPauseTick(50);

}  // namespace

struct PausedReference::State {
  ReferenceOptions options;
  std::function<absl::Status()> may_go_on;
  std::thread thread;

  Mutex mutex;
  CondVar changed;
  int64_t wanted ABSL_GUARDED_BY(mutex) = 0;
  std::vector<double> losses ABSL_GUARDED_BY(mutex);  // by step
  bool is_cancelled ABSL_GUARDED_BY(mutex) = false;
  bool is_done ABSL_GUARDED_BY(mutex) = false;
  absl::Status status ABSL_GUARDED_BY(mutex);

  // In the thread.
  absl::Status Train() {
    PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(options.spec));
    PENSTOCK_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend, MakeCpuBackend(job.threads));
    options.on_step = [this](const StepResult& step) { PauseAfter(step.loss); };
    options.on_microbatch = [this](int64_t, double) {
      const MutexLock lock(mutex);
      return is_cancelled ? absl::CancelledError("the race is over") : absl::OkStatus();
    };
    return TrainReference(options, RealFiles(), *backend).status();
  }

  // Until more steps are wanted, or none.
  void PauseAfter(double loss) {
    const MutexLock lock(mutex);
    losses.push_back(loss);
    changed.NotifyAll();
    while (!is_cancelled && static_cast<int64_t>(losses.size()) >= wanted) changed.Wait(mutex);
  }

  void Cancel() {
    const MutexLock lock(mutex);
    is_cancelled = true;
    changed.NotifyAll();
  }
};

PausedReference::PausedReference(ReferenceOptions options, std::function<absl::Status()> may_go_on)
    : state_(std::make_unique<State>()) {
  options.spec.mutable_validation()->set_every_steps(0);
  v1::CheckpointSpec& checkpoint = *options.spec.mutable_checkpoint();
  checkpoint.clear_every_steps();
  checkpoint.clear_directory();
  checkpoint.clear_resume();
  state_->options = std::move(options);
  state_->may_go_on = std::move(may_go_on);
}

PausedReference::~PausedReference() { Leave(); }

void PausedReference::Leave() {
  state_->Cancel();
  if (state_->thread.joinable()) state_->thread.join();
}

absl::StatusOr<std::vector<double>> PausedReference::TrainTo(int64_t steps) {
  State& state = *state_;
  {
    const MutexLock lock(state.mutex);
    state.wanted = steps;
    state.changed.NotifyAll();
  }
  if (!state.thread.joinable()) {
    state.thread = std::thread([&state] {
      absl::Status status = state.Train();
      const MutexLock lock(state.mutex);
      state.status = std::move(status);
      state.is_done = true;
      state.changed.NotifyAll();
    });
  }
  while (true) {
    {
      const MutexLock lock(state.mutex);
      if (state.is_done && !state.status.ok()) return state.status;
      if (state.is_done || static_cast<int64_t>(state.losses.size()) >= steps) return state.losses;
      state.changed.WaitUntil(state.mutex, std::chrono::steady_clock::now() + kPauseTick);
    }
    PENSTOCK_RETURN_IF_ERROR(state.may_go_on());
  }
}

}  // namespace penstock
