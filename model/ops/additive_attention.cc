// Additive attention: Bahdanau et al., arXiv 1409.0473. The score of a query and a step of the memory is
// v tanh(W_q query + W_m memory + bias) with v normalised to length g (Salimans and Kingma, arXiv 1602.07868), as in GNMT.
#include <cmath>

#include "base/status.h"
#include "model/ops/list.h"
#include "model/ops/parameters.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace additive_attention {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {"units", AttributeKind::kInteger, "the width in which queries and memory are added"},
    BoundSpec("of the first weights on both sides; 0: 1/sqrt(the inputs of each), as in PyTorch"),
};

bool IsSequence(const ValueType& type) { return IsF32(type, 2) && type.dims.size() == 2; }

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const bool has_lengths = a.inputs.size() > 2;
  if (!IsSequence(a.inputs[0]) || !IsSequence(a.inputs[1]) ||
      (has_lengths && !AreLengths(a.inputs[2]))) {
    return ShapesDoNotFit(a.inputs,
                          "queries f32 [time, width], a memory f32 [time, width], and the memory's "
                          "lengths i32 [] if there are any");
  }
  const int64_t units = a.attributes.integer("units");
  const int64_t queries = a.inputs[0].dims[0];
  const int64_t keys = a.inputs[1].dims[0];
  PENSTOCK_RETURN_IF_ERROR(CheckKept("weights", queries, keys));
  PENSTOCK_RETURN_IF_ERROR(CheckKept("mapped queries", queries, units));
  PENSTOCK_RETURN_IF_ERROR(CheckKept("a mapped memory", keys, units));
  const double given = a.attributes.number("bound");
  const auto bound = [&](int64_t inputs) {
    return given > 0.0 ? given : 1.0 / std::sqrt(static_cast<double>(inputs));
  };
  const auto matrix = [&](const char* name, int64_t inputs) {
    return OfMap(Uniform(Matrix(name, {units, inputs}, 0.0), bound(inputs)), inputs);
  };
  const int64_t query_width = a.inputs[0].dims[1];
  const int64_t memory_width = a.inputs[1].dims[1];
  // So that no score is beyond -1 and 1 at first.
  ParameterSpec length = Gain("g", 1);
  length.init = ParameterSpec::Init::kConstant;
  length.init_scale = 1.0 / std::sqrt(static_cast<double>(units));
  return OpResult{
      .output = WithWidth(a.inputs[0], memory_width),
      .parameters = {matrix("query.weight", query_width), matrix("memory.weight", memory_width),
                     Uniform(Bias("v", units), bound(units)), std::move(length),
                     Bias("bias", units)}};
}

OpCost Cost(const OpArguments& a) {
  const auto size = [&](int input, int dim) {
    return static_cast<double>(a.inputs[input].dims[dim]);
  };
  const auto units = static_cast<double>(a.attributes.integer("units"));
  const double maps =
      ProductFlops(size(0, 0), size(0, 1), units) + ProductFlops(size(1, 0), size(1, 1), units);
  const double scores = ProductFlops(size(0, 0), units, size(1, 0));
  const double mix = ProductFlops(size(0, 0), size(1, 0), size(1, 1));
  // Backward computes the scores' sums a second time, and the gradients of both sides and of v.
  return {maps + scores + mix, maps + 4.0 * scores + 2.0 * mix, maps, scores};
}

int64_t Ids(const OpArguments& a, int) { return a.inputs[1].dims[0] + 1; }

}  // namespace
}  // namespace additive_attention

constinit const Op kAdditiveAttention = {
    .name = "additive_attention",
    .described_as = "additive_attention",
    .help =
        "for each query the mean of a memory, weighted by scores of a small network; steps of the "
        "memory "
        "from a sample's length on do not count",
    .attributes = additive_attention::kAttributes,
    .inputs_min = 2,
    .inputs_max = 3,
    .infer = additive_attention::Infer,
    .cost = additive_attention::Cost,
    .ids = additive_attention::Ids,
};

}  // namespace penstock::ops
