// Mixture: which of several sources a sample is from, so that each gives its share of every stretch of samples.
//
// The sources of 4,096 samples are laid down in advance, each time that of which the most is missing, and repeat. So where a
// sample is from, and how many of its source came before it, takes a look into a table: a run goes on anywhere.
//
// A pure function of the weights and the sample. A value; thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace penstock {

class Mixture {
 public:
  struct Place {
    int source = 0;
    int64_t sample = 0;  // of those of this source
  };

  // Errors: InvalidArgument (a weight that is not above 0, or so small that its source gives no sample of 4,096).
  static absl::StatusOr<Mixture> Create(absl::Span<const double> weights);

  Place PlaceOf(int64_t sample) const;
  // How many of the samples below `end` are of `source`.
  int64_t SamplesBelow(int64_t end, int source) const;

 private:
  static constexpr int64_t kPeriod = 4096;

  Mixture() = default;

  std::vector<Place> places_;        // by sample of a period
  std::vector<int64_t> per_period_;  // by source
};

}  // namespace penstock
