// Rotary positions (Su et al., arXiv 2104.09864), as Llama has them in Hugging Face's files: number i of a head and number
// i + head_size / 2 are a point that turns about 0, the further the later its time step.
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace rope {
namespace {

constexpr absl::string_view kScalings[] = {"linear", "llama3"};

constexpr AttributeSpec kAttributes[] = {
    {.name = "head_size",
     .kind = AttributeKind::kInteger,
     .help = "how many numbers a head has: an even number that divides the width",
     .min = 2},
    {"base", AttributeKind::kNumber,
     "pair i of a head turns by base^(-2 i / head_size) from one position to the next", "10000",
     1.0, 1e12},
    {.name = "scaling",
     .kind = AttributeKind::kWord,
     .help = "for contexts longer than those of the first training: linear divides all angles by "
             "factor, llama3 those of slow pairs, as Llama 3.1 does",
     .otherwise = kNoDefault,
     .words = kScalings},
    {"factor", AttributeKind::kNumber, "what linear and llama3 divide angles by", kNoDefault, 1.0,
     1e6},
    {"low_frequency_factor", AttributeKind::kNumber,
     "of llama3: the angles of pairs that turn round less often than this in original_context are "
     "divided",
     kNoDefault, 1e-6, 1e6},
    {"high_frequency_factor", AttributeKind::kNumber,
     "of llama3: those of pairs that turn round more often than this are left; between the two "
     "the change is gradual",
     kNoDefault, 1e-6, 1e6},
    {"original_context", AttributeKind::kInteger, "of llama3: the time steps of the first training",
     kNoDefault},
};

// What a scaling needs, and no other may have.
struct Setting {
  absl::string_view name;
  bool is_of_linear;
};
constexpr Setting kSettings[] = {{"factor", true},
                                 {"low_frequency_factor", false},
                                 {"high_frequency_factor", false},
                                 {"original_context", false}};

absl::Status CheckScaling(const Attributes& a) {
  const std::string scaling = a.has("scaling") ? a.word("scaling") : "";
  for (const Setting& setting : kSettings) {
    const bool is_needed = scaling == "llama3" || (scaling == "linear" && setting.is_of_linear);
    if (a.has(setting.name) == is_needed) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        setting.name,
        is_needed ? absl::StrCat(": missing; scaling: ", scaling, " needs it")
        : scaling.empty()
            ? ": does nothing without scaling; set it, or leave this out"
            : absl::StrCat(": does nothing with scaling: ", scaling, "; leave it out")));
  }
  if (scaling != "llama3") return absl::OkStatus();
  const double low = a.number("low_frequency_factor");
  const double high = a.number("high_frequency_factor");
  if (high > low) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "high_frequency_factor: is ", high, "; expected more than low_frequency_factor (", low, ")"));
}

absl::StatusOr<OpResult> Infer(const OpArguments& a) {
  const int64_t head_size = a.attributes.integer("head_size");
  if (head_size % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("head_size: is ", head_size, "; expected an even number"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckScaling(a.attributes));
  const ValueType& input = a.inputs[0];
  const bool fits =
      IsF32(input, 2) && input.dims.size() == 2 && input.dims[1] % head_size == 0 &&
      (a.inputs.size() == 1 || a.inputs[1] == ValueType{DType::kI32, {input.dims[0]}});
  if (!fits) {
    return ShapesDoNotFit(
        a.inputs, absl::StrCat("f32 [time, width] with a width that is a multiple of ", head_size,
                               ", then positions i32 [time] if they do not count from 0"));
  }
  return OpResult{.output = input};
}

}  // namespace
}  // namespace rope

constinit const Op kRope = {
    .name = "rope",
    .described_as = "rope",
    .help =
        "rotary positions: number i of a head and number i + head_size / 2 turn about 0 together, "
        "the further the later their time step; positions that are not 0, 1, 2 and so on come as "
        "a second input, i32 [time]",
    .attributes = rope::kAttributes,
    .inputs_max = 2,
    .infer = rope::Infer,
    .cost = NoProducts,
};

}  // namespace penstock::ops
