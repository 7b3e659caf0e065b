#include "model/families/bert.h"

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

constexpr double kBertDeviation = 0.02;  // of matrices, at the start
constexpr char kWordTable[] = "bert.embeddings.word_embeddings";

absl::Status Check(const BertConfig& c) {
  PENSTOCK_RETURN_IF_ERROR(CheckRange("layers", c.layers, kGptLayersMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("width", c.width, kGptWidthMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("heads", c.heads, c.width));
  if (c.width % c.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("heads: is ", c.heads, ", which does not divide width (", c.width, ")"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckRange("hidden", c.hidden, kGptWidthMax * 8));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("positions", c.positions, kGptContextMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("context", c.context, c.positions));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("vocabulary", c.vocabulary, kGptVocabularyMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("segments", c.segments, kGptVocabularyMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("classes", c.classes, kGptVocabularyMax));
  PENSTOCK_RETURN_IF_ERROR(CheckProbability("dropout", c.dropout));
  if (c.head == kMlmHead || c.head == kClassificationHead) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("head: is \"", c.head, "\"; expected mlm or classification"));
}

class BertBuilder {
 public:
  explicit BertBuilder(const BertConfig& config) : c_(config), graph_(kBertArchitecture) {}

  absl::StatusOr<ModelGraph> Build() && {
    AddPorts();
    AddEmbedding();
    for (int64_t block = 0; block < c_.layers; ++block) AddBlock(block);
    if (c_.head == kMlmHead) {
      AddMlmHead();
    } else {
      AddClassifier();
    }
    return std::move(graph_).Build();
  }

 private:
  void AddPorts() {
    graph_.AddPort({"tokens", {DType::kI32, {c_.context}}, c_.vocabulary});
    graph_.AddPort({"segments", {DType::kI32, {c_.context}}, c_.segments});
    graph_.AddPort({"lengths", {DType::kI32, {}}, c_.context + 1});
    if (c_.head == kMlmHead) {
      graph_.AddPort({"targets", {DType::kI32, {c_.context}}, c_.vocabulary});
    } else {
      graph_.AddPort({"label", {DType::kI32, {}}, c_.classes});
    }
  }

  std::string Add(std::string op, std::string name, Attributes attributes,
                  std::vector<std::string> inputs) {
    graph_.Add({.name = name,
                .op = std::move(op),
                .attributes = std::move(attributes),
                .inputs = std::move(inputs)});
    return name;
  }
  // Of what was added last.
  std::string Add(std::string op, std::string name, Attributes attributes = {}) {
    return Add(std::move(op), std::move(name), std::move(attributes), {graph_.last()});
  }

  static Attributes LinearTo(int64_t outputs) {
    return {{"outputs", outputs}, {"init", std::string("normal")}, {"deviation", kBertDeviation}};
  }
  Attributes NormAttributes() const { return {{"width", c_.width}, {"epsilon", c_.epsilon}}; }

  void AddDropout(std::string name) {
    if (c_.dropout > 0.0) Add("dropout", std::move(name), {{"probability", c_.dropout}});
  }

  void AddEmbedding() {
    graph_.BeginLayer("embedding");
    const auto table = [&](int64_t rows) {
      return Attributes{{"vocabulary", rows}, {"width", c_.width}, {"deviation", kBertDeviation}};
    };
    Add("embedding", kWordTable, table(c_.vocabulary), {"tokens"});
    const std::string placed = Add("positions", "bert.embeddings.position_embeddings",
                                   {{"context", c_.positions}, {"deviation", kBertDeviation}});
    const std::string segments =
        Add("embedding", "bert.embeddings.token_type_embeddings", table(c_.segments), {"segments"});
    Add("add", "bert.embeddings.sum", {}, {placed, segments});
    Add("layer_norm", "bert.embeddings.LayerNorm", NormAttributes());
    AddDropout("bert.embeddings.dropout");
  }

  void AddBlock(int64_t block) {
    const std::string prefix = absl::StrCat("bert.encoder.layer.", block, ".");
    graph_.BeginLayer(absl::StrCat("layer.", block, ".attention"));
    std::string input = graph_.last();
    std::vector<std::string> read;
    for (const char* name : {"query", "key", "value"}) {
      read.push_back(Add("linear", absl::StrCat(prefix, "attention.self.", name),
                         LinearTo(c_.width), {input}));
    }
    read.emplace_back("lengths");
    Add("attention", absl::StrCat(prefix, "attention.self.mixed"), {{"heads", c_.heads}}, read);
    AddOutput(absl::StrCat(prefix, "attention.output."), input);
    graph_.BeginLayer(absl::StrCat("layer.", block, ".mlp"));
    input = graph_.last();
    Add("linear", absl::StrCat(prefix, "intermediate.dense"), LinearTo(c_.hidden));
    Add("gelu", absl::StrCat(prefix, "intermediate.gelu"));
    AddOutput(absl::StrCat(prefix, "output."), input);
  }

  // The end of a branch: back to the width, dropout, the residual connection to `input`, the norm.
  void AddOutput(const std::string& prefix, const std::string& input) {
    Add("linear", absl::StrCat(prefix, "dense"), LinearTo(c_.width));
    AddDropout(absl::StrCat(prefix, "dropout"));
    Add("add", absl::StrCat(prefix, "sum"), {}, {input, graph_.last()});
    Add("layer_norm", absl::StrCat(prefix, "LayerNorm"), NormAttributes());
  }

  void AddMlmHead() {
    graph_.BeginLayer("transform");
    Add("linear", "cls.predictions.transform.dense", LinearTo(c_.width));
    Add("gelu", "cls.predictions.transform.gelu");
    Add("layer_norm", "cls.predictions.transform.LayerNorm", NormAttributes());
    graph_.BeginLayer("head");
    // The table of the tokens, and a bias of its own: cls.predictions.bias.
    graph_.Add({.name = "decoder",
                .op = "linear",
                .attributes = LinearTo(c_.vocabulary),
                .parameter_prefix = "cls.predictions.",
                .weights_of = kWordTable});
    Add("cross_entropy", "loss", {{"ignore", kUnmaskedTarget}}, {"decoder", "targets"});
  }

  void AddClassifier() {
    graph_.BeginLayer("pooler");
    Add("select", "bert.pooler.first");
    Add("linear", "bert.pooler.dense", LinearTo(c_.width));
    Add("tanh", "bert.pooler.tanh");
    AddDropout("bert.pooler.dropout");
    graph_.BeginLayer("head");
    Add("linear", "classifier", LinearTo(c_.classes));
    Add("cross_entropy", "loss", {}, {"classifier", "label"});
  }

  const BertConfig& c_;
  GraphBuilder graph_;
};

}  // namespace

absl::StatusOr<ModelGraph> BuildBert(const BertConfig& config) {
  PENSTOCK_RETURN_IF_ERROR(Check(config));
  return BertBuilder(config).Build();
}

}  // namespace penstock
