#include "job/hugging_face/read_config.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/put_path.h"
#include "base/status.h"
#include "checkpoint/strict_json.h"
#include "job/hugging_face/config_keys.h"
#include "job/keys/check_fields.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr char kDirectoryKey[] = "model.hugging_face.directory";
constexpr int64_t kConfigBytesMax = 4 << 20;
constexpr double kAnyDropout = 0.1;  // of GPT-2 and BERT where nothing is said
constexpr char kRandom[] = "random";

// What is read, and what the job asks for.
struct Source {
  ConfigKeys& keys;
  const v1::HuggingFaceSpec& asked;

  int64_t ContextOr(absl::string_view positions_key) const {
    return asked.has_context() ? asked.context() : keys.Integer(positions_key);
  }
  // One probability for all places that drop values, which the job may say instead.
  double DropoutOf(const std::vector<std::string>& places) const {
    if (asked.has_dropout()) return asked.dropout();
    const double first = keys.Number(places.front(), kAnyDropout);
    for (const std::string& place : places) {
      if (keys.Number(place, kAnyDropout) == first) continue;
      keys.Refuse(place, absl::StrCat("one probability is used in all places, and ", places.front(),
                                      " is another; set ", "model.hugging_face.dropout"));
    }
    return first;
  }
  bool Names(absl::string_view architecture) const {
    const std::vector<std::string> named = keys.Words("architectures");
    return std::any_of(named.begin(), named.end(), [&](const std::string& name) {
      return absl::StrContains(name, architecture);
    });
  }
  void RefuseHead(absl::string_view family) const {
    if (asked.head().empty() && !asked.has_classes()) return;
    keys.Take(absl::InvalidArgumentError(absl::StrCat(
        "model_type: is ", family,
        ", which predicts the next token; leave model.hugging_face.head and classes out")));
  }
};

