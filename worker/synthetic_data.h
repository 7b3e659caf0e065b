// SyntheticData: random values in the shapes of a model's ports, for profiles and benchmarks.
//
//   f32, bf16  uniform with mean 0 and deviation 1
//   u8         all values
//   i32        below the port's ids; 1 where it has none, which may be a length
//
// A pure function of the seed, the split, the port and the sample.
//
// Thread safety: immutable once made.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "model/graph.h"
#include "worker/data_source.h"

namespace penstock {

class SyntheticData : public DataSource {
 public:
  SyntheticData(std::vector<Port> ports, uint64_t seed, int64_t validation_samples = 0)
      : ports_(std::move(ports)), seed_(seed), validation_samples_(validation_samples) {}

  absl::Status Read(Split split, int64_t first_sample, int port,
                    absl::Span<std::byte> values) const override;
  int64_t validation_samples() const override { return validation_samples_; }

 private:
  const std::vector<Port> ports_;
  const uint64_t seed_;
  const int64_t validation_samples_;
};

}  // namespace penstock
