// WeightAverage: the exponential moving average of a stage's weights over its updates (Polyak and Juditsky, 1992, in the form
// of arXiv 1803.05407 and others): a = keep a + (1 - keep) w after each update.
//
// It starts as the weights, so it needs no correction for a start from zero. What no update changes lies in it as in every
// version, so that passes can read it in a version's place. All of it is elementwise, so it does not depend on the partition.
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "compute/backend.h"
#include "compute/weight_versions.h"

namespace penstock {

// Its name in checkpoints: "<parameter>.ema".
inline constexpr char kWeightAverageState[] = "ema";

class WeightAverage {
 public:
  WeightAverage() = default;  // there is none
  // For versions of `weight_count` floats. `with_mirror`: passes read it in bf16, rounded to nearest. REQUIRES: `backend`
  // outlives this. Errors: ResourceExhausted.
  static absl::StatusOr<WeightAverage> Create(Backend& backend, int64_t weight_count,
                                              bool with_mirror);

  bool exists() const { return backend_ != nullptr; }
  float* array() const { return average_.weights(); }

  // It becomes `weights`.
  void Begin(const WeightVersions::Version& weights);
  // An update made `next`, of which it changed the first `count` floats.
  void AfterStep(const WeightVersions::Version& next, double keep, int64_t count);
  // The array was changed otherwise.
  void Forget() { is_mirrored_ = false; }

  // Good until the next update. REQUIRES: exists().
  const WeightVersions::Version& Read();

  int64_t state_bytes() const { return average_.arrays.f32.size_bytes(); }
  int64_t mirror_bytes() const { return average_.arrays.bf16.size_bytes(); }

 private:
  Backend* backend_ = nullptr;
  int64_t weight_count_ = 0;
  WeightVersions::Version average_;
  bool is_mirrored_ = false;
};

}  // namespace penstock
