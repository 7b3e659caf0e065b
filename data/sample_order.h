// SampleOrder: which record a sample is. Samples are numbered over the whole job: of N records, sample i is the one at
// place i % N of epoch i / N.
//
//   shuffled    every epoch has each record once, in an order of its own
//   sequential  every epoch has the records as they are stored
//   random      each sample is any record, so that an epoch may have one twice
//
// A pure function of seed and sample. A value; thread-compatible.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "data/permutation.h"

namespace penstock {

enum class OrderKind : uint8_t { kShuffled, kSequential, kRandom };

// By its word in job files: "shuffled", "sequential", "random". REQUIRES: it is one of them, or the order is not asked.
OrderKind OrderNamed(absl::string_view word);

class SampleOrder {
 public:
  // Samples are asked for in ascending order most of the time: the permutation of an epoch is made once.
  // REQUIRES: records > 0.
  SampleOrder(OrderKind kind, int64_t records, uint64_t seed);

  int64_t RecordOf(int64_t sample);

 private:
  OrderKind kind_;
  int64_t records_;
  uint64_t seed_;
  int64_t epoch_ = 0;
  Permutation of_epoch_;
};

}  // namespace penstock
