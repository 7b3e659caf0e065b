// Sampler: samples the next token from logits.
//
// Thread-compatible; the same seed gives the same text on every machine with the same logits.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "base/random.h"

namespace penstock {

struct SamplerOptions {
  double temperature = 1.0;  // 0: always the likeliest token
  int64_t top_k = 0;         // the number of likeliest tokens to choose from; 0: all
  // Of those the likeliest that together have this probability, at least one (Holtzman et al., arXiv 1904.09751).
  double top_p = 1.0;
  uint64_t seed = 1;
};

class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);

  // The index of the sampled token. REQUIRES: `logits` is not empty.
  int32_t Draw(absl::Span<const float> logits);

 private:
  const SamplerOptions options_;
  RandomStream random_;
};

}  // namespace penstock
