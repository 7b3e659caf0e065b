#include "inference/hugging_face_config.h"

#include <algorithm>
#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// The entry of the source, or `otherwise`.
template <typename Value>
OrderedJson EntryOr(const Json& source, const char* key, Value otherwise) {
  if (source.is_object() && source.contains(key)) return OrderedJson(source.at(key));
  return OrderedJson(otherwise);
}

// A context that was trained with may be shorter than what the model can read.
int64_t PositionsOf(const Json& source, int64_t context) {
  if (!source.is_object() || !source.contains("max_position_embeddings")) return context;
  const Json& positions = source.at("max_position_embeddings");
  return positions.is_number_integer() ? std::max(context, positions.get<int64_t>()) : context;
}

void AddSpecialTokens(const Json& source, OrderedJson& config) {
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    config[key] = EntryOr(source, key, nullptr);
  }
  config["torch_dtype"] = "float32";
}

OrderedJson GptConfigJson(const v1::ModelSpec& model, const Json& source) {
  const v1::GptSpec& gpt = model.gpt();
  OrderedJson config = {{"architectures", {"GPT2LMHeadModel"}},
                        {"model_type", "gpt2"},
                        {"vocab_size", gpt.vocabulary()},
                        {"n_positions", gpt.context()},
                        {"n_embd", gpt.width()},
                        {"n_layer", gpt.layers()},
                        {"n_head", gpt.heads()},
                        {"n_inner", nullptr},
                        {"activation_function", "gelu_new"},
                        {"embd_pdrop", gpt.dropout()},
                        {"attn_pdrop", EntryOr(source, "attn_pdrop", 0.0)},
                        {"resid_pdrop", gpt.dropout()},
                        {"layer_norm_epsilon", 1e-5},
                        {"tie_word_embeddings", gpt.tied_head() && !model.untie()}};
  AddSpecialTokens(source, config);
  return config;
}

struct LlamaClass {
  const char* model_type;
  const char* name;
  bool qkv_bias, qk_norm, window;
};
constexpr LlamaClass kLlamaClasses[] = {
    {"llama", "LlamaForCausalLM", false, false, false},
    {"mistral", "MistralForCausalLM", false, false, true},
    {"qwen2", "Qwen2ForCausalLM", true, false, true},
    {"qwen3", "Qwen3ForCausalLM", false, true, true},
};

// The class that has these options; among several that of the source, or else the first.
absl::StatusOr<LlamaClass> ClassOf(const v1::LlamaSpec& llama, const Json& source) {
  const LlamaClass* found = nullptr;
  for (const LlamaClass& candidate : kLlamaClasses) {
    const bool fits = candidate.qkv_bias == llama.qkv_bias() &&
                      candidate.qk_norm == llama.qk_norm() &&
                      (candidate.window || llama.window() == 0);
    if (!fits) continue;
    if (EntryOr(source, "model_type", "") == candidate.model_type) return candidate;
    if (found == nullptr) found = &candidate;
  }
  if (found != nullptr) return *found;
  return absl::UnimplementedError(
      "transformers has no class with both qkv_bias and qk_norm; use the checkpoint's own files, "
      "which are safetensors");
}

OrderedJson RopeJson(const v1::RopeSpec& rope) {
  if (rope.scaling() == "none") return nullptr;
  OrderedJson json = {{"rope_type", rope.scaling()}, {"factor", rope.factor()}};
  if (rope.scaling() == "llama3") {
    json["low_freq_factor"] = rope.low_frequency_factor();
    json["high_freq_factor"] = rope.high_frequency_factor();
    json["original_max_position_embeddings"] = rope.original_context();
  }
  return json;
}

void AddWindow(const LlamaClass& of, const v1::LlamaSpec& llama, OrderedJson& config) {
  if (!of.window) return;
  config["sliding_window"] =
      llama.window() == 0 ? OrderedJson(nullptr) : OrderedJson(llama.window());
  if (of.model_type == absl::string_view("mistral")) return;
  config["use_sliding_window"] = llama.window() > 0;
  config["max_window_layers"] = llama.window() > 0 ? 0 : llama.layers();
}

