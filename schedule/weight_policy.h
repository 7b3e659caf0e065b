// Weight policies: which version of a stage's weights forward and backward read, and which versions must be kept
// for that.
//
//   policy         forward reads          backward (I and W) reads   kept beside the current version
//   single         the current            the current                none
//   stash          the current            what its forward read      those read by a forward whose W is to come
//   double-buffer  that of one update     what its forward read      the same, and those that a forward of the
//                  before its own                                    range may still read
//   vertical-sync  what the first stage   what its forward read      the same
//                  reads
//   predicted      the current, moved     the current                none
//                  ahead to its update
//   spectrain      the current, moved     the current, moved ahead   none
//                  ahead to the first     to the first stage's
//                  stage's update         update
//   corrected      the current            the current, moved back    none
//                                         to what its forward read
//   drawn          one of the last        what its forward read      the last delta + 1, of which those that no
//                  delta + 1, sampled                                update has changed are one
//
// A policy is a row, `Weights`, in a file under policies/ that says what is particular about it; its
// declaration and its place in kAllWeights, below, make it known to jobs, the verifier, the simulator and
// the executor. The serial reference has a rule of its own for it (worker/version_rule.cc), or it would judge
// nothing. With its numbers a row is a WeightPolicy, which schedules hold.
//
// Weight prediction moves weights along their motion (compute/update_history.h): a policy says from which version and by
// how many updates.
//
// Plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock {

struct StageVersions;
struct UpdateShape;
struct WeightPolicy;

// The versions older than the newest one that forwards read.
enum class OldReads : uint8_t {
  kNone,
  kOneAnUpdate,     // all microbatches of an update the same
  kOneAMicrobatch,  // every microbatch in flight another
};

struct Weights {
  absl::string_view name;  // pipeline.weights: "double-buffer"
  // Its text in a schedule. Two policies with the same form and numbers do the same.
  absl::string_view form;  // "delayed:<microbatches>:<versions>"

  // It needs as many microbatches in an update as are in flight at most, as many as there are stages.
  bool fills_pipeline = false;
  // Why it cannot be had with an update for each microbatch, or with one for a step; empty if it can.
  absl::string_view (*refusal)(bool updates_each_microbatch) = Always;
  // Sets the numbers of a policy of this row.
  void (*set_numbers)(const UpdateShape& shape, WeightPolicy& policy) = NoNumbers;

  OldReads old_reads = OldReads::kNone;
  // The version that is read is sampled (block_draws.h), and so are the updates that change the stage.
  bool draws = false;
  // Passes read predicted weights, for which a copy is needed.
  bool moves = false;
  // The motion is an average over as many updates as the prediction goes, instead of the last update.
  bool averages_motion = false;

  // The version that the next forward of the range reads, the newest that it might if that is sampled; beyond
  // the current one if it is not made yet.
  int64_t (*next_forward)(const StageVersions& stage) = Current;
  // The version that the next forward, of `microbatch`, reads.
  int64_t (*forward)(const StageVersions& stage, int64_t microbatch) = NextForward;
  // The version that I and W read now if their forward read `forward_version`: that one, or as updates are made
  // newer ones.
  int64_t (*backward)(const StageVersions& stage, int64_t forward_version) = CurrentToo;
  // Where weights are predicted: the version that a microbatch, the range's number `forward`, which reads `version`,
  // would like to read.
  int64_t (*aim)(const StageVersions& stage, int64_t forward, int64_t version) = WhatItReads;
  // The oldest version that is kept even where no microbatch between F and W would read it now: what forwards to
  // come may read, and what backwards move on to.
  int64_t (*keeps_from)(const StageVersions& stage) = Current;
  // True if the update of `microbatch` changes the weights.
  bool (*updates)(const StageVersions& stage, int64_t microbatch) = EveryMicrobatch;
  // The most versions that are live at a time with at most `in_flight` microbatches between F and W, in any
  // order: as the forward of microbatch j waits for the backward of j - in_flight.
  int64_t (*versions_max)(const WeightPolicy& policy, int64_t in_flight,
                          int64_t microbatches_per_update) = One;
  // Appends what of the range, besides versions that are kept, decides what is read from here on, versions
  // counted from the current one.
  void (*append_state)(const StageVersions& stage, std::vector<int64_t>& state) = NoState;

  // Backward reads, always, what its forward read.
  bool backward_reads_forwards() const { return backward == ForwardsToo; }

