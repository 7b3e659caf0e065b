#include "model/families/sequence_builder.h"

namespace penstock {

void SequenceBuilder::AddIds(std::string name, int64_t time, int64_t vocabulary) {
  graph_.AddPort({std::move(name), {DType::kI32, {time}}, vocabulary});
}

std::string SequenceBuilder::Add(std::string op, std::string name, Attributes attributes,
                                 std::vector<std::string> inputs) {
  graph_.Add({.name = name,
              .op = std::move(op),
              .attributes = std::move(attributes),
              .inputs = std::move(inputs)});
  return name;
}

std::string SequenceBuilder::AddDropout(std::string name, double probability, std::string input,
                                        Attributes attributes) {
  if (probability == 0.0) return input;
  attributes.Set("probability", probability);
  return Add("dropout", std::move(name), std::move(attributes), {std::move(input)});
}

absl::StatusOr<ModelGraph> SequenceBuilder::Finish(std::string logits, Attributes attributes) && {
  Add("cross_entropy", "loss", std::move(attributes), {std::move(logits), "targets"});
  return std::move(graph_).Build();
}

}  // namespace penstock
