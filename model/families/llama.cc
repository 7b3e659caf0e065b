#include "model/families/llama.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "model/families/gpt.h"
#include "model/families/ranges.h"
#include "model/graph_builder.h"

namespace penstock {
namespace {

constexpr double kLlamaDeviation = 0.02;  // of matrices, at the start
constexpr char kTokenTable[] = "model.embed_tokens";
constexpr char kFinalNorm[] = "model.norm";

// What is absent follows from the rest.
LlamaConfig Complete(LlamaConfig config) {
  if (config.key_value_heads == 0) config.key_value_heads = config.heads;
  if (config.head_size == 0 && config.heads > 0) config.head_size = config.width / config.heads;
  return config;
}

absl::Status DoesNotDivide(absl::string_view field, int64_t value, absl::string_view of,
                           int64_t total) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": is ", value, ", which does not divide ", of, " (", total, ")"));
}

// Counted in doubles, because the exact count may not fit an integer.
absl::Status CheckParameters(const LlamaConfig& c) {
  const double width = static_cast<double>(c.width);
  const double heads = static_cast<double>(c.heads + c.key_value_heads);
  const double block = width * (2.0 * heads * static_cast<double>(c.head_size) +
                                3.0 * static_cast<double>(c.hidden));
  const double parameters =
      2.0 * static_cast<double>(c.vocabulary) * width + static_cast<double>(c.layers) * block;
  if (parameters <= static_cast<double>(kGptParametersMax)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "width: is %d, which makes about %.3g parameters; expected at most %.3g: make width, hidden, "
      "layers or vocabulary smaller",
      c.width, parameters, static_cast<double>(kGptParametersMax)));
}

