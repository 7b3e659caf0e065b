// RecordStatistics: what the values of a records directory look like, so that a person sees whether they are what was
// meant.
//
// Plain functions.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "data/record_files.h"

namespace penstock {

// More different values than this are not counted one by one.
inline constexpr size_t kCountedValuesMax = 1000;

// Of all values of a tensor in the records that were looked at.
struct TensorStatistics {
  bool known = false;  // of the types U8, I32 and F32
  double min = 0.0;
  double max = 0.0;
  double mean = 0.0;
  double deviation = 0.0;
  // Of a tensor with one whole number in a record, such as a label: how often each occurs; empty if there are too many.
  std::map<int64_t, int64_t> counts;
};

struct RecordStatistics {
  int64_t records = 0;                    // that were looked at
  std::vector<TensorStatistics> tensors;  // as in the index
};

// The numbers of values that the records of a sequence have. No more than a tenth of the records is longer than the
// percentile 90, and so on.
struct LengthStatistics {
  int64_t values = 0;  // of all records
  double mean = 0.0;
  int64_t shortest = 0;
  int64_t median = 0;
  int64_t percentile_90 = 0;
  int64_t percentile_99 = 0;
  int64_t longest = 0;
};
// Of all records, by sequence of the index.
std::vector<LengthStatistics> LengthsOf(const RecordFiles& records);

// Looks at `records_max` records, spread evenly over all, or at all if there are no more. `progress`: called now and
// then; its error ends the work; may be empty. Errors: those of RecordFiles::Read, that of `progress`.
absl::StatusOr<RecordStatistics> StatisticsOf(
    const RecordFiles& records, int64_t records_max,
    const std::function<absl::Status(int64_t done, int64_t all)>& progress);

}  // namespace penstock