  // The usual answers.
  static absl::string_view Always(bool updates_each_microbatch);
  static void NoNumbers(const UpdateShape& shape, WeightPolicy& policy);
  static int64_t Current(const StageVersions& stage);
  static int64_t NextForward(const StageVersions& stage, int64_t microbatch);
  static int64_t CurrentToo(const StageVersions& stage, int64_t forward_version);
  static int64_t ForwardsToo(const StageVersions& stage, int64_t forward_version);
  static int64_t WhatItReads(const StageVersions& stage, int64_t forward, int64_t version);
  static bool EveryMicrobatch(const StageVersions& stage, int64_t microbatch);
  static int64_t One(const WeightPolicy& policy, int64_t in_flight,
                     int64_t microbatches_per_update);
  static void NoState(const StageVersions& stage, std::vector<int64_t>& state);

  static const Weights kSingle;
  static const Weights kStash;
  static const Weights kDoubleBuffer;
  static const Weights kVerticalSync;
  static const Weights kPredicted;
  static const Weights kSpecTrain;
  static const Weights kCorrected;
  static const Weights kDrawn;
};

inline constexpr const Weights* kAllWeights[] = {
    &Weights::kSingle,    &Weights::kStash,     &Weights::kDoubleBuffer, &Weights::kVerticalSync,
    &Weights::kPredicted, &Weights::kSpecTrain, &Weights::kCorrected,    &Weights::kDrawn};

// A row with its numbers.
struct WeightPolicy {
  const Weights* weights = &Weights::kSingle;
  // Microbatches of an update, 1 or more, where what is read depends on them; else 1. Where replicas make an update after
  // one of each, of weights of a fixed age those of the first stage's, of others 1.
  int64_t batch = 1;
  int64_t lag = 0;    // how many versions old the weights are that a forward reads, at most; else 0
  uint64_t seed = 0;  // of samples

  bool moves_weights() const { return weights->moves; }
  bool draws() const { return weights->draws; }

  friend bool operator==(const WeightPolicy& a, const WeightPolicy& b) {
    return a.weights->form == b.weights->form && a.batch == b.batch && a.lag == b.lag &&
           a.seed == b.seed;
  }
};
inline constexpr WeightPolicy kSingleVersion = {&Weights::kSingle};
inline constexpr WeightPolicy kStashedVersions = {&Weights::kStash};

// The numbers of a policy follow from these.
struct UpdateShape {
  int64_t stages = 1;            // of a pipeline; where they have replicas, its places
  int64_t microbatches = 1;      // of an update; 1: one of each replica
  int64_t replicas = 1;          // of the first stage
  int64_t warm_up = 0;           // forwards of the first stage before its first backward
  std::optional<int64_t> delta;  // of samples; absent: PipeDream's own (block_draws.h)
  uint64_t seed = 0;
};

// A stage in a range, as far as its versions are concerned. Forwards are numbered from 0 in a range; those of a
// replica are its own, and all replicas make the same updates.
struct StageVersions {
  WeightPolicy policy;
  int32_t place = 0;  // from 0, in a pipeline of `places`
  int32_t places = 1;
  int32_t replicas = 1;  // of the place
  int64_t update = 1;    // microbatches of an update, where what is read depends on them; else 1
  // How many more microbatches the first stage has between forward and backward than this one (warm_up.h).
  int64_t behind_first = 0;
  int64_t current = 0;           // version
  int64_t first_version = 0;     // the current one when the range began
  int64_t first_microbatch = 0;  // of its first forward
  int64_t forwards = 0;          // so far

  // There and back, where a stage has some rounds of every step: the microbatches of a step, and how many of them are
  // the stage's; else 0.
  int64_t step = 0;
  int64_t of_step = 0;

  // The microbatch of a forward, counted from the first of the range; with replicas the first of its round, in which
  // each replica has one, so that all of them have the same versions. There and back one of the same step.
  int64_t MicrobatchOf(int64_t forward) const {
    return of_step > 0 ? forward / of_step * step + forward % of_step : forward * replicas;
  }
};

// "single", "stash", "delayed:8:1" (batch and lag), "predicted:1" and "aligned:1" (batch), "corrected",
// "drawn:14:1" (lag and seed).
std::string ToString(const WeightPolicy& policy);
// The inverse. Errors: InvalidArgument, with the forms there are.
absl::StatusOr<WeightPolicy> ParseWeightPolicy(absl::string_view text);

}  // namespace penstock
