// ProfileRun: one worker's part in a profile of the cluster: it measures its links to all other workers and, if
// it was chosen for its kind of device, times every layer of the job's model.
//
// Links come first, while the workers are otherwise idle (link_probe.h), then the copies of stashes to the host
// (copy_rate.h) and the layers, each on all workers at once, as all workers of a pipeline copy and compute at once. Nothing is trained, and no data is read. A worker that
// emulates a device reports the times it would take as that device, and the memory of its own.
//
// Thread safety: as worker/run.h.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "job/resolve.h"
#include "schedule/simulate.h"
#include "worker/counter.h"
#include "worker/run.h"

namespace penstock {

class ProfileRun : public Run {
 public:
  // Errors: InvalidArgument naming the key or the worker's index, or a layer without emulated times;
  // FailedPrecondition (emulated times that differ for two layers of one shape, which it names, or that have
  // `speeds` or `links`).
  static absl::StatusOr<std::unique_ptr<Run>> Create(const v1::PrepareProfileRequest& request,
                                                     RunEnvironment environment);

  // Emits what it measured, then RunDone or RunFailed. Errors: Aborted (stopped), those of the edges naming the
  // peer, those of ProfileLayers naming the layer.
  absl::Status Execute() override;
  // There are no steps to stop at. Errors: FailedPrecondition.
  absl::StatusOr<int64_t> Hold() override;
  absl::Status CutAt(int64_t step) override;
  void Stop(const std::string& reason) override;

  // There is no schedule.
  std::string schedule_digest() const override { return ""; }
  int64_t memory_bytes() const override { return 0; }
  int64_t actions_done() const override { return looks_.value(); }
  std::vector<v1::StageReport> Reports() const override { return {}; }
  Timeline RecentTimeline() const override { return {.workers = workers()}; }

 private:
  ProfileRun(const v1::PrepareProfileRequest& request, ResolvedJob job,
             std::vector<StageCosts> emulated_costs, RunEnvironment environment);

  int workers() const { return request_.plan().stages_size(); }
  const std::string& NameOf(int worker) const { return request_.plan().stages(worker).worker(); }
  // Counts as a sign of life. Errors: that it was stopped.
  absl::Status MayGoOn() ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Status Measure();
  absl::Status MeasureLinks();
  void MeasureCopies();
  absl::Status TimeLayers();
  bool emulates() const { return environment_.emulated_device.has_value(); }
  // Puts the times of the emulated device in place of those measured.
  void Emulate(v1::ModelProfile& model) const;

  void ReportNext(const std::string& what);
  void ReportEnd(const absl::Status& status);

  const v1::PrepareProfileRequest request_;
  const ResolvedJob job_;
  const std::vector<StageCosts> emulated_costs_;  // of each shape of a layer; of an emulated device
  const RunEnvironment environment_;
  // Used by the executor's thread.
  int64_t measured_ = 0;
  std::optional<int> current_peer_;  // of the links, while they are measured

  Counter looks_;
  Mutex mutex_;
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
