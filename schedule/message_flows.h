// MessageFlows: which pass of a timeline took the message of which other: a forward the activation of the stage before, a
// backward the gradient of the one after.
//
// A pure function.
#pragma once

#include <vector>

#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace penstock {

struct MessageFlow {
  const Span* giver = nullptr;  // of the timeline, as is the other; an F, or an I
  const Span* taker = nullptr;
};

// `topology`: who feeds whom; null: each stage the one with the next number. What a pass took of one that is not in the
// timeline has no flow.
//
// A pass of a microbatch may be there several times: validations number their microbatches from 0 on. Then each taker
// belongs to the last giver that began before it, unless an earlier taker does already.
std::vector<MessageFlow> MessageFlowsOf(const Timeline& timeline, const Topology* topology);

}  // namespace penstock
