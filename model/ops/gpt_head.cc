// Logits x W^T and their mean cross-entropy against targets, in one op: the logits' gradient takes their place.
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/ops/list.h"
#include "model/ops/parameters.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace gpt_head {
namespace {

constexpr double kDeviation = 0.02;
constexpr absl::string_view kWords[] = {"tied", "untied"};

constexpr AttributeSpec kAttributes[] = {
    {"vocabulary", AttributeKind::kInteger, "the number of tokens"},
    {"width", AttributeKind::kInteger, "the width of a token"},
    {.name = "weight",
     .kind = AttributeKind::kWord,
     .help = "tied: the weight is the token embedding's",
     .otherwise = "untied",
     .words = kWords},
    {.name = "label_smoothing",
     .kind = AttributeKind::kNumber,
     .help = "the share of each target that is spread over all tokens",
     .otherwise = "0",
     .min = 0.0,
     .max = 0.999999,
     .use = AttributeUse::kKernelsAddedLater},
    {.name = "ignore",
     .kind = AttributeKind::kInteger,
     .help = "the target id that does not count, such as -100, which is no token",
     .otherwise = kNoDefault,
     .min = std::numeric_limits<int32_t>::min(),
     .max = std::numeric_limits<int32_t>::max(),
     .use = AttributeUse::kKernelsAddedLater},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const int64_t vocabulary = a.attributes.integer("vocabulary");
  const int64_t width = a.attributes.integer("width");
  const ValueType& input = a.inputs[0];
  const ValueType& targets = a.inputs[1];
  const bool fits = input.dtype == DType::kF32 && input.dims.size() == 2 &&
                    input.dims[1] == width && targets.dtype == DType::kI32 &&
                    targets.dims.size() == 1 && targets.dims[0] == input.dims[0];
  if (!fits) {
    return ShapesDoNotFit(a.inputs, absl::StrCat("f32 [time, ", width, "] and targets i32 [time]"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckKept("logits", input.dims[0], vocabulary));
  const bool tied = a.attributes.word("weight") == "tied";
  ParameterSpec weight =
      Table(tied ? "wte.weight" : "lm_head.weight", vocabulary, width, kDeviation);
  if (!tied) weight = OfMap(std::move(weight), width);
  return OpResult{.output = {DType::kF32, {}}, .parameters = {std::move(weight)}};
}

int64_t Ids(const OpArguments& a, int) { return a.attributes.integer("vocabulary"); }

LossTraits Loss(const OpArguments& a) {
  LossTraits traits = {.classes = a.attributes.integer("vocabulary"),
                       .is_log_likelihood = a.attributes.number("label_smoothing") == 0.0};
  if (a.attributes.has("ignore")) {
    traits.ignored = static_cast<int32_t>(a.attributes.integer("ignore"));
  }
  return traits;
}

OpCost Cost(const OpArguments& a) {
  const double linear = ProductFlops(static_cast<double>(a.inputs[0].dims[0]),
                                     static_cast<double>(a.inputs[0].dims[1]),
                                     static_cast<double>(a.attributes.integer("vocabulary")));
  return {linear, linear, linear};
}

}  // namespace
}  // namespace gpt_head

constinit const Op kGptHead = {
    .name = "gpt_head",
    .described_as = "head",
    .help = "logits without a bias, and their mean cross-entropy",
    .attributes = gpt_head::kAttributes,
    .inputs_min = 2,
    .inputs_max = 2,
    .infer = gpt_head::Infer,
    .cost = gpt_head::Cost,
    .ids = gpt_head::Ids,
    .loss = gpt_head::Loss,
};

}  // namespace penstock::ops
