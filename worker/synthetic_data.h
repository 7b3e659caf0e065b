// SyntheticData: random values in the shapes of a model's ports, for profiles and benchmarks.
//
//   f32  uniform with mean 0 and deviation 1
//   u8   all values
//   i32  below the port's ids; 1 where it has none, which may be a length
//
// A pure function of the seed, the split, the port and the sample. Sequences that are carried on start afresh in the
// first step and never end.
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
  // `step_samples`: of a step, or of a batch of validation.
  SyntheticData(std::vector<Port> ports, int64_t step_samples, uint64_t seed,
                int64_t validation_samples = 0)
      : ports_(std::move(ports)),
        step_samples_(step_samples),
        seed_(seed),
        validation_samples_(validation_samples) {}

  absl::Status Read(Split split, int64_t first_sample, int port,
                    absl::Span<std::byte> values) const override;
  bool StartsAfresh(Split /*split*/, int64_t sample) const override {
    return sample < step_samples_;
  }
  int64_t validation_samples() const override { return validation_samples_; }

 private:
  const std::vector<Port> ports_;
  const int64_t step_samples_;
  const uint64_t seed_;
  const int64_t validation_samples_;
};

}  // namespace penstock
