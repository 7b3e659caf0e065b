// Language models: an embedding, LSTMs, an output. Parameters are named as in the code of Merity et al.
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "model/families/ranges.h"
#include "model/families/sequence_builder.h"
#include "model/families/sequences.h"

namespace penstock {
namespace {

constexpr double kTableBound = 0.1;  // of the first rows of tables, and of an output of its own

// What the two families differ in.
struct LanguageModel {
  const char* family;
  int64_t context, vocabulary, embedding;
  std::vector<int64_t> hidden;  // of each LSTM
  std::vector<double> dropout;  // behind the embedding, and behind each LSTM
  const char* dropout_kind;     // of op dropout
  double row_dropout = 0.0;
  double weight_dropout = 0.0;
  bool tied, carried;
};

absl::Status CheckSizes(int64_t layers, int64_t hidden, int64_t embedding, int64_t context,
                        int64_t vocabulary) {
  PENSTOCK_RETURN_IF_ERROR(CheckRange("layers", layers, kSequenceLayersMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("hidden", hidden, kSequenceWidthMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("embedding", embedding, kSequenceWidthMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("context", context, kSequenceTimeMax));
  return CheckRange("vocabulary", vocabulary, kSequenceVocabularyMax);
}

absl::StatusOr<ModelGraph> BuildLanguageModel(const LanguageModel& m) {
  SequenceBuilder model(m.family);
  model.AddIds("tokens", m.context, m.vocabulary);
  model.AddIds("targets", m.context, m.vocabulary);
  const auto drop = [&](size_t place, std::string input) {
    return model.AddDropout(absl::StrCat("dropout.", place), m.dropout[place], std::move(input),
                            {{"kind", std::string(m.dropout_kind)}});
  };
  model.BeginLayer("encoder");
  std::string last = drop(0, model.Add("embedding", "encoder",
                                       {{"vocabulary", m.vocabulary},
                                        {"width", m.embedding},
                                        {"bound", kTableBound},
                                        {"row_drop", m.row_dropout}},
                                       {"tokens"}));
  for (size_t i = 0; i < m.hidden.size(); ++i) {
    const std::string name = absl::StrCat("rnns.", i);
    model.BeginLayer(name);
    last = drop(i + 1, model.Add("lstm", name,
                                 {{"hidden", m.hidden[i]},
                                  {"weight_drop", m.weight_dropout},
                                  {"carried", m.carried}},
                                 {std::move(last)}));
  }
  model.BeginLayer("decoder");
  // The first weights of a tied output are the table's, and its bias begins with zeros.
  Attributes output = {{"outputs", m.vocabulary}};
  if (m.tied) {
    output.Set("init", std::string("normal"));
  } else {
    output.Set("bound", kTableBound);
  }
  model.graph().Add({.name = "decoder",
                     .op = "linear",
                     .attributes = std::move(output),
                     .inputs = {std::move(last)},
                     .weights_of = m.tied ? "encoder" : ""});
  return std::move(model).Finish("decoder", {});
}

}  // namespace

absl::StatusOr<ModelGraph> BuildLstmLm(const LstmLmConfig& config) {
  const LstmLmConfig& c = config;
  const int64_t embedding = c.embedding == 0 ? c.hidden : c.embedding;
  PENSTOCK_RETURN_IF_ERROR(CheckSizes(c.layers, c.hidden, embedding, c.context, c.vocabulary));
  PENSTOCK_RETURN_IF_ERROR(CheckProbability("dropout", c.dropout));
  if (c.tied && embedding != c.hidden) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tied: is true, but the table is ", embedding, " wide and the LSTM before the output ",
        c.hidden, "; make embedding equal to hidden, or leave it out"));
  }
  const auto layers = static_cast<size_t>(c.layers);
  return BuildLanguageModel({.family = "lstm_lm",
                             .context = c.context,
                             .vocabulary = c.vocabulary,
                             .embedding = embedding,
                             .hidden = std::vector<int64_t>(layers, c.hidden),
                             .dropout = std::vector<double>(layers + 1, c.dropout),
                             .dropout_kind = "element",
                             .tied = c.tied,
                             .carried = c.carried});
}

absl::StatusOr<ModelGraph> BuildAwdLm(const AwdLmConfig& config) {
  const AwdLmConfig& c = config;
  PENSTOCK_RETURN_IF_ERROR(CheckSizes(c.layers, c.hidden, c.embedding, c.context, c.vocabulary));
  PENSTOCK_RETURN_IF_ERROR(CheckProbability("input_dropout", c.input_dropout));
  PENSTOCK_RETURN_IF_ERROR(CheckProbability("hidden_dropout", c.hidden_dropout));
  PENSTOCK_RETURN_IF_ERROR(CheckProbability("output_dropout", c.output_dropout));
  PENSTOCK_RETURN_IF_ERROR(CheckProbability("row_dropout", c.row_dropout));
  PENSTOCK_RETURN_IF_ERROR(CheckProbability("weight_dropout", c.weight_dropout));
  const auto layers = static_cast<size_t>(c.layers);
  LanguageModel model = {.family = "awd_lm",
                         .context = c.context,
                         .vocabulary = c.vocabulary,
                         .embedding = c.embedding,
                         .hidden = std::vector<int64_t>(layers, c.hidden),
                         .dropout = std::vector<double>(layers + 1, c.hidden_dropout),
                         .dropout_kind = "locked",
                         .row_dropout = c.row_dropout,
                         .weight_dropout = c.weight_dropout,
                         .tied = c.tied,
                         .carried = c.carried};
  model.dropout.front() = c.input_dropout;
  model.dropout.back() = c.output_dropout;
  if (c.tied) model.hidden.back() = c.embedding;
  return BuildLanguageModel(model);
}

}  // namespace penstock
