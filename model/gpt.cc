#include "model/gpt.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace penstock {
namespace {

using Init = ParameterSpec::Init;

// Initial deviations of GPT-2: of matrices, and of the position embedding.
constexpr double kDeviation = 0.02;
constexpr double kPositionDeviation = 0.01;
constexpr int64_t kExpansion = 4;  // of the MLP's hidden width

absl::Status CheckRange(absl::string_view field, int64_t value, int64_t max) {
  if (value >= 1 && value <= max) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(field, ": is ", value,
                                                 value == 0 ? " or missing" : "",
                                                 "; expected a whole number from 1 to ", max));
}

absl::Status Check(const GptConfig& config) {
  PENSTOCK_RETURN_IF_ERROR(CheckRange("layers", config.layers, kGptLayersMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("width", config.width, kGptWidthMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("heads", config.heads, config.width));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("context", config.context, kGptContextMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("vocabulary", config.vocabulary, kGptVocabularyMax));
  if (config.width % config.heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "heads: is ", config.heads, ", which does not divide width (", config.width, ")"));
  }
  if (!(config.dropout >= 0.0 && config.dropout < 1.0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dropout: is ", config.dropout, "; expected a number of at least 0 and below 1"));
  }
  // Counted in doubles, because the exact count may not fit an integer.
  const double width = static_cast<double>(config.width);
  const double parameters = (2.0 * config.vocabulary + config.context) * width +
                            config.layers * (4.0 + 2.0 * kExpansion) * width * width;
  if (parameters > static_cast<double>(kGptParametersMax)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "width: is %d, which makes about %.3g parameters; expected at most %.3g: make width, "
        "layers, context or vocabulary smaller",
        config.width, parameters, static_cast<double>(kGptParametersMax)));
  }
  return absl::OkStatus();
}

ParameterSpec Matrix(std::string name, int64_t rows, int64_t columns, double deviation) {
  return {std::move(name), {rows, columns}, Init::kNormal, deviation, /*decays=*/true};
}
ParameterSpec Bias(std::string name, int64_t size) {
  return {std::move(name), {size}, Init::kZeros, 0.0, /*decays=*/false};
}
ParameterSpec Gain(std::string name, int64_t size) {
  return {std::move(name), {size}, Init::kOnes, 0.0, /*decays=*/false};
}

LayerSpec Embedding(const GptConfig& c) {
  return {"embedding",
          EmbeddingLayer{c.vocabulary, c.context, c.width, c.dropout},
          {Matrix("wte.weight", c.vocabulary, c.width, kDeviation),
           Matrix("wpe.weight", c.context, c.width, kPositionDeviation)}};
}

LayerSpec Attention(const GptConfig& c, int64_t block, double residual_deviation) {
  const std::string prefix = absl::StrCat("h.", block, ".");
  return {prefix + "attention",
          AttentionLayer{c.width, c.heads, c.dropout},
          {Gain(prefix + "ln_1.weight", c.width), Bias(prefix + "ln_1.bias", c.width),
           Matrix(prefix + "attn.c_attn.weight", c.width, 3 * c.width, kDeviation),
           Bias(prefix + "attn.c_attn.bias", 3 * c.width),
           Matrix(prefix + "attn.c_proj.weight", c.width, c.width, residual_deviation),
           Bias(prefix + "attn.c_proj.bias", c.width)}};
}

LayerSpec Mlp(const GptConfig& c, int64_t block, double residual_deviation) {
  const std::string prefix = absl::StrCat("h.", block, ".");
  const int64_t hidden = kExpansion * c.width;
  return {prefix + "mlp",
          MlpLayer{c.width, hidden, c.dropout},
          {Gain(prefix + "ln_2.weight", c.width), Bias(prefix + "ln_2.bias", c.width),
           Matrix(prefix + "mlp.c_fc.weight", c.width, hidden, kDeviation),
           Bias(prefix + "mlp.c_fc.bias", hidden),
           Matrix(prefix + "mlp.c_proj.weight", hidden, c.width, residual_deviation),
           Bias(prefix + "mlp.c_proj.bias", c.width)}};
}

LayerSpec FinalNorm(const GptConfig& c) {
  return {
      "final_norm", NormLayer{c.width}, {Gain("ln_f.weight", c.width), Bias("ln_f.bias", c.width)}};
}

LayerSpec Head(const GptConfig& c) {
  return {
      "head",
      HeadLayer{c.vocabulary, c.width, c.tied_head},
      {Matrix(c.tied_head ? "wte.weight" : "lm_head.weight", c.vocabulary, c.width, kDeviation)}};
}

}  // namespace

absl::StatusOr<Chain> BuildGpt(const GptConfig& config) {
  PENSTOCK_RETURN_IF_ERROR(Check(config));
  Chain chain{"gpt", config.context, config.width, config.vocabulary, {}};
  const double residual_deviation = kDeviation / std::sqrt(2.0 * config.layers);
  chain.layers.push_back(Embedding(config));
  for (int64_t block = 0; block < config.layers; ++block) {
    chain.layers.push_back(Attention(config, block, residual_deviation));
    chain.layers.push_back(Mlp(config, block, residual_deviation));
  }
  chain.layers.push_back(FinalNorm(config));
  chain.layers.push_back(Head(config));
  return chain;
}

}  // namespace penstock
