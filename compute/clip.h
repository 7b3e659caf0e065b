// Clip: how gradients are scaled down when they are too large.
//
// Global clipping (Pascanu et al., arXiv 1211.5063) needs the norm of the whole model and so a barrier;
// per-layer clipping needs none. Either way the factors come from the squared norms of whole layers,
// summed in double in layer order, so they do not depend on the partition.
#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace penstock {

struct Clip {
  enum class Kind : uint8_t { kNone, kGlobalNorm, kLayerNorm };

  Kind kind = Kind::kNone;
  double norm_max = 0.0;

  friend bool operator==(const Clip&, const Clip&) = default;
};

// The norm of all layers together. `layer_squared_norms`: by layer of the model, in order.
double CombinedNorm(absl::Span<const double> layer_squared_norms);

// The factor that brings a gradient of norm `norm` down to `norm_max`; 1 if it is no larger. A norm
// that is not a number gives a factor that is not a number.
float ClipFactor(double norm, double norm_max);

// Fills `factors` (by layer) with what `clip` puts on the gradients of the parameters that belong to each layer.
// `squared_norms`: of the same layers, read by kLayerNorm. `global_norm`: CombinedNorm of the whole model, read by
// kGlobalNorm.
void ClipFactors(const Clip& clip, absl::Span<const double> squared_norms, double global_norm,
                 absl::Span<float> factors);

}  // namespace penstock
