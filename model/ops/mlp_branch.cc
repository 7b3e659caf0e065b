// x + dropout(projection(GELU(expansion(LayerNorm(x))))), GELU in its tanh form as GPT-2 has it: the other half of a
// block.
#include "base/status.h"
#include "model/ops/branch.h"
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace mlp_branch {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {"width", AttributeKind::kInteger, "the width of the residual stream"},
    {"hidden", AttributeKind::kInteger, "outputs of the expansion"},
    kBranchDropout,
    kBranchLayout,
    kExpansionDeviation,
    kProjectionDeviation,
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const int64_t hidden = a.attributes.integer("hidden");
  PENSTOCK_ASSIGN_OR_RETURN(OpResult result,
                            InferBranch(a, {"ln_2", "mlp.c_fc", "mlp.c_proj"}, hidden, hidden));
  PENSTOCK_RETURN_IF_ERROR(CheckKept("the expansion", a.inputs[0].dims[0], hidden));
  return result;
}

OpCost Cost(const OpArguments& a) {
  const auto time = static_cast<double>(a.inputs[0].dims[0]);
  const auto width = static_cast<double>(a.inputs[0].dims[1]);
  const double linear =
      2.0 * ProductFlops(time, width, static_cast<double>(a.attributes.integer("hidden")));
  return {linear, linear, linear};
}

}  // namespace
}  // namespace mlp_branch

constinit const Op kMlpBranch = {
    .name = "mlp_branch",
    .described_as = "mlp",
    .help = "x + dropout(projection(GELU(expansion(layer norm(x))))), as in GPT-2",
    .attributes = mlp_branch::kAttributes,
    .draws = true,
    .infer = mlp_branch::Infer,
    .cost = mlp_branch::Cost,
};

}  // namespace penstock::ops
