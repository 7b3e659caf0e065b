// ZB-H1 and ZB-H2 share this: 1F1B whose weight gradients come later, where the worker would wait.
#pragma once

#include "schedule/catalog/schedules.h"

namespace penstock {

// `warm_up` forwards; then I, W and F in turn, the W of a microbatch `delay` microbatches after its I;
// the delayed ones fill the drain. Microbatches are those of `stage`, which is alone on its worker.
Program DelayedWeights(const ScheduleOptions& options, StageId stage, MicrobatchRange range,
                       int64_t warm_up, int64_t delay);

}  // namespace penstock
