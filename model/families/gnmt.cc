// GNMT. Parameters are named as in NVIDIA's code, but for those of the attention.
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/families/ranges.h"
#include "model/families/sequence_builder.h"
#include "model/families/sequences.h"

namespace penstock {
namespace {

constexpr double kGnmtBound = 0.1;  // of all first weights
constexpr int64_t kGnmtLayersMin =
    4;  // of each side one that reads both ways or attends, and one behind it

absl::Status Check(const GnmtConfig& c) {
  if (c.layers < kGnmtLayersMin || c.layers > kSequenceLayersMax || c.layers % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("layers: is ", c.layers, "; expected an even number from ", kGnmtLayersMin,
                     " to ", kSequenceLayersMax, ", of which half are the encoder's"));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckRange("hidden", c.hidden, kSequenceWidthMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("vocabulary", c.vocabulary, kSequenceVocabularyMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("source_time", c.source_time, kSequenceTimeMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("target_time", c.target_time, kSequenceTimeMax));
  PENSTOCK_RETURN_IF_ERROR(CheckProbability("dropout", c.dropout));
  return CheckProbability("label_smoothing", c.label_smoothing);
}

class GnmtBuilder {
 public:
  explicit GnmtBuilder(const GnmtConfig& config) : c_(config), model_("gnmt") {
    model_.AddIds("source", c_.source_time, c_.vocabulary);
    model_.graph().AddPort({kLengths, {DType::kI32, {}}});
    model_.AddIds("inputs", c_.target_time, c_.vocabulary);
    model_.AddIds("targets", c_.target_time, c_.vocabulary);
  }

  absl::StatusOr<ModelGraph> Build() && {
    AddEmbeddings();
    const std::string memory = AddEncoder();
    AddDecoder(memory);
    model_.BeginLayer("decoder.classifier");
    const std::string input = model_.graph().last();
    const std::string logits =
        model_.Add("linear", "decoder.classifier.classifier",
                   {{"outputs", c_.vocabulary}, {"bound", kGnmtBound}}, {input});
    return std::move(model_).Finish(
        logits, {{"ignore", kPaddingId}, {"label_smoothing", c_.label_smoothing}});
  }

 private:
  void AddEmbedding(const std::string& name, const std::string& port, std::string weights_of) {
    model_.graph().Add(
        {.name = name,
         .op = "embedding",
         .attributes = {{"vocabulary", c_.vocabulary}, {"width", c_.hidden}, {"bound", kGnmtBound}},
         .inputs = {port},
         .weights_of = std::move(weights_of)});
  }

  void AddEmbeddings() {
    model_.BeginLayer(kSourceEmbedding);
    AddEmbedding(kSourceEmbedding, "source", "");
    if (c_.shared_embedding) AddEmbedding(kTargetEmbedding, "inputs", kSourceEmbedding);
  }

  // An LSTM of what `inputs` hold side by side, with dropout; `residual` is added, unless it is empty. `lengths`: their
  // port, or none.
  std::string AddLstm(const std::string& name, std::vector<std::string> inputs,
                      const std::string& residual, Attributes attributes = {},
                      const std::string& lengths = "") {
    std::string input = inputs.front();
    if (inputs.size() > 1) input = model_.Add("concat", name + ".inputs", {}, std::move(inputs));
    input = model_.AddDropout(name + ".dropout", c_.dropout, std::move(input));
    attributes.Set("hidden", c_.hidden);
    attributes.Set("bound", kGnmtBound);
    std::vector<std::string> reads = {std::move(input)};
    if (!lengths.empty()) reads.push_back(lengths);
    model_.Add("lstm", name, std::move(attributes), std::move(reads));
    if (residual.empty()) return name;
    return model_.Add("add", name + ".sum", {}, {name, residual});
  }

  // The source as the attention reads it. What LSTMs make of padding has no reader, so that lengths change what is read
  // in reverse alone; the other LSTMs stop by them at the longest source of a microbatch.
  std::string AddEncoder() {
    std::string last = kSourceEmbedding;
    for (int64_t i = 0; i < c_.layers / 2; ++i) {
      const std::string name = absl::StrCat("encoder.rnn_layers.", i);
      model_.BeginLayer(name);
      last = AddLstm(name, {last}, i < 2 ? "" : last, {{"bidirectional", i == 0}}, kLengths);
    }
    return last;
  }

  void AddDecoder(const std::string& memory) {
    if (!c_.shared_embedding) {
      model_.BeginLayer(kTargetEmbedding);
      AddEmbedding(kTargetEmbedding, "inputs", "");
    }
    model_.BeginLayer("decoder.att_rnn");
    std::string last = AddLstm("decoder.att_rnn.rnn", {kTargetEmbedding}, "");
    model_.BeginLayer("decoder.att_rnn.attn");
    const std::string attended =
        model_.Add("additive_attention", "decoder.att_rnn.attn",
                   {{"units", c_.hidden}, {"bound", kGnmtBound}}, {last, memory, kLengths});
    for (int64_t i = 0; i + 1 < c_.layers / 2; ++i) {
      const std::string name = absl::StrCat("decoder.rnn_layers.", i);
      model_.BeginLayer(name);
      last = AddLstm(name, {last, attended}, i == 0 ? "" : last);
    }
  }

  static constexpr char kSourceEmbedding[] = "encoder.embedder";
  static constexpr char kTargetEmbedding[] = "decoder.embedder";
  static constexpr char kLengths[] = "source_lengths";

  const GnmtConfig c_;
  SequenceBuilder model_;
};

}  // namespace

absl::StatusOr<ModelGraph> BuildGnmt(const GnmtConfig& config) {
  PENSTOCK_RETURN_IF_ERROR(Check(config));
  return GnmtBuilder(config).Build();
}

}  // namespace penstock
