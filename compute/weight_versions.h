// WeightVersions: the flat arrays of a stage's weights, one for each live version.
//
// Versions are numbered by the updates seen. Advance either renumbers the newest array (its weights
// will be overwritten in place) or takes another array for the next version and keeps the replaced one
// readable. Arrays of versions that died are reused, so the number of arrays is the number of versions
// that were ever live together.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compute/buffer_pool.h"

namespace penstock {

class WeightVersions {
 public:
  struct Version {
    int64_t number = 0;
    Buffer f32;
    Buffer bf16;  // mirror of f32, empty unless asked for

    float* weights() const { return static_cast<float*>(f32.data()); }
    uint16_t* mirror() const { return static_cast<uint16_t*>(bf16.data()); }
  };

  WeightVersions() = default;
  // One live version, number 0, uninitialised. Errors: ResourceExhausted.
  static absl::StatusOr<WeightVersions> Create(BufferPool& pool, int64_t count, bool with_mirror,
                                               int64_t versions_max);

  const Version& current() const { return live_.back(); }
  const Version* Find(int64_t number) const;  // null if not live
  int64_t live() const { return static_cast<int64_t>(live_.size()); }
  int64_t allocated() const { return static_cast<int64_t>(live_.size() + idle_.size()); }

  struct Transition {
    const Version* from;  // to be read
    const Version* to;    // to be written; the same array when the replaced version is not kept
  };
  // Makes `number` = current().number + 1 the current version. Versions before `oldest_live` die.
  // Errors: FailedPrecondition (wrong number, more than versions_max live), ResourceExhausted.
  absl::StatusOr<Transition> Advance(int64_t number, bool keep_replaced, int64_t oldest_live);

  // REQUIRES: live() == 1.
  void Renumber(int64_t number);

 private:
  absl::StatusOr<Version> TakeArray();

  BufferPool* pool_ = nullptr;
  int64_t count_ = 0;
  bool with_mirror_ = false;
  int64_t versions_max_ = 0;
  std::vector<Version> live_;  // ascending; capacity for versions_max
  std::vector<Version> idle_;
};

}  // namespace penstock