absl::StatusOr<OrderedJson> LlamaConfigJson(const v1::ModelSpec& model, const Json& source) {
  const v1::LlamaSpec& llama = model.llama();
  PENSTOCK_ASSIGN_OR_RETURN(const LlamaClass of, ClassOf(llama, source));
  OrderedJson config = {
      {"architectures", {of.name}},
      {"model_type", of.model_type},
      {"vocab_size", llama.vocabulary()},
      {"hidden_size", llama.width()},
      {"intermediate_size", llama.hidden()},
      {"num_hidden_layers", llama.layers()},
      {"num_attention_heads", llama.heads()},
      {"num_key_value_heads",
       llama.has_key_value_heads() ? llama.key_value_heads() : llama.heads()},
      {"head_dim", llama.has_head_size() ? llama.head_size() : llama.width() / llama.heads()},
      {"hidden_act", "silu"},
      {"max_position_embeddings", PositionsOf(source, llama.context())},
      {"rms_norm_eps", llama.epsilon()},
      {"rope_theta", llama.rope().base()},
      {"rope_scaling", RopeJson(llama.rope())},
      {"attention_bias", false},
      {"attention_dropout", 0.0},
      {"mlp_bias", false},
      {"tie_word_embeddings", llama.tied_head() && !model.untie()}};
  AddWindow(of, llama, config);
  AddSpecialTokens(source, config);
  return config;
}

// Names of the labels: those of the source if it has as many.
void AddLabels(const Json& source, int64_t classes, OrderedJson& config) {
  const bool has_names =
      source.is_object() && source.contains("id2label") && source.at("id2label").is_object() &&
      static_cast<int64_t>(source.at("id2label").size()) == classes && source.contains("label2id");
  if (has_names) {
    config["id2label"] = source.at("id2label");
    config["label2id"] = source.at("label2id");
    return;
  }
  for (int64_t label = 0; label < classes; ++label) {
    const std::string name = absl::StrCat("LABEL_", label);
    config["id2label"][absl::StrCat(label)] = name;
    config["label2id"][name] = label;
  }
}

OrderedJson BertConfigJson(const v1::ModelSpec& model, const Json& source) {
  const v1::BertSpec& bert = model.bert();
  const bool is_mlm = bert.head() == "mlm";
  OrderedJson config = {
      {"architectures", {is_mlm ? "BertForMaskedLM" : "BertForSequenceClassification"}},
      {"model_type", "bert"},
      {"vocab_size", bert.vocabulary()},
      {"hidden_size", bert.width()},
      {"num_hidden_layers", bert.layers()},
      {"num_attention_heads", bert.heads()},
      {"intermediate_size", bert.hidden()},
      {"hidden_act", "gelu"},
      {"hidden_dropout_prob", bert.dropout()},
      {"attention_probs_dropout_prob", EntryOr(source, "attention_probs_dropout_prob", 0.0)},
      {"max_position_embeddings", bert.positions()},
      {"type_vocab_size", bert.segments()},
      {"layer_norm_eps", bert.epsilon()},
      {"position_embedding_type", "absolute"},
      {"tie_word_embeddings", !(is_mlm && model.untie())}};
  if (!is_mlm) {
    AddLabels(source, bert.classes(), config);
    config["problem_type"] = "single_label_classification";
  }
  AddSpecialTokens(source, config);
  return config;
}

// What heads that were tied are called where `untie` gave them a copy (Untie, model/graph.h).
constexpr std::array<std::array<absl::string_view, 2>, 2> kUntiedHeads = {{
    {"head.wte.weight", "lm_head.weight"},
    {"cls.predictions.weight", "cls.predictions.decoder.weight"},
}};

}  // namespace

absl::StatusOr<OrderedJson> HuggingFaceConfig(const v1::ModelSpec& family, const Json& source) {
  if (family.has_gpt()) return GptConfigJson(family, source);
  if (family.has_llama()) return LlamaConfigJson(family, source);
  return BertConfigJson(family, source);
}

std::string HuggingFaceName(const v1::ModelSpec& family, absl::string_view parameter) {
  for (const auto& [untied, name] : kUntiedHeads) {
    if (parameter == untied) return std::string(name);
  }
  const bool is_below = family.has_gpt() && parameter != "lm_head.weight";
  return is_below ? absl::StrCat("transformer.", parameter) : std::string(parameter);
}

}  // namespace penstock
