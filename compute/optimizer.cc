#include "compute/optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace penstock {
namespace {

constexpr std::array<absl::string_view, 1> kSgdStates = {"momentum"};
constexpr std::array<absl::string_view, 2> kAdamWStates = {"exp_avg", "exp_avg_sq"};
// The first is AdamW's mean for parameters that take its steps; the second stays zero for the others.
constexpr std::array<absl::string_view, 2> kMuonStates = {"momentum", "exp_avg_sq"};

}  // namespace

absl::Span<const absl::string_view> StateNamesOf(const SgdConfig& config) {
  return absl::MakeConstSpan(kSgdStates.data(), config.momentum != 0.0 ? 1 : 0);
}

absl::Span<const absl::string_view> StateNamesOf(const AdamWConfig&) { return kAdamWStates; }
absl::Span<const absl::string_view> StateNamesOf(const NAdamWConfig&) { return kAdamWStates; }

absl::Span<const absl::string_view> StateNamesOf(const MuonConfig&) { return kMuonStates; }

absl::string_view KindOf(const OptimizerConfig& config) {
  struct Visitor {
    absl::string_view operator()(const SgdConfig& sgd) const {
      return sgd.momentum != 0.0 ? "sgd with momentum" : "sgd";
    }
    absl::string_view operator()(const AdamWConfig&) const { return "adamw"; }
    absl::string_view operator()(const NAdamWConfig&) const { return "nadamw"; }
    absl::string_view operator()(const MuonConfig&) const { return "muon"; }
  };
  return std::visit(Visitor(), config);
}

void SetMomentum(OptimizerConfig& config, double momentum) {
  struct Visitor {
    double momentum;
    void operator()(SgdConfig& sgd) const { sgd.momentum = momentum; }
    void operator()(AdamWConfig& adamw) const { adamw.beta1 = momentum; }
    void operator()(NAdamWConfig& nadamw) const { nadamw.beta1 = momentum; }
    void operator()(MuonConfig& muon) const { muon.momentum = momentum; }
  };
  std::visit(Visitor{momentum}, config);
}

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

MuonSlices::MuonSlices(absl::Span<const ParameterSlice> slices) {
  for (size_t s = 0; s < slices.size(); ++s) {
    if (slices[s].is_hidden_matrix()) {
      matrices_.push_back(s);
      continue;
    }
    others_.push_back(slices[s]);
    other_indices_.push_back(s);
  }
  other_scales_.resize(others_.size());
}

StepArguments MuonSlices::ArgumentsOfOthers(const StepArguments& whole) {
  for (size_t i = 0; i < other_indices_.size(); ++i) {
    other_scales_[i] = whole.gradient_scales[other_indices_[i]];
  }
  StepArguments of_others = whole;
  of_others.gradient_scales = other_scales_;
  return of_others;
}

double MuonRate(const ParameterSlice& matrix, double learning_rate) {
  constexpr double kAdamWScale = 0.2;  // the root mean square of AdamW's steps
  const auto side = static_cast<double>(std::max(matrix.rows, matrix.columns));
  return learning_rate * kAdamWScale * std::sqrt(side);
}

double MomentumProduct::Coefficient(int64_t update) const {
  const double exponent = static_cast<double>(update) * config_.momentum_decay;
  return config_.beta1 * (1.0 - 0.5 * std::pow(0.96, exponent));
}

// Beside 1 nothing this small shows, so from there on it is 0 and costs nothing.
constexpr double kProductMin = 1e-30;

double MomentumProduct::UpTo(int64_t update) {
  if (update < update_) {
    update_ = 0;
    product_ = 1.0;
  }
  while (update_ < update) {
    product_ *= Coefficient(++update_);
    if (product_ > kProductMin) continue;
    product_ = 0.0;
    update_ = update;
  }
  return product_;
}

NAdamWConstants ConstantsOf(const NAdamWConfig& config, MomentumProduct& product,
                            double learning_rate, int64_t update) {
  const double now = product.UpTo(update);
  const double coefficient = product.Coefficient(update);
  const double next_coefficient = product.Coefficient(update + 1);
  const double second = 1.0 - std::pow(config.beta2, static_cast<double>(update));
  return {
      .beta1 = static_cast<float>(config.beta1),
      .beta2 = static_cast<float>(config.beta2),
      .rest1 = static_cast<float>(1.0 - config.beta1),
      .rest2 = static_cast<float>(1.0 - config.beta2),
      .keep = static_cast<float>(1.0 - learning_rate * config.weight_decay),
      .mean_rate =
          static_cast<float>(learning_rate * next_coefficient / (1.0 - now * next_coefficient)),
      .gradient_rate = static_cast<float>(learning_rate * (1.0 - coefficient) / (1.0 - now)),
      .root_scale = static_cast<float>(1.0 / std::sqrt(second)),
      .epsilon = static_cast<float>(config.epsilon),
  };
}

}  // namespace penstock
