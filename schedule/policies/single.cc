// single: forward and backward read the current weights. Methods that drain at every step have no others; without a
// drain an update may come between the two (PACI, arXiv 2606.07881).
#include "schedule/weight_policy.h"

namespace penstock {

constinit const Weights Weights::kSingle = {.name = "single", .form = "single"};

}  // namespace penstock
