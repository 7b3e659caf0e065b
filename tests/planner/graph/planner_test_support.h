// What the planner's tests share: random graphs, brute force over all plans, published profiles.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/random.h"
#include "planner/graph/cost_model.h"
#include "planner/graph/layer_graph.h"
#include "planner/graph/pipedream_profile.h"
#include "planner/graph/time_budget.h"
#include "tests/support/ticking_clock.h"

namespace penstock {

// A budget that never ends.
inline TimeBudget& Unlimited() {
  static TickingClock clock(0);
  static TimeBudget budget(clock, absl::Hours(1));
  return budget;
}

// Layers in a row with some edges that skip ahead; some layers take no time or have no parameters.
LayerGraph RandomGraph(RandomStream& random, int layers, double edge_probability);
LayerGraph RandomChain(RandomStream& random, int layers);

// From tests/planner/graph/profiles, as PipeDream's optimizer plans it.
LayerGraph PublishedProfile(const std::string& file);

// Every cut of the graph as a set of layer indices in bits, by trying all subsets. At most 12 layers.
std::vector<uint32_t> AllCuts(const LayerGraph& graph);
double BytesOver(const LayerGraph& graph, uint32_t cut);

// A stage for the brute force: what it holds, and the bytes over the cuts around it.
struct BruteStage {
  double work_s = 0;
  double parameter_bytes = 0;
  int replicas = 1;
  double output_bytes = 0;
};
// The published formulas, written out again.
double BrutePeriod(const StageCostModel& model, const std::vector<BruteStage>& stages);

// The least period of all ways to cut and replicate; infinite if there is none.
double BruteForce(const LayerGraph& graph, const StageCostModel& model, int workers);

}  // namespace penstock
