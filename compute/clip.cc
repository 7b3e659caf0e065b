#include "compute/clip.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace penstock {

double CombinedNorm(absl::Span<const double> layer_squared_norms) {
  double sum = 0.0;
  for (const double squared : layer_squared_norms) {
    sum += squared;
  }
  return std::sqrt(sum);
}

float ClipFactor(double norm, double norm_max) {
  return norm <= norm_max ? 1.0f : static_cast<float>(norm_max / norm);
}

void ClipFactors(const Clip& clip, absl::Span<const double> squared_norms, double global_norm,
                 absl::Span<float> factors) {
  switch (clip.kind) {
    case Clip::Kind::kNone:
      std::fill(factors.begin(), factors.end(), 1.0f);
      return;
    case Clip::Kind::kGlobalNorm:
      std::fill(factors.begin(), factors.end(), ClipFactor(global_norm, clip.norm_max));
      return;
    case Clip::Kind::kLayerNorm:
      PENSTOCK_CHECK(squared_norms.size() == factors.size());
      for (size_t layer = 0; layer < factors.size(); ++layer) {
        factors[layer] = ClipFactor(std::sqrt(squared_norms[layer]), clip.norm_max);
      }
      return;
  }
}

}  // namespace penstock
