// A row of a table for each id. Dropping whole rows: Merity et al., arXiv 1708.02182, section 4.3.
#include "model/ops/list.h"
#include "model/ops/parameters.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace embedding {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {"vocabulary", AttributeKind::kInteger, "the number of ids"},
    {"width", AttributeKind::kInteger, "the width of a row"},
    kTableDeviation,
    BoundSpec(
        "of the first rows on both sides, drawn evenly; 0: they are normal, with the deviation"),
    {.name = "row_drop",
     .kind = AttributeKind::kNumber,
     .help =
         "the probability to drop a row of the table, wherever a microbatch reads it, in training",
     .otherwise = "0",
     .min = 0.0,
     .max = 0.999999,
     .use = AttributeUse::kKernelsAddedLater},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  if (a.inputs[0].dtype != DType::kI32) return ShapesDoNotFit(a.inputs, "ids i32 [...]");
  const int64_t width = a.attributes.integer("width");
  const double bound = a.attributes.number("bound");
  ParameterSpec table =
      Table("weight", a.attributes.integer("vocabulary"), width, a.attributes.number("deviation"));
  OpResult result = {
      .output = {DType::kF32, a.inputs[0].dims},
      .parameters = {bound > 0.0 ? Uniform(std::move(table), bound) : std::move(table)}};
  result.output.dims.push_back(width);
  return result;
}

int64_t Ids(const OpArguments& a, int) { return a.attributes.integer("vocabulary"); }

OpCost Cost(const OpArguments& a) {
  // Adds, no products: those of the gradients.
  return {0.0, 0.0, static_cast<double>(a.inputs[0].elements() * a.attributes.integer("width"))};
}

}  // namespace
}  // namespace embedding

constinit const Op kEmbedding = {
    .name = "embedding",
    .described_as = "embedding",
    .help = "a row of a table for each id",
    .attributes = embedding::kAttributes,
    .draws = true,
    .infer = embedding::Infer,
    .cost = embedding::Cost,
    .ids = embedding::Ids,
};

}  // namespace penstock::ops