void ReadGpt2(const Source& source, v1::ModelSpec& model) {
  ConfigKeys& keys = source.keys;
  source.RefuseHead("gpt2");
  v1::GptSpec& gpt = *model.mutable_gpt();
  gpt.set_layers(keys.Integer("n_layer"));
  gpt.set_width(keys.Integer("n_embd"));
  gpt.set_heads(keys.Integer("n_head"));
  gpt.set_vocabulary(keys.Integer("vocab_size"));
  gpt.set_context(source.ContextOr("n_positions"));
  gpt.set_dropout(source.DropoutOf({"resid_pdrop", "embd_pdrop"}));
  gpt.set_tied_head(keys.Flag("tie_word_embeddings", true));
  if (gpt.context() > keys.Integer("n_positions")) {
    keys.Refuse("n_positions", absl::StrCat("model.hugging_face.context is ", gpt.context(),
                                            "; expected at most as many"));
  }
  const int64_t inner = keys.Integer("n_inner", 0);
  if (inner != 0 && (inner % 4 != 0 || inner / 4 != gpt.width())) {
    keys.Refuse("n_inner", "expected 4 times n_embd, or null");
  }
  keys.ExpectWord("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  keys.ExpectNumber("layer_norm_epsilon", 1e-5, 1e-5);
  keys.ExpectFlag("scale_attn_weights", true, true);
  keys.ExpectFlag("scale_attn_by_inverse_layer_idx", false, false);
  keys.ExpectFlag("add_cross_attention", false, false);
}

// What the models of one architecture differ in, where config.json need not say it.
struct LlamaKind {
  const char* model_type;
  bool has_attention_bias;  // the key; of all four maps
  bool qkv_bias;            // always
  bool qk_norm;             // always
  int64_t head_size;        // 0: hidden_size / num_attention_heads
  int64_t key_value_heads;  // 0: num_attention_heads
  int64_t window;           // 0: none
  bool window_has_switch;   // use_sliding_window, which is off
};

constexpr LlamaKind kLlamaKinds[] = {
    {"llama", true, false, false, 0, 0, 0, false},
    {"mistral", false, false, false, 0, 8, 4096, false},
    {"qwen2", false, true, false, 0, 32, 4096, true},
    {"qwen3", true, false, true, 128, 32, 4096, true},
};

void ReadRope(ConfigKeys& config, v1::RopeSpec& rope) {
  const char* const place = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const Json none = Json::object();
  const Json* object = config.Object(place);
  ConfigKeys keys(object == nullptr ? none : *object, absl::StrCat(place, "."));
  rope.set_base(keys.Number("rope_theta", config.Number("rope_theta", 10000.0)));
  const char* const type_key = keys.has("rope_type") ? "rope_type" : "type";
  const std::string type = keys.Word(type_key, "default");
  if (type == "linear" || type == "llama3") {
    rope.set_scaling(type);
    if (!keys.has("factor")) keys.Refuse("factor", "expected a number");
    rope.set_factor(keys.Number("factor", 1.0));
  } else if (type != "default") {
    keys.Refuse(type_key, "supported are default, linear and llama3");
  }
  if (type == "llama3") {
    rope.set_low_frequency_factor(keys.Number("low_freq_factor", 1.0));
    rope.set_high_frequency_factor(keys.Number("high_freq_factor", 4.0));
    rope.set_original_context(keys.Integer("original_max_position_embeddings"));
  }
  for (ConfigKeys* where : {&keys, &config}) {
    where->ExpectNumber("partial_rotary_factor", 1.0, 1.0);
  }
  config.Take(keys.status());
}

// The window of all layers. Layers of two kinds are refused.
int64_t WindowOf(const LlamaKind& kind, ConfigKeys& keys) {
  const std::vector<std::string> types = keys.Words("layer_types");
  const auto is = [&](const char* type) { return std::count(types.begin(), types.end(), type); };
  const auto all = static_cast<int64_t>(types.size());
  const bool are_full = all > 0 && is("full_attention") == all;
  const bool are_sliding = all > 0 && is("sliding_attention") == all;
  if (all > 0 && !are_full && !are_sliding) {
    keys.Refuse("layer_types",
                "supported are layers that are all full_attention, or all sliding_attention");
  }
  const bool is_off = kind.window_has_switch && !keys.Flag("use_sliding_window", false);
  if (kind.window == 0 || are_full || is_off || keys.is_null("sliding_window")) return 0;
  if (kind.window_has_switch && !are_sliding && keys.Integer("max_window_layers", 28) > 0) {
    keys.Refuse("max_window_layers",
                "with use_sliding_window it makes layers of two kinds, which are not supported");
  }
  return keys.Integer("sliding_window", kind.window);
}

void ReadLlama(const LlamaKind& kind, const Source& source, v1::ModelSpec& model) {
  ConfigKeys& keys = source.keys;
  source.RefuseHead(kind.model_type);
  v1::LlamaSpec& llama = *model.mutable_llama();
  llama.set_layers(keys.Integer("num_hidden_layers"));
  llama.set_width(keys.Integer("hidden_size"));
  llama.set_heads(keys.Integer("num_attention_heads"));
  const int64_t key_value_heads = keys.Integer(
      "num_key_value_heads", kind.key_value_heads == 0 ? llama.heads() : kind.key_value_heads);
  if (key_value_heads != llama.heads()) llama.set_key_value_heads(key_value_heads);
  const int64_t head_size = keys.Integer("head_dim", kind.head_size);
  if (head_size != 0) llama.set_head_size(head_size);
  llama.set_hidden(keys.Integer("intermediate_size"));
  llama.set_context(source.ContextOr("max_position_embeddings"));
  llama.set_vocabulary(keys.Integer("vocab_size"));
  llama.set_epsilon(keys.Number("rms_norm_eps", 1e-6));
  ReadRope(keys, *llama.mutable_rope());
  llama.set_qkv_bias(kind.qkv_bias);
  llama.set_qk_norm(kind.qk_norm);
  llama.set_window(WindowOf(kind, keys));
  llama.set_tied_head(keys.Flag("tie_word_embeddings", false));
  keys.ExpectWord("hidden_act", {"silu", "swish"});
  if (kind.has_attention_bias) keys.ExpectFlag("attention_bias", false, false);
  keys.ExpectFlag("mlp_bias", false, false);
  keys.ExpectNumber("attention_dropout", 0.0, 0.0);
  if (source.asked.dropout() > 0.0) {
    keys.Take(absl::InvalidArgumentError(
        absl::StrCat("model_type: is ", kind.model_type,
                     ", whose models drop nothing; leave model.hugging_face.dropout out")));
  }
}

// The head that the job or config.json names.
std::string HeadOf(const Source& source) {
  if (!source.asked.head().empty()) return source.asked.head();
  return source.Names("ForSequenceClassification") ? "classification" : "mlm";
}

int64_t ClassesOf(const Source& source) {
  if (source.asked.has_classes()) return source.asked.classes();
  const Json* labels = source.keys.Object("id2label");
  const int64_t classes = labels == nullptr ? source.keys.Integer("num_labels", 2)
                                            : static_cast<int64_t>(labels->size());
  if (classes == 1) source.keys.Refuse("id2label", "one label is a regression; expected 2 or more");
  return classes;
}

void ReadBert(const Source& source, v1::ModelSpec& model) {
  ConfigKeys& keys = source.keys;
  v1::BertSpec& bert = *model.mutable_bert();
  bert.set_layers(keys.Integer("num_hidden_layers"));
  bert.set_width(keys.Integer("hidden_size"));
  bert.set_heads(keys.Integer("num_attention_heads"));
  bert.set_hidden(keys.Integer("intermediate_size"));
  bert.set_positions(keys.Integer("max_position_embeddings"));
  bert.set_context(source.ContextOr("max_position_embeddings"));
  bert.set_vocabulary(keys.Integer("vocab_size"));
  bert.set_segments(keys.Integer("type_vocab_size", 2));
  bert.set_epsilon(keys.Number("layer_norm_eps", 1e-12));
  bert.set_head(HeadOf(source));
  keys.ExpectWord("hidden_act", {"gelu"});
  keys.ExpectWord("position_embedding_type", {"absolute"});
  keys.ExpectFlag("is_decoder", false, false);
  keys.ExpectFlag("add_cross_attention", false, false);
  std::vector<std::string> drops = {"hidden_dropout_prob"};
  if (bert.head() == "classification") {
    bert.set_classes(ClassesOf(source));
    keys.ExpectWord("problem_type", {"single_label_classification"});
    if (keys.has("classifier_dropout")) drops.emplace_back("classifier_dropout");
  } else {
    keys.ExpectFlag("tie_word_embeddings", true, true);
  }
  bert.set_dropout(source.DropoutOf(drops));
}

// The parameters that may be sampled: those of a head that config.json does not name.
void NameSampled(const Source& source, v1::ModelSpec& model) {
  if (!model.has_bert()) return;
  v1::PretrainedSpec& pretrained = *model.mutable_pretrained();
  const bool is_mlm = model.bert().head() == "mlm";
  if (is_mlm && !source.Names("ForMaskedLM") && !source.Names("ForPreTraining")) {
    pretrained.add_sampled("cls.");
  }
  if (!is_mlm && !source.Names("ForSequenceClassification")) {
    pretrained.add_sampled("bert.pooler.");
    pretrained.add_sampled("classifier.");
  }
}

void ReadFamily(const Source& source, v1::ModelSpec& model) {
  const std::string type = source.keys.Word("model_type", "");
  if (type == "gpt2") return ReadGpt2(source, model);
  if (type == "bert") return ReadBert(source, model);
  for (const LlamaKind& kind : kLlamaKinds) {
    if (type == kind.model_type) return ReadLlama(kind, source, model);
  }
  source.keys.Refuse("model_type", "supported are gpt2, llama, mistral, qwen2, qwen3 and bert");
}

// `path`: where config.json was looked for, which is below `root` if `directory` is relative.
absl::Status NoConfig(const std::string& path, const std::string& root,
                      const std::string& directory) {
  const bool is_relative = !absl::StartsWith(directory, "/") && !root.empty();
  return absl::NotFoundError(absl::StrCat(
      kDirectoryKey, ": there is no file ", path,
      "; expected a directory that save_pretrained of transformers wrote, or that was fetched with "
      "all its files; name such a directory, or fetch the files that are missing",
      is_relative ? absl::StrCat(" (a relative path starts from ", root, ")") : ""));
}

absl::Status CheckAsked(const v1::HuggingFaceSpec& asked) {
  const std::string& init = asked.init();
  if (!init.empty() && init != "pretrained" && init != kRandom) {
    return InvalidKey("model.hugging_face.init",
                      absl::StrCat("is \"", init, "\"; expected pretrained or random"));
  }
  const std::string& head = asked.head();
  if (head.empty() || head == "mlm" || head == "classification") return absl::OkStatus();
  return InvalidKey("model.hugging_face.head",
                    absl::StrCat("is \"", head, "\"; expected mlm or classification"));
}

}  // namespace

