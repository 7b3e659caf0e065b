// corrected: the backward reads the current weights moved back to what its forward read (PipeMare's discrepancy
// correction T2, arXiv 1910.05124), by the drift of each microbatch and not by its mean.
#include "schedule/weight_policy.h"

namespace penstock {

// A microbatch aims at what its forward read, as all do by default.
constinit const Weights Weights::kCorrected = {
    .name = "corrected", .form = "corrected", .moves = true, .averages_motion = true};

}  // namespace penstock
