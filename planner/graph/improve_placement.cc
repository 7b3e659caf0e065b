#include "planner/graph/improve_placement.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace penstock {
namespace {

constexpr double kGainMin = 1e-9;  // relative; smaller gains are not worth a change

class Improver {
 public:
  Improver(const PlacementCosts& costs, const PlacementJudge& judge, ScoredPlacement start,
           TimeBudget& budget)
      : costs_(costs), judge_(judge), best_(std::move(start)), budget_(budget) {}

  ScoredPlacement Run() {
    bool improves = true;
    while (improves && !budget_.IsSpent(0)) {
      improves = MoveCuts();
      improves = MoveWorkers() || improves;
      improves = SwapWorkers() || improves;
      improves = JoinStages() || improves;
    }
    return std::move(best_);
  }

 private:
  bool Try(ClusterPlacement placement) {
    if (budget_.IsSpent(5'000)) return false;
    const double score = judge_.Score(costs_, placement);
    if (score >= best_.score * (1 - kGainMin)) return false;
    best_ = {std::move(placement), score};
    return true;
  }

  bool MoveCuts() {
    bool improves = false;
    for (size_t stage = 0; stage + 1 < best_.placement.size(); ++stage) {
      const int low = best_.placement[stage].from_cut;
      const int high = best_.placement[stage + 1].to_cut;
      for (int cut = low + 1; cut < high; ++cut) {
        if (cut == best_.placement[stage].to_cut || !costs_.family().Inside(low, cut) ||
            !costs_.family().Inside(cut, high)) {
          continue;
        }
        ClusterPlacement moved = best_.placement;
        moved[stage].to_cut = cut;
        moved[stage + 1].from_cut = cut;
        improves = Try(std::move(moved)) || improves;
      }
    }
    return improves;
  }

  // Returns by worker whether it has a stage.
  std::vector<bool> Used() const {
    std::vector<bool> used(costs_.cluster().workers.size());
    for (const PlacedStage& stage : best_.placement) {
      for (const int worker : stage.workers) used[worker] = true;
    }
    return used;
  }

  bool MoveWorkers() {
    bool improves = false;
    const int workers = costs_.cluster().size();
    for (int worker = 0; worker < workers; ++worker) {
      for (size_t to = 0; to <= best_.placement.size(); ++to) {
        ClusterPlacement moved = best_.placement;
        bool empties = false;
        for (PlacedStage& stage : moved) {
          std::erase(stage.workers, worker);
          empties = empties || stage.workers.empty();
        }
        if (to < moved.size()) moved[to].workers.push_back(worker);
        if (empties && std::any_of(moved.begin(), moved.end(), [](const PlacedStage& stage) {
              return stage.workers.empty();
            })) {
          continue;
        }
        if (moved != best_.placement) improves = Try(std::move(moved)) || improves;
      }
    }
    return improves;
  }

  bool SwapWorkers() {
    bool improves = false;
    const int workers = costs_.cluster().size();
    for (int one = 0; one < workers; ++one) {
      for (int two = one + 1; two < workers; ++two) {
        const std::vector<bool> used = Used();
        if (!used[one] && !used[two]) continue;
        ClusterPlacement swapped = best_.placement;
        for (PlacedStage& stage : swapped) {
          for (int& worker : stage.workers) {
            if (worker == one || worker == two) worker = one + two - worker;
          }
        }
        improves = Try(std::move(swapped)) || improves;
      }
    }
    return improves;
  }

  bool JoinStages() {
    bool improves = false;
    for (size_t stage = 0; stage + 1 < best_.placement.size(); ++stage) {
      ClusterPlacement joined = best_.placement;
      joined[stage].to_cut = joined[stage + 1].to_cut;
      joined[stage].workers.insert(joined[stage].workers.end(), joined[stage + 1].workers.begin(),
                                   joined[stage + 1].workers.end());
      joined.erase(joined.begin() + static_cast<std::ptrdiff_t>(stage) + 1);
      improves = Try(std::move(joined)) || improves;
    }
    return improves;
  }

  const PlacementCosts& costs_;
  const PlacementJudge& judge_;
  ScoredPlacement best_;
  TimeBudget& budget_;
};

}  // namespace

ScoredPlacement ImprovePlacement(const PlacementCosts& costs, const PlacementJudge& judge,
                                 ScoredPlacement start, TimeBudget& budget) {
  return Improver(costs, judge, std::move(start), budget).Run();
}

}  // namespace penstock
