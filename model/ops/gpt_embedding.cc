// Token and position embedding: ids [time] -> dropout(wte[id] + wpe[time step]) [time, width].
#include "absl/strings/str_cat.h"
#include "model/ops/list.h"
#include "model/ops/parameters.h"

namespace penstock::ops {
namespace gpt_embedding {
namespace {

// Of the position embedding, as in GPT-2.
constexpr double kPositionDeviation = 0.01;
constexpr double kDeviation = 0.02;

constexpr AttributeSpec kAttributes[] = {
    {"vocabulary", AttributeKind::kInteger, "the number of tokens"},
    {"context", AttributeKind::kInteger, "the number of time steps with a position"},
    {"width", AttributeKind::kInteger, "the width of a token"},
    {"dropout", AttributeKind::kNumber, "the probability to drop a value in training", "0", 0.0,
     0.999999},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const int64_t width = a.attributes.integer("width");
  const int64_t context = a.attributes.integer("context");
  const ValueType& ids = a.inputs[0];
  if (ids.dtype != DType::kI32 || ids.dims.size() != 1 || ids.dims[0] > context) {
    return ShapesDoNotFit(a.inputs,
                          absl::StrCat("i32 [time] with at most ", context, " time steps"));
  }
  return OpResult{
      .output = {DType::kF32, {ids.dims[0], width}},
      .parameters = {Table("wte.weight", a.attributes.integer("vocabulary"), width, kDeviation),
                     Table("wpe.weight", context, width, kPositionDeviation)}};
}

int64_t Ids(const OpArguments& a, int) { return a.attributes.integer("vocabulary"); }

OpCost Cost(const OpArguments& a) {
  // Adds, no products: one per element forward and two backward (token and position).
  const auto elements = static_cast<double>(a.inputs[0].dims[0] * a.attributes.integer("width"));
  return {elements, 0.0, 2.0 * elements};
}

}  // namespace
}  // namespace gpt_embedding

constinit const Op kGptEmbedding = {
    .name = "gpt_embedding",
    .described_as = "embedding",
    .help = "the sum of a token's row and its position's row, then dropout",
    .attributes = gpt_embedding::kAttributes,
    .draws = true,
    .infer = gpt_embedding::Infer,
    .cost = gpt_embedding::Cost,
    .ids = gpt_embedding::Ids,
};

}  // namespace penstock::ops
