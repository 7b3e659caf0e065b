// The targets that are among the five classes with the highest scores (ILSVRC's measure, arXiv 1409.0575).
#include "model/metrics/list.h"

namespace penstock::metrics {

constinit const Metric kTop5 = {
    .name = "top5",
    .label = "top-5",
    .classes_min = 6,
    .is_right = [](int32_t rank) { return rank < 5; },
};

}  // namespace penstock::metrics
