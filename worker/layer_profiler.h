// ProfileLayers: what a device takes for every layer of a model, in time and memory, measured.
//
// The layers are timed where a worker runs them: inside a stage, whose passes go from layer to layer, so that a layer
// finds its weights and what it kept where the others leave them, and not in the caches that it has for itself when it is
// run alone. A stage of the whole model is made, or, where memory does not last, one of as many layers as it lasts for.
// Before and behind them there are other layers, not cuts (StageEnds::kLayers): what bundles take is paid once at each cut
// of a stage, and not by each of its layers. Its first steps, which prepare kernels and memory, do not count, nor do the
// shortest and the longest quarter of the others. A time is the mean of all layers of one shape over what is left. An
// optimizer updates a stage at once; each layer has its part of that by what it takes alone.
// The times of a stage are the sums of its layers'; no range of layers is measured by itself (PipeDream's profiler is of
// layers too; others compile and time every range).
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
  bool times = true;  // else only memory is measured, and all times are 0
  // For each size: timed windows of kWindowMicrobatches microbatches, at least this many, and more until this time is
  // spent on each shape of a layer.
  int windows_min = 5;
  int windows_max = 200;
  double seconds = 0.2;
  int64_t memory_bytes = 0;  // that layers which are run together may take; 0: half of the device's
  // Asked before each pass: an error ends the profiling with it.
  std::function<absl::Status()> may_go_on = [] { return absl::OkStatus(); };
};

// The progress: `done` of `total` measurements, one for each shape of a layer and size, and what comes next.
struct ProfilerProgress {
  int done = 0;
  int total = 0;
  std::string layers;  // that are run together: "embedding to head"
  int64_t samples = 0;
};

inline constexpr int kWindowMicrobatches = 2;

// `on_progress` is called when the first layers are about to be timed, and whenever more measurements are done; never
// without times. An error of its ends the profiling.
//
// Errors: InvalidArgument (no sizes, not ascending, below 1), those of Stage::Create naming the
// layers, and of `on_progress` and `may_go_on`.
absl::StatusOr<v1::ModelProfile> ProfileLayers(
    Backend& backend, const ModelGraph& model, const LayerProfilerOptions& options, Clock& clock,
    const std::function<absl::Status(const ProfilerProgress&)>& on_progress);

}  // namespace penstock
