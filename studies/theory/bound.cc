#include "studies/theory/bound.h"

#include <algorithm>
#include <cmath>

namespace penstock {

BoundTerms TheoremBound(const BoundInput& input, int64_t updates) {
  const double step = input.learning_rate;
  const double squared_gradient = input.block_gradient * input.block_gradient;
  const double drift = step * input.smoothness * static_cast<double>(input.delta);
  return {.start = 2.0 * input.stages * input.start_gap / (step * static_cast<double>(updates)),
          .noise = step * input.stages * input.smoothness * squared_gradient,
          .stale = drift * drift * squared_gradient};
}

double TheoremStep(const BoundInput& input, int64_t updates) {
  const double squared_gradient = input.block_gradient * input.block_gradient;
  return std::min(1.0 / input.smoothness,
                  std::sqrt(2.0 * input.start_gap /
                            (input.smoothness * squared_gradient * static_cast<double>(updates))));
}

}  // namespace penstock
