// ProfileLayers: what a device takes for every layer of a model, in time and memory, measured.
//
// A layer is timed as a stage of its own, so that what was measured is what a worker runs: passes over several
// microbatches one after the other, as a pipeline has them in flight, between two waits for the device. Before and
// behind it there are other layers, not cuts (StageEnds::kLayers): what bundles take is paid once at each cut of a
// stage, and not by each of its layers. The first passes, which prepare kernels and memory, do not count. Layers of
// one shape are measured once. The times of a stage are the sums of its layers'; no range of layers is measured by
// itself (PipeDream's profiler is of layers too; others compile and time every range).
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "compute/backend.h"
#include "model/graph.h"
#include "penstock/v1/profile.pb.h"

namespace penstock {

struct LayerProfilerOptions {
  std::vector<int64_t> samples;  // sizes of a microbatch, ascending
  Precision precision = Precision::kF32;
  OptimizerConfig optimizer;
  uint64_t seed = 0;  // of the tensors that are passed through
  // For each layer and size: timed windows of kWindowMicrobatches microbatches, at least this many, and
  // more until this time is spent on them.
  int windows_min = 5;
  int windows_max = 200;
  double seconds = 0.2;
  // Asked before each window: an error ends the profiling with it.
  std::function<absl::Status()> may_go_on = [] { return absl::OkStatus(); };
};

// The progress: `done` of `total` measurements, and what comes next.
struct ProfilerProgress {
  int done = 0;
  int total = 0;
  std::string layer;
  int64_t samples = 0;
};

inline constexpr int kWindowMicrobatches = 4;

// `on_progress` is called before each measurement; an error of its ends the profiling.
//
// Errors: InvalidArgument (no sizes, not ascending, below 1), those of Stage::Create naming the
// layer, and of `on_progress` and `may_go_on`.
absl::StatusOr<v1::ModelProfile> ProfileLayers(
    Backend& backend, const ModelGraph& model, const LayerProfilerOptions& options, Clock& clock,
    const std::function<absl::Status(const ProfilerProgress&)>& on_progress);

}  // namespace penstock
