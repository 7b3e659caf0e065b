// stash: the backward reads the version that its forward read (PipeDream, SOSP 2019).
#include "schedule/weight_policy.h"

namespace penstock {

constinit const Weights Weights::kStash = {
    .name = "stash",
    .form = "stash",
    .backward = ForwardsToo,
    // When an update is made, the oldest of the in_flight - 1 microbatches that are left ran its forward after
    // all but in_flight - 1 of the backwards before.
    .versions_max = [](const WeightPolicy&, int64_t in_flight, int64_t microbatches_per_update) {
      return (in_flight - 1 + microbatches_per_update - 1) / microbatches_per_update + 1;
    }};

}  // namespace penstock
