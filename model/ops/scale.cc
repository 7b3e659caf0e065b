// A value times a constant, as the output of a low-rank adapter (arXiv 2106.09685).
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace scale {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {"factor", AttributeKind::kNumber, "what each value is multiplied by", "", -1e6, 1e6},
};

}  // namespace
}  // namespace scale

constinit const Op kScale = {
    .name = "scale",
    .described_as = "scale",
    .help = "a value times a constant",
    .attributes = scale::kAttributes,
    .infer = InferElementwise,
    .cost = NoProducts,
};

}  // namespace penstock::ops
