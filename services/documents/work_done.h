// WorkDone: how much a job has trained on, in the unit that people count it in.
//
// That is tokens if its model has them (ModelGraph::has_tokens), else samples: messages of other models have no tokens.
//
// Plain values.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "penstock/v1/cluster.pb.h"

namespace penstock {

inline constexpr absl::string_view kTokens = "tokens";
inline constexpr absl::string_view kSamples = "samples";

struct WorkDone {
  absl::string_view unit = kSamples;
  int64_t count = 0;
};

// `message`: a step (v1::StepDone) or a result (v1::JobResult).
template <typename Message>
WorkDone WorkDoneOf(const Message& message) {
  if (message.tokens() > 0) return {kTokens, message.tokens()};
  return {kSamples, message.samples()};
}

// In the same unit. 0 before the first cut.
inline double WorkPerSecond(const v1::JobResult& result) {
  return WorkDoneOf(result).unit == kTokens ? result.tokens_per_second()
                                            : result.samples_per_second();
}

}  // namespace penstock