absl::Status Check(const LlamaConfig& c) {
  PENSTOCK_RETURN_IF_ERROR(CheckRange("layers", c.layers, kGptLayersMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("width", c.width, kGptWidthMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("heads", c.heads, kGptWidthMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("key_value_heads", c.key_value_heads, c.heads));
  if (c.heads % c.key_value_heads != 0) {
    return DoesNotDivide("key_value_heads", c.key_value_heads, "heads", c.heads);
  }
  if (c.head_size == 0) return DoesNotDivide("heads", c.heads, "width", c.width);
  PENSTOCK_RETURN_IF_ERROR(CheckRange("head_size", c.head_size, kGptWidthMax));
  if (c.head_size % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("head_size: is ", c.head_size,
                     "; expected an even number, because rotary positions turn pairs"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckRange("hidden", c.hidden, kGptWidthMax * 8));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("context", c.context, kGptContextMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("vocabulary", c.vocabulary, kGptVocabularyMax));
  if (c.window < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("window: is ", c.window, "; expected 0, which is no window, or more"));
  }
  return CheckParameters(c);
}

class LlamaBuilder {
 public:
  explicit LlamaBuilder(const LlamaConfig& config) : c_(config), graph_(kLlamaArchitecture) {}

  absl::StatusOr<ModelGraph> Build() && {
    graph_.AddPort({"tokens", {DType::kI32, {c_.context}}, c_.vocabulary});
    graph_.AddPort({"targets", {DType::kI32, {c_.context}}, c_.vocabulary});
    graph_.BeginLayer("embedding");
    last_ =
        Add("embedding", kTokenTable,
            {{"vocabulary", c_.vocabulary}, {"width", c_.width}, {"deviation", kLlamaDeviation}},
            {"tokens"});
    for (int64_t block = 0; block < c_.layers; ++block) {
      const std::string prefix = absl::StrCat("model.layers.", block, ".");
      graph_.BeginLayer(absl::StrCat("layers.", block, ".attention"));
      AddAttention(prefix);
      graph_.BeginLayer(absl::StrCat("layers.", block, ".mlp"));
      AddMlp(prefix);
    }
    graph_.BeginLayer("final_norm");
    last_ = AddNorm(kFinalNorm, last_);
    graph_.BeginLayer("head");
    AddHead();
    return std::move(graph_).Build();
  }

 private:
  std::string Add(std::string op, std::string name, Attributes attributes,
                  std::vector<std::string> inputs) {
    graph_.Add({.name = name,
                .op = std::move(op),
                .attributes = std::move(attributes),
                .inputs = std::move(inputs)});
    return name;
  }

  std::string AddNorm(const std::string& name, const std::string& input) {
    return Add("rms_norm", name, {{"epsilon", c_.epsilon}}, {input});
  }

  std::string AddLinear(const std::string& name, const std::string& input, int64_t outputs,
                        bool bias = false) {
    return Add("linear", name,
               {{"outputs", outputs},
                {"bias", bias},
                {"init", std::string("normal")},
                {"deviation", kLlamaDeviation}},
               {input});
  }

  // RMSNorm over each head: [time, heads * head_size] as [time, heads, head_size] and back.
  std::string AddHeadNorm(const std::string& name, const std::string& input, int64_t heads) {
    const std::string split =
        Add("reshape", absl::StrCat(name, ".heads"),
            {{"dims", std::vector<int64_t>{c_.context, heads, c_.head_size}}}, {input});
    const std::string norm = AddNorm(name, split);
    return Add("reshape", absl::StrCat(name, ".joined"),
               {{"dims", std::vector<int64_t>{c_.context, heads * c_.head_size}}}, {norm});
  }

  std::string AddRope(const std::string& name, const std::string& input) {
    const RopeConfig& rope = c_.rope;
    Attributes attributes = {{"head_size", c_.head_size}, {"base", rope.base}};
    if (rope.scaling != "none") {
      attributes.Set("scaling", rope.scaling);
      attributes.Set("factor", rope.factor);
    }
    if (rope.scaling == "llama3") {
      attributes.Set("low_frequency_factor", rope.low_frequency_factor);
      attributes.Set("high_frequency_factor", rope.high_frequency_factor);
      attributes.Set("original_context", rope.original_context);
    }
    return Add("rope", name, std::move(attributes), {input});
  }

  // Queries or keys of `heads` heads, with their positions.
  std::string AddRotated(const std::string& prefix, const std::string& name,
                         const std::string& input, int64_t heads) {
    std::string value =
        AddLinear(absl::StrCat(prefix, name, "_proj"), input, heads * c_.head_size, c_.qkv_bias);
    if (c_.qk_norm) value = AddHeadNorm(absl::StrCat(prefix, name, "_norm"), value, heads);
    return AddRope(absl::StrCat(prefix, name, "_rope"), value);
  }

  void AddAttention(const std::string& block) {
    const std::string prefix = absl::StrCat(block, "self_attn.");
    const std::string norm = AddNorm(absl::StrCat(block, "input_layernorm"), last_);
    const std::string queries = AddRotated(prefix, "q", norm, c_.heads);
    const std::string keys = AddRotated(prefix, "k", norm, c_.key_value_heads);
    const std::string values = AddLinear(absl::StrCat(prefix, "v_proj"), norm,
                                         c_.key_value_heads * c_.head_size, c_.qkv_bias);
    const std::string mixed = Add("attention", absl::StrCat(prefix, "mixed"),
                                  {{"heads", c_.heads},
                                   {"causal", true},
                                   {"key_value_heads", c_.key_value_heads},
                                   {"window", c_.window}},
                                  {queries, keys, values});
    AddSum(absl::StrCat(block, "attention"),
           AddLinear(absl::StrCat(prefix, "o_proj"), mixed, c_.width));
  }

  void AddMlp(const std::string& block) {
    const std::string prefix = absl::StrCat(block, "mlp.");
    const std::string norm = AddNorm(absl::StrCat(block, "post_attention_layernorm"), last_);
    const std::string gate = AddLinear(absl::StrCat(prefix, "gate_proj"), norm, c_.hidden);
    const std::string up = AddLinear(absl::StrCat(prefix, "up_proj"), norm, c_.hidden);
    const std::string open = Add("silu", absl::StrCat(prefix, "open"), {}, {gate});
    const std::string gated = Add("mul", absl::StrCat(prefix, "gated"), {}, {open, up});
    AddSum(absl::StrCat(block, "mlp"),
           AddLinear(absl::StrCat(prefix, "down_proj"), gated, c_.width));
  }

  // The residual connection.
  void AddSum(std::string name, const std::string& branch) {
    last_ = Add("add", std::move(name), {}, {last_, branch});
  }

  // The fused output and loss of GPT, whose logits take the memory of their gradient.
  void AddHead() {
    graph_.Add({.name = "head",
                .op = "gpt_head",
                .attributes = {{"vocabulary", c_.vocabulary}, {"width", c_.width}},
                .inputs = {last_, "targets"},
                .parameter_prefix = "",
                .weights_of = c_.tied_head ? kTokenTable : ""});
  }

  const LlamaConfig& c_;
  GraphBuilder graph_;
  std::string last_;  // the residual stream
};

}  // namespace

absl::StatusOr<ModelGraph> BuildLlama(const LlamaConfig& config) {
  const LlamaConfig complete = Complete(config);
  PENSTOCK_RETURN_IF_ERROR(Check(complete));
  return LlamaBuilder(complete).Build();
}

}  // namespace penstock
