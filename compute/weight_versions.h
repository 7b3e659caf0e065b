// WeightVersions: the flat arrays of a stage's weights, one for each live version.
//
// Versions are numbered by the updates seen. Advance either renumbers the newest array (its weights
// will be overwritten in place) or takes another array for the next version and keeps the replaced one
// readable. Arrays of versions that died are reused, so the number of arrays is the number of versions
// that were ever live together. Repeat makes a version that is the same weights as the one before: one array
// then has several numbers.
//
// With a stash on the host (host_stash.h) replaced versions wait there; BringBack comes before one is read.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compute/buffer_pool.h"
#include "compute/host_stash.h"

namespace penstock {

// The weights that a pass reads: those of a live version, or, with `ahead` not 0, the prediction of them
// `ahead` updates later (update_history.h).
struct WeightRead {
  WeightRead(int64_t version_read, int64_t updates_ahead = 0)  // NOLINT: a version is a read
      : version(version_read), ahead(updates_ahead) {}
  int64_t version;
  int64_t ahead;
};

class WeightVersions {
 public:
  struct Version {
    int64_t number = 0;   // the newest of its numbers
    int64_t first = 0;    // the oldest
    WeightArrays arrays;  // empty while the version is on the host only
    HostCopy copy;

    float* weights() const { return static_cast<float*>(arrays.f32.data()); }
    uint16_t* mirror() const { return static_cast<uint16_t*>(arrays.bf16.data()); }
  };

  WeightVersions() = default;
  // One live version, number 0, uninitialised, and without arrays if these are put later. Errors: ResourceExhausted.
  static absl::StatusOr<WeightVersions> Create(BufferPool& pool, int64_t count, bool with_mirror,
                                               int64_t versions_max, bool with_arrays = true);
  // The only version, with number `number` from now on, has these f32 weights, and room for their mirror.
  // REQUIRES: it has no arrays; there are `count` floats or more. Errors: ResourceExhausted.
  absl::Status PutArrays(int64_t number, Buffer f32);
  // Its arrays are gone. REQUIRES: live() == 1.
  void DropArrays();
  bool has_arrays() const { return static_cast<bool>(current().arrays.f32); }
  // Takes the memory of versions_max versions now and not when they are first live. REQUIRES: no
  // stash on the host.
  // Errors: ResourceExhausted.
  absl::Status Reserve();
  // From here on replaced versions wait on the host. REQUIRES: `backend` outlives this; live() == 1.
  void StashOnHost(Backend& backend) { host_stash_.emplace(backend); }

  const Version& current() const { return live_.back(); }
  const Version* Find(int64_t number) const;  // null if not live
  // Number of versions with weights of their own.
  int64_t live() const { return static_cast<int64_t>(live_.size()); }
  int64_t allocated() const { return static_cast<int64_t>(live_.size() + idle_.size()); }
  // Bytes of one version, of all on the device, and of those that wait on the host.
  int64_t version_bytes() const;
  int64_t device_bytes() const;
  int64_t host_bytes() const;

  struct Transition {
    const Version* from;  // to be read
    const Version* to;    // to be written; the same array when the replaced version is not kept
  };
  // Makes `number` = current().number + 1 the current version. Versions before `oldest_live` die.
  // Errors: FailedPrecondition (wrong number, more than versions_max live), ResourceExhausted, the
  // stash's.
  absl::StatusOr<Transition> Advance(int64_t number, bool keep_replaced, int64_t oldest_live);

  // Makes `number` = current().number + 1 another number of the current version. Versions before
  // `oldest_live` die.
  // Errors: FailedPrecondition (wrong number); of the stash's copies.
  absl::Status Repeat(int64_t number, int64_t oldest_live);

  // The stash's part; without one, or for the current version, they do nothing. Errors: of its copies.
  //
  // Makes a live version readable by calls to the back-end that follow.
  absl::Status BringBack(int64_t number);
  // Begins with that, because the version will be read soon.
  absl::Status StartBringingBack(int64_t number);
  // Lets the weights that the step read when it replaced version `number` go to the host.
  absl::Status StartLeaving(int64_t number);
  // The version is not read soon: its place on the device may be given away.
  void Leave(int64_t number);

  // REQUIRES: live() == 1.
  void Renumber(int64_t number);

 private:
  absl::StatusOr<Version> MakeArray();
  // An idle one, or a new one.
  absl::StatusOr<Version> TakeArray();
  // Does the common part of Advance and Repeat: checks the number, and ends old versions.
  absl::Status BeginNumber(int64_t number, int64_t oldest_live);
  // The version if the stash has a say about it, or null.
  Version* FindStashed(int64_t number);

  BufferPool* pool_ = nullptr;
  int64_t count_ = 0;
  bool with_mirror_ = false;
  int64_t versions_max_ = 0;
  std::vector<Version> live_;  // ascending; capacity for versions_max
  std::vector<Version> idle_;  // none with a stash on the host
  std::optional<HostStash> host_stash_;
};

}  // namespace penstock
