// Where a model may be cut into parts, which of these share parameters, and what they add up at a REDUCE.
//
// Plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "job/resolve.h"
#include "model/graph.h"
#include "schedule/tied_sum.h"

namespace penstock {

// What one REDUCE adds up: the gradients of ties (ModelGraph::ties). Ties of one owner are in one group, so that its
// norm is known after it (worker/collectives.h).
struct TieGroup {
  struct Sum {
    int tie = 0;
    TiedSum sum;  // over the parts that use it
  };
  std::vector<int32_t> parts;  // of the model, that use one of the ties, ascending
  std::vector<Sum> sums;       // by tie, ascending
};

// The groups for a model whose parts have these layers; none where all uses of each tie are in one part, or where
// `parts` is empty, because they are not known.
std::vector<TieGroup> TieGroupsOf(const ModelGraph& model, absl::Span<const LayerRange> parts);
// Adds the REDUCE groups of these to `topology`, which has no others of ties, in every pipeline.
void AddTieGroups(absl::Span<const TieGroup> groups, Topology& topology);
// Which of `groups` a group is that AddTieGroups made.
const TieGroup& TieGroupOf(absl::Span<const TieGroup> groups, const Topology& topology, GroupId id);

// The layers of each part, from those of each stage.
std::vector<LayerRange> LayersOfParts(const Topology& topology,
                                      absl::Span<const LayerRange> layers);

// The layers of the parts that the job lists; else those of some cut, which stands for all, or none where the method may
// not cut anywhere. REQUIRES: the job lists none, or those of `stages` stages; these are at most model.stages_max().
std::vector<LayerRange> SomeParts(const ResolvedJob& job, int64_t stages);

// The bytes of a tie's gradient.
int64_t TiedBytes(const ModelGraph& model, int tie);

// By layer: whether a job's stage may begin with it. Behind it a gradient is sent back, so that a layer with parameters
// has to stand before it. A method that updates each stage by itself also has no moment at which two stages could add
// their gradients, so that all uses of a tie have to be on one stage.
std::vector<bool> PlacesToCut(const ResolvedJob& job);
// Errors: InvalidArgument naming the key, the layers, a parameter that they share, and what would do, if a stage begins
// where it may not.
// `parts`: empty if they are not known.
absl::Status CheckParts(const ResolvedJob& job, absl::Span<const LayerRange> parts);

}  // namespace penstock
