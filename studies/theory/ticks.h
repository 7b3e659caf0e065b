// Ticks: a pipeline as the theory sees it. Forward and whole backward take one tick each, on one stage
// per worker, and messages take none; what starts in a tick needs what was done in earlier ticks.
//
// arXiv 2606.03498, appendix E.
//
// Plain values and pure functions; stages and microbatches count from 0.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace penstock {

// A stage updates its weights with its backward.
struct TickEvent {
  int64_t tick;
  int32_t stage;
  bool is_backward;
  int64_t microbatch;

  friend bool operator==(const TickEvent&, const TickEvent&) = default;
};

struct TickSequence {
  int32_t stages = 0;
  int64_t microbatches = 0;
  int64_t ticks = 0;              // the last event is in tick ticks - 1
  std::vector<TickEvent> events;  // by tick, then by stage; at most one for each of both

  int64_t updates() const { return microbatches * stages; }  // of blocks
};

// PipeDream's sequence: the product's own schedule (schedule/catalog/pipedream.cc), played by the
// product's own simulator. It takes PipeDreamTicks(...) = 2N + 2(S-1) ticks.
// Errors: those of BuildSchedule and Simulate (too many stages or microbatches).
absl::StatusOr<TickSequence> PipeDreamSequence(int32_t stages, int64_t microbatches);
// The sequence of the authors' simulator, which is not quite that of the product. A stage does its next backward if it can and,
// once it is warm, has done a forward since the last one; otherwise its next forward. Only the first stage counts what is in
// flight, S microbatches at most, so that while the pipeline fills a later stage takes forwards that PipeDream's static order
// leaves for later: (S-1)(S-2)/2 of them read an older version of the weights there. From then on, and in
// length, the two are the same.
TickSequence EagerPipeDreamSequence(int32_t stages, int64_t microbatches);
enum class PipeDreamOrder : uint8_t { kStatic, kEager };
// One of both. Errors: as PipeDreamSequence.
absl::StatusOr<TickSequence> PipeDreamSequence(PipeDreamOrder order, int32_t stages,
                                               int64_t microbatches);
// The fewest microbatches with which PipeDream takes `ticks` ticks or more, by either sequence.
int64_t PipeDreamMicrobatches(int32_t stages, int64_t ticks);

// LocalSGD through a pipeline: `replicas` models share the workers. Microbatch m belongs to replica
// m mod R; a round is R * H microbatches, and the models are averaged when its last backward is done.
struct LocalSgdShape {
  int32_t stages = 1;
  int64_t replicas = 1;     // R
  int64_t local_steps = 1;  // H, between averages

  int64_t round() const { return replicas * local_steps; }  // microbatches
};

// A stage runs its next backward if it can and, once it is warm, has run a forward since the last one;
// otherwise its next forward; otherwise the backward. A forward also waits until the replica's backward
// of the step before is done on the stage, and until the round before is done. With R = S a round takes
// 2SH + 2(S-1) ticks. REQUIRES: all numbers are positive.
TickSequence LocalSgdSequence(const LocalSgdShape& shape, int64_t microbatches);
// The fewest microbatches with which it takes `ticks` ticks or more.
int64_t LocalSgdMicrobatches(const LocalSgdShape& shape, int64_t ticks);

}  // namespace penstock
