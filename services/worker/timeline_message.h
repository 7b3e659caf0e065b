// A timeline as a message.
#pragma once

#include <cstdint>

#include "penstock/v1/cluster.pb.h"
#include "schedule/timeline.h"

namespace penstock {

// The most recent spans of `timeline`, oldest first, as many as fit in `bytes_max` of message.
v1::GetRunTimelineResponse ToMessage(const Timeline& timeline, int64_t bytes_max);

}  // namespace penstock
