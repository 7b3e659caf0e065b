// GradientNoise: the normally distributed noise that a study adds to every gradient it computes.
//
// The numbers are sampled once for a seed, so all methods and step sizes of a seed meet the same noise.
//
// Reading is thread-safe.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "base/random.h"

namespace penstock {

class GradientNoise {
 public:
  GradientNoise() = default;  // none
  // `count` numbers; a run that needs more starts over with the first.
  GradientNoise(double deviation, int64_t count, uint64_t seed) : values_(count) {
    constexpr uint64_t kPurpose = 0x6e6f697365;
    RandomStream random(seed, kPurpose);
    for (double& value : values_) value = deviation * random.Normal();
  }

  // These numbers.
  explicit GradientNoise(std::vector<double> values) : values_(std::move(values)) {}

  int64_t count() const { return static_cast<int64_t>(values_.size()); }

  // Adds the numbers from `position` on, which moves past them.
  void AddTo(absl::Span<double> gradient, int64_t& position) const {
    if (values_.empty()) return;
    for (double& value : gradient) {
      value += values_[position];
      if (++position == static_cast<int64_t>(values_.size())) position = 0;
    }
  }

 private:
  std::vector<double> values_;
};

}  // namespace penstock
