// The elementwise product of two values: gates.
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {

constinit const Op kMul = {
    .name = "mul",
    .described_as = "mul",
    .help = "the product of two values of one shape, element by element",
    .inputs_min = 2,
    .inputs_max = 2,
    .infer = InferElementwise,
    .cost = NoProducts,
};

}  // namespace penstock::ops
