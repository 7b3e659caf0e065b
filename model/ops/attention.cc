// Scaled dot-product attention with several heads: Vaswani et al., arXiv 1706.03762.
#include "absl/strings/str_cat.h"
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace attention {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {"heads", AttributeKind::kInteger, "heads of attention; they must divide the width"},
    {"causal", AttributeKind::kFlag,
     "whether a query sees only the keys of its own and earlier time steps", "false"},
};

constexpr char kWanted[] =
    "queries, keys and values f32 [time, width] of one width, keys and values of one time, or all "
    "side by side f32 [time, 3 width], then the keys' lengths i32 [] if there are any";

// Whether queries, keys and values are one input.
bool AreSideBySide(const OpArguments& a) { return a.inputs.size() < 3; }

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const size_t sequences = AreSideBySide(a) ? 1 : 3;
  for (size_t i = 0; i < sequences; ++i) {
    const ValueType& input = a.inputs[i];
    if (!IsF32(input, 2) || input.dims.size() > 2) return ShapesDoNotFit(a.inputs, kWanted);
  }
  const bool fits = AreSideBySide(a)
                        ? a.inputs[0].dims[1] % 3 == 0
                        : a.inputs[1] == a.inputs[2] && a.inputs[0].dims[1] == a.inputs[1].dims[1];
  if (!fits || (a.inputs.size() > sequences && !AreLengths(a.inputs[sequences]))) {
    return ShapesDoNotFit(a.inputs, kWanted);
  }
  const int64_t width = AreSideBySide(a) ? a.inputs[0].dims[1] / 3 : a.inputs[0].dims[1];
  const int64_t heads = a.attributes.integer("heads");
  if (width % heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("heads: is ", heads, ", which does not divide the width (", width, ")"));
  }
  return OpResult{.output = WithWidth(a.inputs[0], width)};
}

int64_t KeysOf(const OpArguments& a) { return a.inputs[AreSideBySide(a) ? 0 : 1].dims[0]; }

OpCost Cost(const OpArguments& a) {
  const auto queries = static_cast<double>(a.inputs[0].dims[0]);
  const auto keys = static_cast<double>(KeysOf(a));
  const auto width = static_cast<double>(a.inputs[0].dims[1]) / (AreSideBySide(a) ? 3.0 : 1.0);
  // Scores and their product with the values; of causal ones half is computed. Backward computes four such products,
  // and the scores a second time.
  const double product =
      ProductFlops(queries, width, keys) / (a.attributes.flag("causal") ? 2.0 : 1.0);
  return {2.0 * product, 5.0 * product, 0.0};
}

int64_t Ids(const OpArguments& a, int) { return KeysOf(a) + 1; }

}  // namespace
}  // namespace attention

constinit const Op kAttention = {
    .name = "attention",
    .described_as = "dot_product_attention",
    .help =
        "for each query the mean of values, weighted by the products of query and keys; keys from "
        "a sample's length on "
        "are not seen",
    .attributes = attention::kAttributes,
    .inputs_min = 1,
    .inputs_max = 4,
    .infer = attention::Infer,
    .cost = attention::Cost,
    .ids = attention::Ids,
};

}  // namespace penstock::ops
