// The targets that score highest of all classes. Of tokens this is the accuracy of the next token.
#include "model/metrics/list.h"

namespace penstock::metrics {

constinit const Metric kAccuracy = {
    .name = "accuracy",
    .label = "accuracy",
    .is_right = [](int32_t rank) { return rank == 0; },
};

}  // namespace penstock::metrics
