// LSTM over time, as PyTorch's with one layer: parameters are named and laid out as there, the four gates of a matrix one
// after another (input, forget, cell, output). The state before the first step is zero, or with `carried` what the same
// sample of the step before ended with: truncated back-propagation through time, as no gradient flows into it.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/ops/list.h"
#include "model/ops/parameters.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace lstm {
namespace {

constexpr AttributeSpec kAttributes[] = {
    {"hidden", AttributeKind::kInteger, "the width of the state, and of the output of a direction"},
    {"reverse", AttributeKind::kFlag, "whether it reads from the last time step to the first",
     "false"},
    {"bidirectional", AttributeKind::kFlag,
     "whether a second one reads in reverse; its output comes behind that of the first", "false"},
    {.name = "forget_bias",
     .kind = AttributeKind::kNumber,
     .help = "is added to the bias of the forget gate in every pass, as in TensorFlow",
     .otherwise = "0",
     .min = -1e3,
     .max = 1e3},
    {"weight_drop", AttributeKind::kNumber,
     "the probability to drop an element of the recurrent matrix, for a microbatch, in training",
     "0", 0.0, 0.999999},
    {.name = "carried",
     .kind = AttributeKind::kFlag,
     .help = "whether a sample's sequence goes on where that of the same sample of the step before "
             "ended, with no gradient into it; needs `data.text.order: contiguous`",
     .otherwise = "false",
     .use = AttributeUse::kKernelsAddedLater},
    BoundSpec("of the first weights on both sides; 0: 1/sqrt(hidden), as in PyTorch"),
};

int64_t DirectionsOf(const Attributes& attributes) {
  return attributes.flag("bidirectional") ? 2 : 1;
}

void AddDirection(int64_t inputs, int64_t hidden, double bound, absl::string_view suffix,
                  std::vector<ParameterSpec>& parameters) {
  const auto add = [&](ParameterSpec parameter) {
    absl::StrAppend(&parameter.name, suffix);
    // PyTorch has the same bound for all of them, that of the recurrent matrix.
    parameters.push_back(OfMap(Uniform(std::move(parameter), bound), hidden));
  };
  add(Matrix("weight_ih_l0", {4 * hidden, inputs}, bound));
  add(Matrix("weight_hh_l0", {4 * hidden, hidden}, bound));
  add(Bias("bias_ih_l0", 4 * hidden));
  add(Bias("bias_hh_l0", 4 * hidden));
}

// What is carried is the state after a window's last step, from which the next window's first step goes on.
absl::Status CheckCarried(const OpArguments& a) {
  if (!a.attributes.flag("carried")) return absl::OkStatus();
  for (const char* other : {"reverse", "bidirectional"}) {
    if (!a.attributes.flag(other)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("carried: is true together with ", other,
                     ", which begins at the end of a window, where nothing is known of the next "
                     "one; leave one of them out"));
  }
  if (a.inputs.size() == 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "carried: is true, but the layer reads lengths: sequences that go on are windows of one "
      "text, which all have the full length; leave lengths or carried out");
}

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const ValueType& input = a.inputs[0];
  const bool has_lengths = a.inputs.size() > 1;
  if (!IsF32(input, 2) || input.dims.size() > 2 || (has_lengths && !AreLengths(a.inputs[1]))) {
    return ShapesDoNotFit(a.inputs, "f32 [time, width], and lengths i32 [] if there are any");
  }
  const bool is_bidirectional = a.attributes.flag("bidirectional");
  if (is_bidirectional && a.attributes.flag("reverse")) {
    return absl::InvalidArgumentError(
        "reverse: is true together with bidirectional, which reads both ways anyway");
  }
  PENSTOCK_RETURN_IF_ERROR(CheckCarried(a));
  const int64_t hidden = a.attributes.integer("hidden");
  const double given = a.attributes.number("bound");
  const double bound = given > 0.0 ? given : 1.0 / std::sqrt(static_cast<double>(hidden));
  OpResult result = {.output = WithWidth(input, DirectionsOf(a.attributes) * hidden)};
  AddDirection(input.dims[1], hidden, bound, "", result.parameters);
  if (is_bidirectional) {
    AddDirection(input.dims[1], hidden, bound, "_reverse", result.parameters);
  }
  if (a.attributes.flag("carried")) {
    for (const char* name : {"hidden_state", "cell_state"}) {
      result.buffers.push_back(
          {.name = name, .shape = {hidden}, .kind = BufferSpec::Kind::kCarried});
    }
  }
  return result;
}

OpCost Cost(const OpArguments& a) {
  const auto time = static_cast<double>(a.inputs[0].dims[0]);
  const auto width = static_cast<double>(a.inputs[0].dims[1]);
  const auto hidden = static_cast<double>(a.attributes.integer("hidden"));
  const double products = static_cast<double>(DirectionsOf(a.attributes)) *
                          ProductFlops(time, width + hidden, 4.0 * hidden);
  return {products, products, products};
}

int64_t Ids(const OpArguments& a, int) { return a.inputs[0].dims[0] + 1; }

}  // namespace
}  // namespace lstm

constinit const Op kLstm = {
    .name = "lstm",
    .described_as = "lstm",
    .help =
        "long short-term memory, a recurrent layer; time steps from a sample's length on give "
        "zeros",
    .attributes = lstm::kAttributes,
    .inputs_min = 1,
    .inputs_max = 2,
    .draws = true,
    .infer = lstm::Infer,
    .cost = lstm::Cost,
    .ids = lstm::Ids,
};

}  // namespace penstock::ops
