// BERT: a transformer that reads in both directions, with the norm behind each branch. Devlin et al., arXiv 1810.04805.
//
// Parameters are named and laid out as those of Hugging Face's BertForMaskedLM and BertForSequenceClassification.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "model/graph.h"

namespace penstock {

inline constexpr char kBertArchitecture[] = "bert";  // of its graph
inline constexpr char kMlmHead[] = "mlm";
inline constexpr char kClassificationHead[] = "classification";
// The target of a token that is not to be predicted.
inline constexpr int64_t kUnmaskedTarget = -100;

struct BertConfig {
  int64_t layers = 12;
  int64_t width = 768;
  int64_t heads = 12;
  int64_t hidden = 3072;    // of the MLP
  int64_t context = 0;      // of a sample
  int64_t positions = 512;  // rows of the table of positions, of which a sample uses the first
  int64_t vocabulary = 30522;
  int64_t segments = 2;
  double epsilon = 1e-12;
  double dropout = 0.1;  // of the embedding, the branches and what the classes are predicted from
  std::string head = kMlmHead;
  int64_t classes = 2;  // of a classification
  friend bool operator==(const BertConfig&, const BertConfig&) = default;
};

// The model: embedding, then per block attention and mlp, then transform and head (mlm) or pooler and head
// (classification): 2 * layers + 3 layers. Ports: `tokens` and `segments` i32 [context], `lengths` i32 [], and `targets`
// i32 [context] with kUnmaskedTarget where nothing is to be predicted, or `label` i32 []. Matrices begin normal with
// deviation 0.02. Attention drops no probabilities.
//
// Errors: InvalidArgument starting with the field, then its value and what is allowed.
absl::StatusOr<ModelGraph> BuildBert(const BertConfig& config);

}  // namespace penstock
