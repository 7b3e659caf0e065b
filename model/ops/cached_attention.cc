// Attention of some time steps over themselves and the steps before them, whose keys and values the node keeps: what is left of
// causal attention where a text is made token by token. Grouped queries: Ainslie et al., arXiv 2305.13245.
#include "absl/strings/str_cat.h"
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace cached_attention {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {"heads", AttributeKind::kInteger, "heads of attention; they must divide the width"},
    {"key_value_heads", AttributeKind::kInteger,
     "heads of keys and values; they must divide heads"},
    {"context", AttributeKind::kInteger, "the number of time steps that are kept"},
    {.name = "window",
     .help = "the number of last time steps that are seen; 0: all",
     .otherwise = "0",
     .min = 0},
};

constexpr char kWanted[] =
    "queries f32 [steps, heads * size], keys and values f32 [steps, key_value_heads * size], and "
    "which time steps they are, i32 [steps]";

bool IsSteps(const ValueType& type, int64_t steps) {
  return IsF32(type, 2) && type.dims.size() == 2 && type.dims[0] == steps;
}

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const int64_t heads = a.attributes.integer("heads");
  const int64_t groups = a.attributes.integer("key_value_heads");
  const int64_t steps = a.inputs[0].dims.empty() ? 0 : a.inputs[0].dims[0];
  const bool fits = IsSteps(a.inputs[0], steps) && IsSteps(a.inputs[1], steps) &&
                    a.inputs[2] == a.inputs[1] && a.inputs[3] == ValueType{DType::kI32, {steps}} &&
                    heads % groups == 0 && a.inputs[0].dims[1] % heads == 0 &&
                    a.inputs[1].dims[1] == a.inputs[0].dims[1] / heads * groups;
  if (!fits) return ShapesDoNotFit(a.inputs, kWanted);
  OpResult result = {.output = a.inputs[0]};
  for (const char* const name : {"keys", "values"}) {
    result.buffers.push_back({.name = name,
                              .shape = {a.attributes.integer("context"), a.inputs[1].dims[1]},
                              .kind = BufferSpec::Kind::kCarried,
                              .in_place = true});
  }
  return result;
}

OpCost Cost(const OpArguments& a) {
  const double product = ProductFlops(static_cast<double>(a.inputs[0].dims[0]),
                                      static_cast<double>(a.inputs[0].dims[1]),
                                      static_cast<double>(a.attributes.integer("context")));
  return {2.0 * product, 0.0, 0.0};
}

int64_t Ids(const OpArguments& a, int) { return a.attributes.integer("context"); }

}  // namespace
}  // namespace cached_attention

constinit const Op kCachedAttention = {
    .name = "cached_attention",
    .described_as = "cached_attention",
    .help = "attention of time steps over those before them, whose keys and values are kept",
    .attributes = cached_attention::kAttributes,
    .inputs_min = 4,
    .inputs_max = 4,
    .infer = cached_attention::Infer,
    .cost = cached_attention::Cost,
    .ids = cached_attention::Ids,
};

}  // namespace penstock::ops
