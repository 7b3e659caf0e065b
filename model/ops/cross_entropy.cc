// The mean cross-entropy of logits against target ids. Label smoothing: Szegedy et al., arXiv 1512.00567.
#include <limits>

#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace cross_entropy {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {.name = "ignore",
     .kind = AttributeKind::kInteger,
     .help =
         "the target id that does not count, such as that of padding, or -100, which is no class",
     .otherwise = kNoDefault,
     .min = std::numeric_limits<int32_t>::min(),
     .max = std::numeric_limits<int32_t>::max()},
    {"label_smoothing", AttributeKind::kNumber,
     "the share of each target that is spread over all classes", "0", 0.0, 0.999999},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  if (!AreTargetsOf(a.inputs[0], a.inputs[1])) {
    return ShapesDoNotFit(a.inputs, "logits f32 [..., classes] and targets i32 [...]");
  }
  return OpResult{.output = {DType::kF32, {}}};
}

int64_t Ids(const OpArguments& a, int) { return a.inputs[0].dims.back(); }

LossTraits Loss(const OpArguments& a) {
  LossTraits traits = {.classes = a.inputs[0].dims.back(),
                       .is_log_likelihood = a.attributes.number("label_smoothing") == 0.0};
  if (a.attributes.has("ignore")) {
    traits.ignored = static_cast<int32_t>(a.attributes.integer("ignore"));
  }
  return traits;
}

}  // namespace
}  // namespace cross_entropy

constinit const Op kCrossEntropy = {
    .name = "cross_entropy",
    .described_as = "cross_entropy",
    .help = "the mean cross-entropy of logits against targets",
    .attributes = cross_entropy::kAttributes,
    .inputs_min = 2,
    .inputs_max = 2,
    .infer = cross_entropy::Infer,
    .cost = NoProducts,
    .ids = cross_entropy::Ids,
    .loss = cross_entropy::Loss,
};

}  // namespace penstock::ops
