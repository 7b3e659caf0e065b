// Dropout: Srivastava et al., JMLR 15 (2014). Locked is the variational form of Gal and Ghahramani, arXiv 1512.05287.
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace dropout {
namespace {

constexpr absl::string_view kKinds[] = {"element", "locked"};

constexpr AttributeSpec kAttributes[] = {
    {"probability", AttributeKind::kNumber, "to drop a value in training", "", 0.0, 0.999999},
    {.name = "kind",
     .kind = AttributeKind::kWord,
     .help = "element: each value by itself; locked: one mask for all time steps of a sample",
     .otherwise = "element",
     .words = kKinds},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const bool is_locked = a.attributes.word("kind") == "locked";
  if (!IsF32(a.inputs[0], is_locked ? 2 : 1)) {
    return ShapesDoNotFit(a.inputs, is_locked ? "f32 [time, ...]" : "f32 [...]");
  }
  return OpResult{.output = a.inputs[0]};
}

}  // namespace
}  // namespace dropout

constinit const Op kDropout = {
    .name = "dropout",
    .described_as = "dropout",
    .help = "values are set to zero at random in training, and the others scaled up",
    .attributes = dropout::kAttributes,
    .draws = true,
    .infer = dropout::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
