// The sum of values of one shape: residual connections.
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {

constinit const Op kAdd = {
    .name = "add",
    .described_as = "add",
    .help = "the sum of 2 to 16 values of one shape",
    .inputs_min = 2,
    .inputs_max = 16,
    .infer = InferElementwise,
    .cost = NoProducts,
};

}  // namespace penstock::ops
