#include "base/status.h"
#include "model/families/ranges.h"
#include "model/families/sequence_builder.h"
#include "model/families/sequences.h"

namespace penstock {
namespace {

absl::Status Check(const S2vtConfig& c) {
  PENSTOCK_RETURN_IF_ERROR(CheckRange("vocabulary", c.vocabulary, kSequenceVocabularyMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("frames", c.frames, kSequenceTimeMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("words", c.words, kSequenceTimeMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("features", c.features, kSequenceWidthMax));
  PENSTOCK_RETURN_IF_ERROR(CheckRange("hidden", c.hidden, kSequenceWidthMax));
  return CheckRange("embedding", c.embedding, kSequenceWidthMax);
}

}  // namespace

absl::StatusOr<ModelGraph> BuildS2vt(const S2vtConfig& config) {
  PENSTOCK_RETURN_IF_ERROR(Check(config));
  const S2vtConfig& c = config;
  SequenceBuilder model("s2vt");
  model.graph().AddPort({"frames", {DType::kF32, {c.frames, c.features}}});
  model.AddIds("inputs", c.words, c.vocabulary);
  model.AddIds("targets", c.words, c.vocabulary);

  // Zeros come in, and frames' steps go, next to the LSTMs: what crosses a cut has neither.
  model.BeginLayer("frame_embedding");
  model.Add("linear", "frame_embedding", {{"outputs", c.embedding}}, {"frames"});
  model.BeginLayer("lstm1");
  model.Add("pad", "lstm1.frames", {{"behind", c.words}});
  model.Add("lstm", "lstm1", {{"hidden", c.hidden}});
  model.BeginLayer("word_embedding");
  model.Add("embedding", "word_embedding", {{"vocabulary", c.vocabulary}, {"width", c.embedding}},
            {"inputs"});
  model.BeginLayer("lstm2");
  model.Add("pad", "lstm2.words", {{"before", c.frames}});
  model.Add("concat", "lstm2.inputs", {}, {"lstm1", "lstm2.words"});
  model.Add("lstm", "lstm2", {{"hidden", c.hidden}});
  model.Add("slice", "lstm2.caption",
            {{"from", c.frames}, {"to", c.frames + c.words}, {"dimension", std::string("first")}});
  model.BeginLayer("output");
  model.Add("linear", "output", {{"outputs", c.vocabulary}});
  return std::move(model).Finish("output", {{"ignore", kPaddingId}});
}

}  // namespace penstock
