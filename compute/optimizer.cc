#include "compute/optimizer.h"

#include <array>
#include <cmath>

namespace penstock {
namespace {

constexpr std::array<absl::string_view, 1> kSgdStates = {"momentum"};
constexpr std::array<absl::string_view, 2> kAdamWStates = {"exp_avg", "exp_avg_sq"};

}  // namespace

absl::Span<const absl::string_view> StateNamesOf(const SgdConfig& config) {
  return absl::MakeConstSpan(kSgdStates.data(), config.momentum != 0.0 ? 1 : 0);
}

absl::Span<const absl::string_view> StateNamesOf(const AdamWConfig&) { return kAdamWStates; }

SgdConstants ConstantsOf(const SgdConfig& config, double learning_rate) {
  return {.momentum = static_cast<float>(config.momentum),
          .weight_decay = static_cast<float>(config.weight_decay),
          .rate = static_cast<float>(learning_rate)};
}

// Bias corrections in double: 1 - beta^t loses most of its digits in float when t is small.
AdamWConstants ConstantsOf(const AdamWConfig& config, double learning_rate, int64_t update) {
  const auto t = static_cast<double>(update);
  return {
      .beta1 = static_cast<float>(config.beta1),
      .beta2 = static_cast<float>(config.beta2),
      .rest1 = static_cast<float>(1.0 - config.beta1),
      .rest2 = static_cast<float>(1.0 - config.beta2),
      .keep = static_cast<float>(1.0 - learning_rate * config.weight_decay),
      .rate = static_cast<float>(learning_rate / (1.0 - std::pow(config.beta1, t))),
      .root_scale = static_cast<float>(1.0 / std::sqrt(1.0 - std::pow(config.beta2, t))),
      .epsilon = static_cast<float>(config.epsilon),
  };
}

}  // namespace penstock
