#include "model/families/gpt.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "model/families/ranges.h"
#include "model/graph_builder.h"

namespace penstock {
namespace {

constexpr double kDeviation = 0.02;  // of GPT-2's matrices, at the start
constexpr int64_t kExpansion = 4;    // of the MLP's hidden width

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
  PENSTOCK_RETURN_IF_ERROR(CheckProbability("dropout", config.dropout));
  PENSTOCK_RETURN_IF_ERROR(CheckProbability("label_smoothing", config.label_smoothing));
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

// Attributes of a block's two layers.
Attributes BranchAttributes(const GptConfig& c, absl::string_view size_name, int64_t size) {
  return {{"width", c.width},
          {std::string(size_name), size},
          {"dropout", c.dropout},
          {"deviation", kDeviation},
          {"projection_deviation", kDeviation / std::sqrt(2.0 * c.layers)}};
}

}  // namespace

absl::StatusOr<ModelGraph> BuildGpt(const GptConfig& config) {
  PENSTOCK_RETURN_IF_ERROR(Check(config));
  const GptConfig& c = config;
  GraphBuilder builder(kGptArchitecture);
  builder.AddPort({"tokens", {DType::kI32, {c.context}}, c.vocabulary});
  builder.AddPort({"targets", {DType::kI32, {c.context}}, c.vocabulary});
  builder.BeginLayer("embedding");
  builder.Add({.op = "gpt_embedding",
               .attributes = {{"vocabulary", c.vocabulary},
                              {"context", c.context},
                              {"width", c.width},
                              {"dropout", c.dropout}},
               .inputs = {"tokens"},
               .parameter_prefix = ""});
  for (int64_t block = 0; block < c.layers; ++block) {
    const std::string prefix = absl::StrCat("h.", block, ".");
    builder.BeginLayer(prefix + "attention");
    builder.Add({.op = "attention_branch",
                 .attributes = BranchAttributes(c, "heads", c.heads),
                 .parameter_prefix = prefix});
    builder.BeginLayer(prefix + "mlp");
    builder.Add({.op = "mlp_branch",
                 .attributes = BranchAttributes(c, "hidden", kExpansion * c.width),
                 .parameter_prefix = prefix});
  }
  builder.BeginLayer("final_norm");
  builder.Add(
      {.op = "layer_norm", .attributes = {{"width", c.width}}, .parameter_prefix = "ln_f."});
  builder.BeginLayer("head");
  builder.Add({.op = "gpt_head",
               .attributes = {{"vocabulary", c.vocabulary},
                              {"width", c.width},
                              {"weight", std::string(c.tied_head ? "tied" : "untied")},
                              {"label_smoothing", c.label_smoothing}},
               .inputs = {"final_norm", "targets"},
               .parameter_prefix = ""});
  absl::StatusOr<ModelGraph> model = std::move(builder).Build();
  if (model.ok() && c.untie) Untie(*model);
  return model;
}

}  // namespace penstock
