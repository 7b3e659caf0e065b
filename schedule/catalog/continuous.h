// 1F1B that does not drain: what PipeDream, PipeDream-2BW and PACI share.
#pragma once

#include "schedule/catalog/schedules.h"

namespace penstock {

// S-1-s forwards, then backward and forward in turn, and an update after every `update_interval`
// backwards. `stage` is alone on its worker. REQUIRES: range.count is a multiple of update_interval.
Program ContinuousOneFOneB(const ScheduleOptions& options, StageId stage, MicrobatchRange range,
                           int64_t update_interval);

}  // namespace penstock
