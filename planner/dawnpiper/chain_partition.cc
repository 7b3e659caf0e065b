#include "planner/dawnpiper/chain_partition.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "planner/dawnpiper/cut_range.h"
#include "planner/graph/limits.h"

namespace penstock {
namespace {

absl::Status CheckPlaces(const StageMemory& memory) {
  int places = 1;
  for (int cut = 1; cut < memory.nodes(); ++cut) places += memory.MayCut(cut) ? 1 : 0;
  if (memory.stages() >= 1 && memory.stages() <= places) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("stages: is ", memory.stages(),
                                                 "; expected from 1 to ", places,
                                                 ", the places where one may end"));
}

absl::Status NothingFits(const StageMemory& memory) {
  double most = 0;
  for (const StagePlace& place : memory.model().places) most = std::max(most, place.memory_bytes);
  return absl::FailedPreconditionError(absl::StrCat(
      "no cut into ", memory.stages(), " stages fits into ", most / 1e6,
      " MB on each worker; more workers, smaller microbatches or a smaller model would do"));
}

absl::StatusOr<ChainPartition> PartitionOf(const StageMemory& memory, std::vector<int> ends,
                                           int64_t charged) {
  ChainPartition partition = {.ends = std::move(ends), .stages_charged = charged};
  int first = 0;
  for (int place = 0; place < memory.stages(); ++place) {
    const int end = partition.ends[place];
    partition.charges.push_back(memory.Choose(first, end, place));
    partition.period_s = std::max(partition.period_s, partition.charges.back().seconds);
    if (place + 1 < memory.stages()) {
      partition.period_s = std::max(partition.period_s, memory.LinkS(end, place));
    }
    first = end;
  }
  return partition;
}

class Halves {
 public:
  Halves(const StageMemory& memory, CutSearch search) : memory_(memory), search_(search) {}

  struct Found {
    double seconds = kInfinity;
    double squares = kInfinity;
    int cut = 0;  // between the halves, if there are two
    bool IsBetterThan(const Found& other) const {
      return std::tie(seconds, squares) < std::tie(other.seconds, other.squares);
    }
  };

  const Found& Search(int first, int end, int place, int stages) {
    const auto [at, is_new] = found_.try_emplace({first, end, place, stages});
    Found& found = at->second;
    if (!is_new) return found;
    if (stages == 1) {
      ++charged_;
      found.seconds = memory_.Choose(first, end, place).seconds;
      found.squares = found.seconds * found.seconds;
      return found;
    }
    const CutBetween between = {first, end, place, stages / 2, stages - stages / 2};
    CutRange range = CutRangeOf(memory_, between);
    if (search_ == CutSearch::kAnywhere) {
      range = {first + between.left, end - between.right};
    }
    for (int cut = std::max(1, range.least()); cut <= range.most(); ++cut) {
      if (!memory_.MayCut(cut)) continue;
      Found one = {.cut = cut};
      const Found& left = Search(first, cut, place, between.left);
      if (left.seconds > found.seconds) continue;
      const Found& right = Search(cut, end, place + between.left, between.right);
      one.seconds =
          std::max({left.seconds, right.seconds, memory_.LinkS(cut, place + between.left - 1)});
      one.squares = left.squares + right.squares;
      if (one.IsBetterThan(found)) found = one;
    }
    return found;
  }

  void AddEnds(int first, int end, int place, int stages, std::vector<int>& ends) {
    if (stages == 1) return ends.push_back(end);
    const int cut = Search(first, end, place, stages).cut;
    AddEnds(first, cut, place, stages / 2, ends);
    AddEnds(cut, end, place + stages / 2, stages - stages / 2, ends);
  }

  int64_t charged() const { return charged_; }

 private:
  const StageMemory& memory_;
  const CutSearch search_;
  std::map<std::tuple<int, int, int, int>, Found> found_;
  int64_t charged_ = 0;
};

}  // namespace

absl::StatusOr<ChainPartition> PartitionByHalves(const StageMemory& memory, CutSearch search) {
  PENSTOCK_RETURN_IF_ERROR(CheckPlaces(memory));
  Halves halves(memory, search);
  if (halves.Search(0, memory.nodes(), 0, memory.stages()).seconds == kInfinity) {
    return NothingFits(memory);
  }
  std::vector<int> ends;
  halves.AddEnds(0, memory.nodes(), 0, memory.stages(), ends);
  return PartitionOf(memory, std::move(ends), halves.charged());
}

absl::StatusOr<ChainPartition> BestPartition(const StageMemory& memory) {
  PENSTOCK_RETURN_IF_ERROR(CheckPlaces(memory));
  struct Rest {
    double seconds = kInfinity;
    double squares = kInfinity;
    int end = 0;
  };
  const int nodes = memory.nodes();
  const int stages = memory.stages();
  // No stage of the best partition takes longer than the longest of another one.
  double bound_s = kInfinity;
  const absl::StatusOr<ChainPartition> by_halves = PartitionByHalves(memory);
  if (by_halves.ok()) bound_s = by_halves->period_s;
  // By place and first node: the best of that stage and those behind it.
  std::vector<std::vector<Rest>> best(stages, std::vector<Rest>(nodes + 1));
  int64_t charged = 0;
  for (int place = stages - 1; place >= 0; --place) {
    const bool is_last = place + 1 == stages;
    const double speed = memory.model().places[place].speed;
    const int first_most = place == 0 ? 0 : nodes - (stages - place);
    for (int first = place; first <= first_most; ++first) {
      if (first > 0 && !memory.MayCut(first)) continue;
      Rest& found = best[place][first];
      for (int end = is_last ? nodes : first + 1; end <= nodes - (stages - 1 - place); ++end) {
        const double work_s = memory.WorkS(first, end) / speed;
        if (work_s > std::min(found.seconds, bound_s)) break;
        if (!is_last && !memory.MayCut(end)) continue;
        const Rest rest = is_last ? Rest{0, 0, 0} : best[place + 1][end];
        const double behind_s = is_last ? 0 : std::max(rest.seconds, memory.LinkS(end, place));
        if (behind_s > found.seconds || behind_s == kInfinity) continue;
        ++charged;
        const double own_s = memory.Choose(first, end, place).seconds;
        const Rest one = {std::max(own_s, behind_s), rest.squares + own_s * own_s, end};
        if (std::tie(one.seconds, one.squares) < std::tie(found.seconds, found.squares)) {
          found = one;
        }
      }
    }
  }
  if (best[0][0].seconds == kInfinity) return NothingFits(memory);
  std::vector<int> ends;
  for (int place = 0, first = 0; place < stages; ++place) {
    first = best[place][first].end;
    ends.push_back(first);
  }
  return PartitionOf(memory, std::move(ends), charged);
}

}  // namespace penstock
