// Scaled dot-product attention with several heads (Vaswani et al., arXiv 1706.03762), of which several may read the same
// keys and values (Ainslie et al., arXiv 2305.13245), all of them or the last few (Jiang et al., arXiv 2310.06825).
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace attention {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {"heads", AttributeKind::kInteger, "heads of attention; they must divide the width"},
    {"causal", AttributeKind::kFlag,
     "whether a query sees only the keys of its own and earlier time steps", "false"},
    {.name = "key_value_heads",
     .kind = AttributeKind::kInteger,
     .help = "heads of keys and values; they must divide heads, and heads that follow one another "
             "share one; 0: as many as heads",
     .otherwise = "0",
     .min = 0,
     .use = AttributeUse::kKernelsAddedLater},
    {.name = "window",
     .kind = AttributeKind::kInteger,
     .help = "with causal, how many keys a query sees at most, its own the last; 0: all",
     .otherwise = "0",
     .min = 0,
     .use = AttributeUse::kKernelsAddedLater},
};

// Whether queries, keys and values are one input.
bool AreSideBySide(const OpArguments& a) { return a.inputs.size() < 3; }

// Heads that read one head of keys and values. REQUIRES: CheckSettings.
int64_t HeadsOfGroup(const OpArguments& a) {
  const int64_t key_value_heads = a.attributes.integer("key_value_heads");
  return key_value_heads == 0 ? 1 : a.attributes.integer("heads") / key_value_heads;
}

int64_t KeysOf(const OpArguments& a) { return a.inputs[AreSideBySide(a) ? 0 : 1].dims[0]; }

// Of the queries. REQUIRES: the inputs fit.
int64_t WidthOf(const OpArguments& a) {
  const int64_t width = a.inputs[0].dims[1];
  const int64_t group = HeadsOfGroup(a);
  return AreSideBySide(a) ? width / (group + 2) * group : width;
}

// What follows queries, keys and values; null: nothing.
const ValueType* Last(const OpArguments& a) {
  return a.inputs.size() % 2 == 0 ? &a.inputs.back() : nullptr;
}

absl::Status CheckSettings(const Attributes& a) {
  const int64_t heads = a.integer("heads");
  const int64_t key_value_heads = a.integer("key_value_heads");
  if (key_value_heads != 0 && heads % key_value_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat("key_value_heads: is ", key_value_heads,
                                                   ", which does not divide heads (", heads, ")"));
  }
  if (a.integer("window") > 0 && !a.flag("causal")) {
    return absl::InvalidArgumentError(
        absl::StrCat("window: is ", a.integer("window"),
                     " without causal; set causal: true, or leave the window out"));
  }
  return absl::OkStatus();
}

// Of queries that are the keys' own time steps.
bool ArePositions(const OpArguments& a, const ValueType& type) {
  const int64_t time = a.inputs[0].dims[0];
  return a.attributes.flag("causal") && AreOfSteps(type, time) && KeysOf(a) == time;
}

bool Fit(const OpArguments& a) {
  const size_t sequences = AreSideBySide(a) ? 1 : 3;
  for (size_t i = 0; i < sequences; ++i) {
    if (!IsF32(a.inputs[i], 2) || a.inputs[i].dims.size() > 2) return false;
  }
  const ValueType* const last = Last(a);
  if (last != nullptr && !AreLengths(*last) && !ArePositions(a, *last)) return false;
  const int64_t group = HeadsOfGroup(a);
  const int64_t width = a.inputs[0].dims[1];
  return AreSideBySide(a) ? width % (group + 2) == 0
                          : a.inputs[1] == a.inputs[2] && width == a.inputs[1].dims[1] * group;
}

std::string Wanted(int64_t group) {
  const std::string of_queries = group == 1 ? "" : absl::StrCat(" / ", group);
  return absl::StrCat(
      "queries f32 [time, width], keys and values of one time f32 [time, width", of_queries,
      "], or all side by side f32 [time, ", group + 2, " width", of_queries,
      "], then the keys' lengths i32 [] if there are any, or with causal the positions "
      "of the time steps in their documents i32 [time]");
}

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  PENSTOCK_RETURN_IF_ERROR(CheckSettings(a.attributes));
  if (!Fit(a)) return ShapesDoNotFit(a.inputs, Wanted(HeadsOfGroup(a)));
  const int64_t width = WidthOf(a);
  const int64_t heads = a.attributes.integer("heads");
  if (width % heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("heads: is ", heads, ", which does not divide the width (", width, ")"));
  }
  return OpResult{.output = WithWidth(a.inputs[0], width)};
}

// Pairs of a query and a key that are computed: of causal ones half, and of that half the band of the window.
double PairsOf(const OpArguments& a) {
  const auto queries = static_cast<double>(a.inputs[0].dims[0]);
  const double all = queries * static_cast<double>(KeysOf(a));
  if (!a.attributes.flag("causal")) return all;
  const auto window = static_cast<double>(a.attributes.integer("window"));
  if (window == 0.0 || window >= queries) return all / 2.0;
  return std::min(all / 2.0, window * (queries - window / 2.0));
}

OpCost Cost(const OpArguments& a) {
  // Scores and their product with the values. Backward computes four such products, and the scores a second time. Heads
  // that share keys and values save none.
  const double product = ProductFlops(PairsOf(a), static_cast<double>(WidthOf(a)), 1.0);
  return {2.0 * product, 5.0 * product, 0.0, product};
}

int64_t Ids(const OpArguments& a, int) { return KeysOf(a) + 1; }

}  // namespace
}  // namespace attention

constinit const Op kAttention = {
    .name = "attention",
    .described_as = "dot_product_attention",
    .help =
        "for each query the mean of values, weighted by the products of query and keys; keys from "
        "a sample's length on are not seen, and where documents are given, by positions that are 0 "
        "where one begins, those of other documents",
    .attributes = attention::kAttributes,
    .inputs_min = 1,
    .inputs_max = 4,
    .infer = attention::Infer,
    .cost = attention::Cost,
    .ids = attention::Ids,
};

}  // namespace penstock::ops
