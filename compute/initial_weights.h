// Initial weights: the numbers a parameter starts with, named by seed and parameter.
//
// Two partitions of one model, and the copies of a shared weight, start equal, because a number depends only on the
// job's seed, the name of the parameter, or of the one that it is initialised as, and the element's place in it.
#pragma once

#include <cstdint>
#include <vector>

#include "model/graph.h"

namespace penstock {

std::vector<float> InitialWeights(const ParameterSpec& parameter, uint64_t seed);

}  // namespace penstock
