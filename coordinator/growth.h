// Growth: how a job that goes on with fewer workers than it had goes on with as many again.
//
//   fewer workers -> enough are free, and no job waits for them -> its next cut -> the split of before, on all of them
//
// Growing costs the job a start, as a new split does. So the job waits for a cut of its own, unless that is far away, and
// after a growth that failed it waits before it grows again, for longer each time, and at last stays as it is.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "penstock/v1/cluster.pb.h"
#include "planner/job/assign.h"

namespace penstock {

struct GrowthRules {
  // A growth has failed if the attempt that follows it fails within this time of training, or if the one that was to end
  // for it failed instead, or if a worker that was to join was gone by then.
  int64_t proof_ms = 60'000;
  // The pause after a failed growth, which doubles with each further one in a row.
  int64_t first_pause_ms = 60'000;
  // After this many in a row the job does not grow any more.
  int64_t failed_max = 3;
  // The workers are held this long before a cut of the job's own, so that the run ends there and no cut is added, if the
  // workers hold in time.
  int64_t lead_ms = 1000;
  // The time between two looks at the free workers, which take long in a large cluster.
  int64_t ask_ms = 200;
  // A cut of its own that is farther away is not waited for: the run is cut where it is.
  int64_t wait_for_cut_ms = 600'000;
  // A run that has less than this left after the cut stays as it is.
  int64_t left_min_ms = 5000;
};
inline constexpr GrowthRules kGrowthRules;

// Returns the time since 1970 before which the job does not grow; nothing: it does not grow any more. `attempts`: of its
// record, all of them.
std::optional<int64_t> GrowsFromMs(const google::protobuf::RepeatedPtrField<v1::Attempt>& attempts);

// The cuts at which a run could end to grow.
struct GrowthCuts {
  absl::Span<const int64_t> own;  // of the job, ascending; the last is its end
  int64_t steps = 0;              // of the job
  double step_s = 0;              // measured
};
// Returns whether a run that has done `step` is to be held now.
bool IsTimeToHold(const GrowthCuts& cuts, int64_t step);
// Returns how long the steps take from the hold to the cut, at most.
int64_t LeadMs(const GrowthCuts& cuts);
// Returns the step after which a run is cut whose workers can stop after `held` at the earliest.
int64_t CutToGrow(const GrowthCuts& cuts, int64_t held);

// Returns which `count` of the free workers join: those first that had a place. Fewer than `count`: there are no more.
std::vector<WorkerOffer> ChooseToJoin(absl::Span<const std::string> places,
                                      std::vector<WorkerOffer> free, int64_t count);

// Puts each worker where `places` names it, if there is such a place among as many workers, and the others into the places
// left.
std::vector<WorkerOffer> InPlaces(absl::Span<const std::string> places,
                                  std::vector<WorkerOffer> workers);

}  // namespace penstock
