#include "job/run/agreement.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exact_text.h"
#include "model/documents.h"
#include "model/families/gpt.h"
#include "model/layer_order.h"
#include "model/lora.h"

namespace penstock {
namespace {

// What training.groups says of parameters; empty: nothing.
std::string GroupsOf(const ModelGraph& model) {
  std::string text;
  for (const LayerSpec& layer : model.layers) {
    for (const ParameterSpec& parameter : layer.parameters) {
      const bool is_usual =
          !parameter.frozen && parameter.rate_scale == 1.0 && !parameter.weight_decay.has_value();
      if (is_usual) continue;
      absl::StrAppend(&text, parameter.name, " ", parameter.frozen ? "frozen" : "", " ",
                      ExactText(parameter.rate_scale), " ",
                      ExactText(parameter.weight_decay.value_or(-1.0)), ";");
    }
  }
  return text;
}

std::string AdaptersOf(const ModelGraph& model) {
  std::string text;
  for (const LoraAdapter& adapter : FindAdapters(model)) {
    absl::StrAppend(&text, adapter.map, " ", ExactText(adapter.scale), ";");
  }
  return text;
}

// Of a GPT, whose other settings have been there since there are agreements.
std::string SmoothingOf(const ModelGraph& model) {
  const Attributes& loss = model.nodes.back().attributes;
  const bool smooths = model.architecture == kGptArchitecture && loss.has("label_smoothing") &&
                       loss.number("label_smoothing") > 0.0;
  return smooths ? ExactText(loss.number("label_smoothing")) : "";
}

std::string AverageOf(const ResolvedJob& job) {
  if (!job.average_decay.has_value()) return "";
  return absl::StrCat(ExactText(*job.average_decay), job.validates_average ? " validated" : "");
}

std::string CompressionOf(const MessageCompression& compression) {
  using Kind = MessageCompression::Kind;
  if (!compression.any()) return "";
  return compression.kind == Kind::kInt8 ? "int8"
                                         : absl::StrCat("topk ", ExactText(compression.keep));
}

std::string MeanSquareOf(const StalenessRules& rules) {
  return rules.adaptive_compensation ? ExactText(rules.mean_square_decay) : "";
}

// A key that came later stands there only if a job has it, so that workers of before agree about all others.
std::string LaterKey(absl::string_view name, const std::string& value) {
  return value.empty() ? "" : absl::StrCat(name, " ", value, "\n");
}

}  // namespace

std::string AgreementOf(const ResolvedJob& job) {
  const StalenessRules& staleness = job.staleness;
  const auto key = [](absl::string_view name, const auto& value) {
    return absl::StrCat(name, " ", value, "\n");
  };
  return absl::StrCat(
      key("rounding", static_cast<int>(job.rounding)), key("stash", static_cast<int>(job.stash)),
      key("repeatability", static_cast<int>(job.repeatability)),
      key("device_graphs", int{job.cuda_graphs}), key("order", static_cast<int>(job.order)),
      key("in_flight_factor", job.in_flight_factor),
      key("rescheduled_steps by fractional delay", staleness.rescheduled_steps),
      key("stage_momentum", staleness.stage_momentum.value_or(-1.0)),
      key("delay_compensation", staleness.delay_compensation),
      key("error_feedback", int{staleness.error_feedback}),
      key("motion_decay", staleness.momentum_average_decay),
      key("stage_layers", absl::StrJoin(job.stage_layers, ",")),
      key("layer_order", absl::StrJoin(LayerOrderOf(job.model), ",")),
      LaterKey("pretrained", job.pretrained), LaterKey("groups", GroupsOf(job.model)),
      LaterKey("adapters", AdaptersOf(job.model)),
      LaterKey("label_smoothing", SmoothingOf(job.model)), LaterKey("ema", AverageOf(job)),
      LaterKey("ignored_target",
               job.ignored_target.has_value() ? absl::StrCat(*job.ignored_target) : ""),
      LaterKey("separate_documents", FindPositionsPort(job.model) < 0 ? "" : "true"),
      LaterKey("mean_square_decay", MeanSquareOf(staleness)),
      LaterKey("stop_after", job.stop_after > 0 ? absl::StrCat(job.stop_after) : ""),
      LaterKey("precision", job.precision == Precision::kFp8 ? "fp8" : ""),
      LaterKey("compress", CompressionOf(job.compression)));
}

}  // namespace penstock
