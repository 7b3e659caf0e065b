// LearningRate: warm-up, then one of several courses, as a function of the samples seen.
//
// It runs in samples, not in updates, so that methods with more updates per step follow the same
// curve. Cosine: Loshchilov and Hutter, arXiv 1608.03983 (without restarts). Inverse square root: Vaswani et al., arXiv
// 1706.03762, peak sqrt(warmup / t), which there is d^-0.5 min(t^-0.5, t warmup^-1.5). Warm-up, stable, decay (WSD): Hu
// et al., arXiv 2404.06395, which leaves the curve of the decay open; here it is a line.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock {

struct LearningRate {
  enum class Decay : uint8_t { kConstant, kLinear, kCosine, kStep, kInverseSquareRoot, kWsd };

  double peak = 0.0;           // after warm-up
  int64_t warmup_samples = 0;  // linear from 0
  int64_t total_samples = 0;   // where decay ends; later samples keep the final rate
  Decay decay = Decay::kConstant;
  double final_fraction = 0.1;  // of `peak`, at `total_samples`; used by kLinear, kCosine and kWsd
  // Of kStep: the rate is multiplied by `factor` for what comes after each of these.
  std::vector<int64_t> milestone_samples;
  double factor = 0.1;
  int64_t cooldown_samples = 0;  // of kWsd: the last ones before `total_samples`, in which it falls

  // The rate of the update after which `samples` samples have been seen in all, those of the update
  // included: the first update of a warm-up is not wasted, and the last one has the final rate.
  double At(int64_t samples) const;

  friend bool operator==(const LearningRate&, const LearningRate&) = default;
};

}  // namespace penstock
