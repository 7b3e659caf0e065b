#include "compute/ops/rope.h"

#include <cmath>
#include <numbers>
#include <string>

namespace penstock::rope {
namespace {

// As transformers' _compute_llama3_parameters has it, rounding included: it divides numbers by a tensor as the tensor's
// reciprocal times the number.
float ScaledAsLlama3(const Attributes& a, float frequency) {
  const auto factor = static_cast<float>(a.number("factor"));
  const double low = a.number("low_frequency_factor");
  const double high = a.number("high_frequency_factor");
  const auto context = static_cast<double>(a.integer("original_context"));
  const float wavelength = 1.0f / frequency * static_cast<float>(2.0 * std::numbers::pi);
  if (wavelength < static_cast<float>(context / high)) return frequency;
  if (wavelength > static_cast<float>(context / low)) return frequency / factor;
  const float turns = 1.0f / wavelength * static_cast<float>(context);
  const float kept = (turns - static_cast<float>(low)) / static_cast<float>(high - low);
  return (1.0f - kept) * frequency / factor + kept * frequency;
}

}  // namespace

std::vector<float> Frequencies(const Attributes& attributes) {
  const int64_t size = attributes.integer("head_size");
  const double base = static_cast<float>(attributes.number("base"));
  const std::string scaling = attributes.has("scaling") ? attributes.word("scaling") : "";
  std::vector<float> frequencies;
  for (int64_t i = 0; i < size; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(size);
    float frequency = 1.0f / static_cast<float>(std::pow(base, exponent));
    if (scaling == "linear") frequency /= static_cast<float>(attributes.number("factor"));
    if (scaling == "llama3") frequency = ScaledAsLlama3(attributes, frequency);
    frequencies.push_back(frequency);
  }
  return frequencies;
}

void WriteTurns(absl::Span<const float> frequencies, int64_t position, float* turns) {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const float angle = static_cast<float>(position) * frequencies[i];
    turns[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
    turns[frequencies.size() + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
  }
}

}  // namespace penstock::rope
