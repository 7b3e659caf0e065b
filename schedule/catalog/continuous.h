// 1F1B that does not drain: what PipeDream, PipeDream-2BW and PACI share.
#pragma once

#include "schedule/catalog/schedules.h"

namespace penstock {

// The warm-up forwards w(s) of warm_up.h, S-1-s without replicas; then backward and forward in turn, and an update after
// every `update_interval` microbatches, or after one of each replica if the interval is 1. `stage` is alone on its
// worker. REQUIRES: the range is a multiple of update_interval and of the topology's cycle; an update_interval
// of more than 1, too.
Program ContinuousOneFOneB(const ScheduleOptions& options, StageId stage, MicrobatchRange range,
                           int64_t update_interval);

}  // namespace penstock