absl::StatusOr<v1::ModelSpec> ModelOfHuggingFace(absl::string_view config,
                                                 const v1::HuggingFaceSpec& spec) {
  PENSTOCK_ASSIGN_OR_RETURN(const Json json, ParseStrictJson(config, JsonLimits()));
  if (!json.is_object()) return absl::InvalidArgumentError("is no JSON object");
  v1::ModelSpec model;
  ConfigKeys keys(json);
  const Source source = {keys, spec};
  keys.ExpectAbsent("quantization_config", "quantized weights are not supported");
  keys.ExpectAbsent("auto_map", "models that bring their own code are not supported");
  ReadFamily(source, model);
  if (spec.init() != kRandom) {
    model.mutable_pretrained()->set_directory(spec.directory());
    NameSampled(source, model);
  }
  PENSTOCK_RETURN_IF_ERROR(keys.status());
  return model;
}

absl::Status ReadHuggingFaceConfig(FileReader& files, const std::string& root,
                                   v1::ModelSpec& model) {
  if (!model.has_hugging_face()) return absl::OkStatus();
  const v1::HuggingFaceSpec& asked = model.hugging_face();
  PENSTOCK_RETURN_IF_ERROR(CheckAsked(asked));
  if (asked.directory().empty()) {
    return InvalidKey(kDirectoryKey,
                      "is missing; expected the name of a directory with a "
                      "config.json");
  }
  const bool is_put = IsPutPath(asked.directory());
  const std::string path = JoinPath(is_put ? asked.directory() : JoinPath(root, asked.directory()),
                                    kHuggingFaceConfigName);
  const absl::StatusOr<std::string> text = files.Read(path, kConfigBytesMax);
  if (absl::IsNotFound(text.status()) && !is_put) return NoConfig(path, root, asked.directory());
  if (!text.ok()) return Annotate(text.status(), kDirectoryKey);
  absl::StatusOr<v1::ModelSpec> read = ModelOfHuggingFace(*text, asked);
  if (!read.ok()) return Annotate(read.status(), absl::StrCat(kDirectoryKey, ": ", path));
  // Keys that go with any family, such as lora, stay.
  model.clear_hugging_face();
  model.MergeFrom(*read);
  return absl::OkStatus();
}

}  // namespace penstock
