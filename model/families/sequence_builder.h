// SequenceBuilder: what the families of recurrent models share, over a GraphBuilder.
//
// Thread-compatible.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/graph_builder.h"

namespace penstock {

// The largest numbers, the same in all families.
inline constexpr int64_t kSequenceWidthMax = 65536;
inline constexpr int64_t kSequenceTimeMax = 65536;
inline constexpr int64_t kSequenceLayersMax = 64;
inline constexpr int64_t kSequenceVocabularyMax = 1 << 24;
inline constexpr int64_t kPaddingId = 0;

class SequenceBuilder {
 public:
  explicit SequenceBuilder(std::string architecture) : graph_(std::move(architecture)) {}

  GraphBuilder& graph() { return graph_; }
  void BeginLayer(std::string name) { graph_.BeginLayer(std::move(name)); }
  // The port `name`, i32 [time], of ids below `vocabulary`.
  void AddIds(std::string name, int64_t time, int64_t vocabulary);
  // A node that reads the one before, or `inputs`; its name.
  std::string Add(std::string op, std::string name, Attributes attributes = {},
                  std::vector<std::string> inputs = {});
  // Dropout of `input`, or `input` itself where nothing is dropped. `attributes`: of op dropout, beside the probability.
  std::string AddDropout(std::string name, double probability, std::string input,
                         Attributes attributes = {});
  // The loss of `logits` against the port `targets`.
  absl::StatusOr<ModelGraph> Finish(std::string logits, Attributes attributes) &&;

 private:
  GraphBuilder graph_;
};

}  // namespace penstock
