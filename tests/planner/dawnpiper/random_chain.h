// Random chains, and places of a pipeline whose limits lie between what is never and what is always enough.
#pragma once

#include "base/random.h"
#include "planner/dawnpiper/node_chain.h"
#include "planner/dawnpiper/stage_memory.h"

namespace penstock {

NodeChain RandomNodes(RandomStream& random, int nodes);

// `tight` from 0 to 1: from the bytes of the fullest stage of an equal split down to a fifth of them.
MemoryModel RandomModel(RandomStream& random, const NodeChain& chain, int stages, double tight);

}  // namespace penstock
