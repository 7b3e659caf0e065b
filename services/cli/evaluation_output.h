// What `penstock evaluate` prints.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "checkpoint/weight_choice.h"
#include "inference/evaluator.h"
#include "inference/translation.h"

namespace penstock {

// What was decoded.
struct DecodedPairs {
  TranslationFiles files;
  int64_t pairs = 0;
  int64_t left_out = 0;  // whose source is longer than the model reads
};

struct EvaluationReport {
  std::string checkpoint;  // its directory
  int64_t step = 0;
  WeightChoice weights = WeightChoice::kCurrent;
  std::string data;   // what was read
  std::string split;  // "validation"
  ModelScores scores;
  std::optional<double> bits_per_byte;  // of a text
  std::optional<DecodedPairs> decoded;
};

// A line for each figure.
std::string EvaluationText(const EvaluationReport& report);
// Keys are always there; what does not apply is null.
nlohmann::ordered_json EvaluationJson(const EvaluationReport& report);

}  // namespace penstock
