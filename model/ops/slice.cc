// A range of one dimension: columns of the last one, or entries of the first, which are a sequence's time steps.
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace slice {
namespace {

constexpr absl::string_view kDimensions[] = {"last", "first"};

constexpr AttributeSpec kAttributes[] = {
    {.name = "from", .kind = AttributeKind::kInteger, .help = "the first entry", .min = 0},
    {"to", AttributeKind::kInteger, "the entry after the last"},
    {.name = "dimension",
     .kind = AttributeKind::kWord,
     .help = "the last one, of columns or channels, or the first one, of time steps",
     .otherwise = "last",
     .words = kDimensions,
     .use = AttributeUse::kKernelsAddedLater},
};

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const int64_t from = a.attributes.integer("from");
  const int64_t to = a.attributes.integer("to");
  if (from >= to) {
    return absl::InvalidArgumentError(
        absl::StrCat("to: is ", to, "; expected more than from (", from, ")"));
  }
  const bool is_first = a.attributes.word("dimension") == "first";
  OpResult result = {.output = a.inputs[0]};
  std::vector<int64_t>& dims = result.output.dims;
  if (!IsF32(a.inputs[0], 1) || (is_first ? dims.front() : dims.back()) < to) {
    return ShapesDoNotFit(a.inputs, is_first ? absl::StrCat("f32 [", to, " or more, ...]")
                                             : absl::StrCat("f32 [..., ", to, " or more]"));
  }
  (is_first ? dims.front() : dims.back()) = to - from;
  return result;
}

}  // namespace
}  // namespace slice

constinit const Op kSlice = {
    .name = "slice",
    .described_as = "slice",
    .help = "the entries of the last dimension, or of the first, from one to another",
    .attributes = slice::kAttributes,
    .infer = slice::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
