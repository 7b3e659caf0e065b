// RecomputeChoice: which stages do their forward again before the backward (StageWiring::recomputes), in the
// words of a user: "none", "all", or their places in a pipeline, such as "0,2".
//
// A stage that recomputes keeps only its input of a microbatch until the backward comes (Chen et al., 2016,
// arXiv 1604.06174). Its stash then exists for one microbatch at a time, for the price of another forward.
//
// Plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "schedule/schedule.h"

namespace penstock {

struct RecomputeChoice {
  bool all = false;
  std::vector<int32_t> places;  // ascending; of `all` none

  bool none() const { return !all && places.empty(); }
  bool Has(int32_t place) const {
    return all || std::binary_search(places.begin(), places.end(), place);
  }
  friend bool operator==(const RecomputeChoice&, const RecomputeChoice&) = default;
};

// Errors: InvalidArgument, with what would do.
absl::StatusOr<RecomputeChoice> ParseRecompute(absl::string_view text);

// "none", "all" or "0,2", which ParseRecompute reads.
std::string TextOf(const RecomputeChoice& choice);

// Errors: InvalidArgument naming a place that a pipeline of `depth` stages does not have, and those it has.
absl::Status CheckPlaces(const RecomputeChoice& choice, int32_t depth);

// The stages of `topology` that are meant, of all its pipelines: what Topology::Recompute takes.
// None there and back, where there is no choice.
std::vector<StageId> ChosenStages(const RecomputeChoice& choice, const Topology& topology);

}  // namespace penstock
