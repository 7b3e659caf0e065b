// x + dropout(projection(causal attention(LayerNorm(x)))): half a block of GPT-2, as one op that is faster than its
// parts. Parameters are named and, where `layout` does not say otherwise, laid out as in Hugging Face's GPT-2: linear
// weights are [inputs, outputs].
#include "model/ops/branch.h"
#include "model/ops/list.h"

namespace penstock::ops {
namespace attention_branch {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {"width", AttributeKind::kInteger, "the width of the residual stream"},
    {"heads", AttributeKind::kInteger, "heads of attention; they must divide the width"},
    kBranchDropout,
    kBranchLayout,
    kExpansionDeviation,
    kProjectionDeviation,
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const int64_t width = a.attributes.integer("width");
  const int64_t heads = a.attributes.integer("heads");
  if (width % heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("heads: is ", heads, ", which does not divide width (", width, ")"));
  }
  return InferBranch(a, {"ln_1", "attn.c_attn", "attn.c_proj"}, 3 * width, width);
}

OpCost Cost(const OpArguments& a) {
  const auto time = static_cast<double>(a.inputs[0].dims[0]);
  const auto width = static_cast<double>(a.inputs[0].dims[1]);
  const double linear = ProductFlops(time, width, 3.0 * width) + ProductFlops(time, width, width);
  // Scores and their product with the values, of which the causal half is computed. Backward
  // computes four such products, and the scores a second time.
  const double product = ProductFlops(time, width, time) / 2.0;
  return {linear + 2.0 * product, linear + 5.0 * product, linear, product};
}

}  // namespace
}  // namespace attention_branch

constinit const Op kAttentionBranch = {
    .name = "attention_branch",
    .described_as = "attention",
    .help = "x + dropout(projection(causal attention(layer norm(x)))), as in GPT-2",
    .attributes = attention_branch::kAttributes,
    .draws = true,
    .infer = attention_branch::Infer,
    .cost = attention_branch::Cost,
};

}  // namespace penstock::ops
