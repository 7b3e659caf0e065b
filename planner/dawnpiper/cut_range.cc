#include "planner/dawnpiper/cut_range.h"

#include <algorithm>
#include <cmath>

#include "planner/graph/limits.h"

namespace penstock {
namespace {

// Several stages as one.
struct Side {
  double speed = 0;
  double memory_bytes = 0;
  double in_flight = 0;
  double versions = 0;
};

Side SideOf(const StageMemory& memory, int place, int stages) {
  Side side;
  for (int at = place; at < place + stages; ++at) {
    const StagePlace& one = memory.model().places[at];
    side.speed += one.speed;
    side.memory_bytes += one.memory_bytes;
    side.in_flight += static_cast<double>(one.in_flight) / stages;
    side.versions += one.versions / stages;
  }
  // Without limits what counts is the bytes of a stage.
  if (!std::isfinite(side.memory_bytes)) side.memory_bytes = stages;
  return side;
}

}  // namespace

CutRange CutRangeOf(const StageMemory& memory, const CutBetween& between) {
  const Side left = SideOf(memory, between.place, between.left);
  const Side right = SideOf(memory, between.place + between.left, between.right);
  const auto share = [&](int first, int end, const Side& side) {
    return memory.BytesOfAllKept(first, end, side.in_flight, side.versions) / side.memory_bytes;
  };
  CutRange range;
  double least_s = kInfinity;
  double least_share = kInfinity;
  for (int cut = between.first + between.left; cut <= between.end - between.right; ++cut) {
    if (!memory.MayCut(cut)) continue;
    const double slower_s = std::max(memory.WorkS(between.first, cut) / left.speed,
                                     memory.WorkS(cut, between.end) / right.speed);
    const double fuller = std::max(share(between.first, cut, left), share(cut, between.end, right));
    if (slower_s < least_s) {
      least_s = slower_s;
      range.compute_balanced = cut;
    }
    if (fuller < least_share) {
      least_share = fuller;
      range.memory_balanced = cut;
    }
  }
  return range;
}

}  // namespace penstock
