// Functions of each element by itself.
#include "model/ops/list.h"
#include "model/ops/shapes.h"

namespace penstock::ops {
namespace activation {
namespace {

constexpr absl::string_view kForms[] = {"tanh", "erf"};

constexpr AttributeSpec kGeluAttributes[] = {
    {.name = "approximate",
     .kind = AttributeKind::kWord,
     .help = "tanh, as GPT-2 has it, or erf, the exact form",
     .otherwise = "erf",
     .words = kForms},
};

constexpr Op Elementwise(absl::string_view name, absl::string_view help,
                         absl::Span<const AttributeSpec> attributes = {}) {
  return {.name = name,
          .described_as = name,
          .help = help,
          .attributes = attributes,
          .infer = InferElementwise,
          .cost = NoProducts};
}

}  // namespace
}  // namespace activation

constinit const Op kRelu = activation::Elementwise("relu", "max(0, x)");
// Hendrycks and Gimpel, arXiv 1606.08415.
constinit const Op kGelu =
    activation::Elementwise("gelu", "x times the normal distribution's probability to be below x",
                            activation::kGeluAttributes);
constinit const Op kSilu = activation::Elementwise("silu", "x sigmoid(x)");
constinit const Op kTanh = activation::Elementwise("tanh", "tanh(x)");
constinit const Op kSigmoid = activation::Elementwise("sigmoid", "1 / (1 + exp(-x))");

}  // namespace penstock::ops
