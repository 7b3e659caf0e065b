// A row of a table for each id.
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
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  if (a.inputs[0].dtype != DType::kI32) return ShapesDoNotFit(a.inputs, "ids i32 [...]");
  const int64_t width = a.attributes.integer("width");
  OpResult result = {.output = {DType::kF32, a.inputs[0].dims},
                     .parameters = {Table("weight", a.attributes.integer("vocabulary"), width,
                                          a.attributes.number("deviation"))}};
  result.output.dims.push_back(width);
  return result;
}

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
    .infer = embedding::Infer,
    .cost = embedding::Cost,
};

}  // namespace penstock::ops
