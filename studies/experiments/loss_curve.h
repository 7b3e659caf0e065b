// Loss curves over ticks: when a pipeline sees the losses that training yields.
//
// Weights do not depend on timing, so losses are trained anywhere and stamped with the ticks of the order
// that the method takes.
//
// Pure functions.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "studies/theory/curve.h"
#include "studies/theory/ticks.h"

namespace penstock {

// A point for every microbatch of `sequence`, at the end of the tick in which the last stage does its forward:
// the mean of its loss and of up to `window - 1` before it. Microbatches without a loss, because the run
// diverged, have an infinite one. REQUIRES: window > 0, no more losses than microbatches.
Curve LossOverTicks(absl::Span<const double> losses, const TickSequence& sequence, int64_t window);

// Returns the start of a curve's tail, which the step-size rule looks at: its last 20 %.
// REQUIRES: it is not empty.
int64_t TailBegin(const Curve& curve);

}  // namespace penstock
