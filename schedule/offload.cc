#include "schedule/offload.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr size_t kOffloadQuotedMax = 64;  // of what was given, in an error

absl::Status ExpectedOffload(absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "is \"", text.substr(0, kOffloadQuotedMax),
      "\"; expected none, all, or places of stages in their pipeline with commas between them, "
      "such as 0,2, each of which may say how many stashes stay on the device, from ",
      kStashesOnDeviceMin, " on, such as all:4 or 0:5,1"));
}

// Adds the actions to one worker's lists, in the order in which they are performed.
class Offloading {
 public:
  explicit Offloading(absl::Span<const int32_t> stashes) {
    for (size_t s = 0; s < stashes.size(); ++s) {
      if (stashes[s] == 0) continue;
      PENSTOCK_CHECK(stashes[s] >= kStashesOnDeviceMin);
      stages_[static_cast<int32_t>(s)].room = stashes[s];
    }
  }

  // Returns `list` with its microbatches counted from `offset`, and the moves between its actions.
  ActionList Walk(const ActionList& list, int64_t offset) {
    BeginList(list, offset);
    ActionList result;
    for (size_t i = 0; i < list.size(); ++i) {
      Action action = list[i];
      if (HasMicrobatch(action.kind)) action.microbatch += offset;
      const auto found = HasMicrobatch(action.kind) ? stages_.find(action.index) : stages_.end();
      passes_ += IsPass(action.kind);
      if (found == stages_.end()) {
        result.push_back(action);
        continue;
      }
      Stage& stage = found->second;
      out_ = &result;
      id_ = action.index;
      switch (action.kind) {
        case ActionKind::kForward:
          MakeRoom(stage);
          result.push_back(action);
          while (i + 1 < list.size() && IsSend(list[i + 1].kind) &&
                 list[i + 1].index == action.index &&
                 list[i + 1].microbatch == list[i].microbatch) {
            result.push_back(list[++i]);
            result.back().microbatch += offset;
          }
          EndForward(stage, action.microbatch);
          break;
        case ActionKind::kBackwardInput: {
          const Action receive = {ActionKind::kRecvGradient, action.index, action.microbatch};
          const bool receives = !result.empty() && result.back() == receive;
          if (receives) result.pop_back();
          BringBack(stage, action.microbatch);
          if (receives) result.push_back(receive);
          result.push_back(action);
          stage.resident.erase({stage.RankOf(action.microbatch), action.microbatch});
          stage.ranks.erase(action.microbatch);
          ++stage.weight_stashes;
          break;
        }
        case ActionKind::kBackwardWeight:
          --stage.weight_stashes;
          result.push_back(action);
          break;
        default:
          result.push_back(action);
      }
    }
    return result;
  }

  // What decides about everything from here on, microbatches counted from `origin`.
  std::vector<int64_t> RelativeState(int64_t origin) const {
    std::vector<int64_t> state;
    for (const auto& [id, stage] : stages_) {
      state.push_back(stage.weight_stashes);
      for (const auto* places : {&stage.resident, &stage.offloaded}) {
        std::vector<int64_t> microbatches;
        for (const auto& [rank, m] : *places) microbatches.push_back(m - origin);
        std::sort(microbatches.begin(), microbatches.end());
        state.push_back(static_cast<int64_t>(microbatches.size()));
        state.insert(state.end(), microbatches.begin(), microbatches.end());
      }
      state.push_back(static_cast<int64_t>(stage.leaving.size()));
      for (const Leaving& leaving : stage.leaving) {
        state.push_back(leaving.microbatch - origin);
        state.push_back(leaving.since_pass < passes_);
      }
    }
    return state;
  }

  // Goes on as if all microbatches in flight had numbers higher by this.
  void Shift(int64_t microbatches) {
    for (auto& [id, stage] : stages_) {
      for (Ranked* const places : {&stage.resident, &stage.offloaded}) {
        Ranked again;
        for (const auto& [rank, m] : *places) again.insert({rank, m + microbatches});
        *places = std::move(again);
      }
      for (Leaving& leaving : stage.leaving) leaving.microbatch += microbatches;
      std::map<int64_t, int64_t> ranks;
      for (const auto& [m, rank] : stage.ranks) ranks[m + microbatches] = rank;
      stage.ranks = std::move(ranks);
    }
  }

 private:
  struct Leaving {
    int64_t microbatch = 0;
    int64_t since_pass = 0;
  };
  // The rank says whose backward comes first.
  using Ranked = std::set<std::pair<int64_t, int64_t>>;

  struct Stage {
    int64_t room = 0;
    int64_t weight_stashes = 0;
    Ranked resident;   // and not leaving
    Ranked offloaded;  // on the host alone
    std::vector<Leaving> leaving;
    std::map<int64_t, int64_t> ranks;      // of microbatches between F and I
    std::map<int64_t, int64_t> backwards;  // in the list being walked: the place of each I

    int64_t on_device() const {
      return static_cast<int64_t>(resident.size() + leaving.size()) + weight_stashes;
    }
    int64_t RankOf(int64_t microbatch) const { return ranks.at(microbatch); }
    // Of a microbatch whose I is in no list yet: after all that are, in the order of the microbatches.
    int64_t NewRank(int64_t microbatch) const {
      constexpr int64_t kLater = int64_t{1} << 50;
      const auto found = backwards.find(microbatch);
      return found == backwards.end() ? kLater + microbatch : found->second;
    }
  };

  static bool IsPass(ActionKind kind) {
    return kind == ActionKind::kForward || kind == ActionKind::kBackwardInput;
  }

  void BeginList(const ActionList& list, int64_t offset) {
    for (auto& [id, stage] : stages_) stage.backwards.clear();
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].kind != ActionKind::kBackwardInput) continue;
      const auto found = stages_.find(list[i].index);
      if (found == stages_.end()) continue;
      found->second.backwards[list[i].microbatch + offset] = static_cast<int64_t>(i);
    }
    for (auto& [id, stage] : stages_) {
      for (Ranked* const places : {&stage.resident, &stage.offloaded}) {
        Ranked again;
        for (const auto& [rank, m] : *places) again.insert({stage.NewRank(m), m});
        *places = std::move(again);
      }
      for (auto& [m, rank] : stage.ranks) rank = stage.NewRank(m);
    }
  }

  void Add(ActionKind kind, int64_t microbatch) { out_->push_back({kind, id_, microbatch}); }

  void Offload(Stage& stage) {
    const auto farthest = std::prev(stage.resident.end());
    Add(ActionKind::kOffload, farthest->second);
    stage.leaving.push_back({farthest->second, passes_});
    stage.resident.erase(farthest);
  }
  void Evict(Stage& stage, std::vector<Leaving>::iterator which) {
    const int64_t microbatch = which->microbatch;
    Add(ActionKind::kEvict, microbatch);
    stage.leaving.erase(which);
    stage.offloaded.insert({stage.RankOf(microbatch), microbatch});
  }
  void Prefetch(Stage& stage, int64_t microbatch) {
    const std::pair<int64_t, int64_t> ranked = {stage.RankOf(microbatch), microbatch};
    Add(ActionKind::kPrefetch, microbatch);
    stage.offloaded.erase(ranked);
    stage.resident.insert(ranked);
  }

  // For one more stash.
  void MakeRoom(Stage& stage) {
    while (stage.on_device() >= stage.room && !stage.leaving.empty()) {
      Evict(stage, stage.leaving.begin());
    }
  }

  void EndForward(Stage& stage, int64_t microbatch) {
    const int64_t rank = stage.NewRank(microbatch);
    stage.ranks[microbatch] = rank;
    stage.resident.insert({rank, microbatch});
    while (static_cast<int64_t>(stage.resident.size()) > stage.room - 2) Offload(stage);
  }

  static std::vector<Leaving>::iterator FindLeaving(Stage& stage, int64_t microbatch) {
    return std::find_if(
        stage.leaving.begin(), stage.leaving.end(),
        [microbatch](const Leaving& leaving) { return leaving.microbatch == microbatch; });
  }

  void BringBack(Stage& stage, int64_t microbatch) {
    const std::pair<int64_t, int64_t> own = {stage.RankOf(microbatch), microbatch};
    if (stage.resident.count(own) == 0) {
      const auto leaving = FindLeaving(stage, microbatch);
      if (leaving != stage.leaving.end()) Evict(stage, leaving);
      MakeRoom(stage);
      Prefetch(stage, microbatch);
    }
    while (static_cast<int64_t>(stage.resident.size()) < stage.room - 1 && BringNext(stage)) {
    }
  }

  // The stash that is needed next of those that are not there. Returns whether it had a room.
  bool BringNext(Stage& stage) {
    const auto next_leaving = std::min_element(
        stage.leaving.begin(), stage.leaving.end(), [&stage](const Leaving& a, const Leaving& b) {
          return stage.RankOf(a.microbatch) < stage.RankOf(b.microbatch);
        });
    const bool any_leaves = next_leaving != stage.leaving.end();
    const bool any_waits = !stage.offloaded.empty();
    if (!any_leaves && !any_waits) return false;
    if (any_leaves &&
        (!any_waits || stage.RankOf(next_leaving->microbatch) < stage.offloaded.begin()->first)) {
      if (!HasLeftForAPass(*next_leaving)) return false;
      Evict(stage, next_leaving);
    } else if (stage.on_device() >= stage.room) {
      if (!any_leaves || !HasLeftForAPass(stage.leaving.front())) return false;
      Evict(stage, stage.leaving.begin());
    }
    if (stage.on_device() >= stage.room) return false;
    Prefetch(stage, stage.offloaded.begin()->second);
    return true;
  }
  // The pass in progress, which has been counted, comes after these moves.
  bool HasLeftForAPass(const Leaving& leaving) const { return leaving.since_pass + 1 < passes_; }

  std::map<int32_t, Stage> stages_;
  int64_t passes_ = 0;  // with the one in progress
  ActionList* out_ = nullptr;
  int32_t id_ = 0;
};

void Append(const ActionList& list, ActionList& to) {
  to.insert(to.end(), list.begin(), list.end());
}

// From copy `first` of the period on, `length` copies together are like the next ones.
struct Cycle {
  int64_t first = 0;
  int64_t length = 1;
};

// Goes copy by copy until one begins as an earlier one did.
Cycle FindCycle(const Program& program, absl::Span<const int32_t> stashes) {
  Offloading offloading(stashes);
  offloading.Walk(program.prologue, 0);
  std::vector<std::vector<int64_t>> states;  // before each copy
  for (int64_t copy = 0; copy < program.repeats; ++copy) {
    std::vector<int64_t> state = offloading.RelativeState(copy * program.shift);
    const auto same = std::find(states.begin(), states.end(), state);
    if (same != states.end()) {
      const int64_t first = same - states.begin();
      return {first, copy - first};
    }
    states.push_back(std::move(state));
    offloading.Walk(program.period, copy * program.shift);
  }
  return {program.repeats, 1};
}

// REQUIRES: `cycle` is one of the program's, or begins later or is a multiple.
Program Offloaded(const Program& program, absl::Span<const int32_t> stashes, const Cycle& cycle) {
  Offloading offloading(stashes);
  Program result = {.shift = cycle.length * program.shift};
  result.prologue = offloading.Walk(program.prologue, 0);
  const auto walk = [&](int64_t copy, ActionList& to) {
    Append(offloading.Walk(program.period, copy * program.shift), to);
  };
  const int64_t first = std::min(cycle.first, program.repeats);
  for (int64_t copy = 0; copy < first; ++copy) walk(copy, result.prologue);
  result.repeats = (program.repeats - first) / cycle.length;
  int64_t next = first + result.repeats * cycle.length;
  if (result.repeats > 0) {
    for (int64_t copy = first; copy < first + cycle.length; ++copy) walk(copy, result.period);
    offloading.Shift((next - first - cycle.length) * program.shift);
  }
  for (; next < program.repeats; ++next) walk(next, result.epilogue);
  Append(offloading.Walk(program.epilogue, 0), result.epilogue);
  return result;
}

}  // namespace

int32_t OffloadChoice::StashesOf(int32_t place) const {
  if (all > 0) return all;
  const auto found =
      std::lower_bound(stages.begin(), stages.end(), place,
                       [](const Stage& stage, int32_t sought) { return stage.place < sought; });
  return found == stages.end() || found->place != place ? 0 : found->stashes;
}

absl::StatusOr<OffloadChoice> ParseOffload(absl::string_view text) {
  OffloadChoice choice;
  if (text == "none") return choice;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> halves =
        absl::StrSplit(part, absl::MaxSplits(':', 1));
    OffloadChoice::Stage stage;
    const bool has_number = halves.first.size() < part.size();
    const bool number_fits = !has_number || (absl::SimpleAtoi(halves.second, &stage.stashes) &&
                                             stage.stashes >= kStashesOnDeviceMin &&
                                             stage.stashes <= kStashesOnDeviceMax);
    if (!number_fits) return ExpectedOffload(text);
    if (halves.first == "all" && part.size() == text.size()) {
      choice.all = stage.stashes;
      return choice;
    }
    if (!absl::SimpleAtoi(halves.first, &stage.place) || stage.place < 0) {
      return ExpectedOffload(text);
    }
    choice.stages.push_back(stage);
  }
  const auto before = [](const OffloadChoice::Stage& a, const OffloadChoice::Stage& b) {
    return a.place < b.place;
  };
  std::sort(choice.stages.begin(), choice.stages.end(), before);
  const auto twice =
      std::adjacent_find(choice.stages.begin(), choice.stages.end(),
                         [](const OffloadChoice::Stage& a, const OffloadChoice::Stage& b) {
                           return a.place == b.place;
                         });
  if (twice == choice.stages.end()) return choice;
  return absl::InvalidArgumentError(absl::StrCat("names stage ", twice->place, " twice"));
}

std::string TextOf(const OffloadChoice& choice) {
  const auto stashes = [](int32_t number) {
    return number == kStashesOnDevice ? std::string() : absl::StrCat(":", number);
  };
  if (choice.none()) return "none";
  if (choice.all > 0) return absl::StrCat("all", stashes(choice.all));
  return absl::StrJoin(choice.stages, ",",
                       [&](std::string* out, const OffloadChoice::Stage& stage) {
                         absl::StrAppend(out, stage.place, stashes(stage.stashes));
                       });
}

absl::Status CheckOffload(const OffloadChoice& choice, const RecomputeChoice& recompute,
                          int32_t depth) {
  RecomputeChoice places;
  for (const OffloadChoice::Stage& stage : choice.stages) places.places.push_back(stage.place);
  PENSTOCK_RETURN_IF_ERROR(CheckPlaces(places, depth));
  for (int32_t place = 0; place < depth; ++place) {
    if (choice.StashesOf(place) == 0 || !recompute.Has(place)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("names stage ", place,
                     ", which recomputes and so keeps no stash; let it do one of the two"));
  }
  return absl::OkStatus();
}

std::vector<int64_t> StashesPeak(const Program& program, const Topology& topology) {
  std::vector<int64_t> live(topology.stages());
  std::vector<int64_t> peak(topology.stages());
  Program walked = program;
  // Every copy leaves as many as it found, so that the second shows all that the others would.
  walked.repeats = std::min<int64_t>(walked.repeats, 2);
  for (ProgramCursor cursor(walked); !cursor.Done(); cursor.Advance()) {
    const Action action = cursor.Current();
    if (action.kind == ActionKind::kForward) {
      peak[action.index] = std::max(peak[action.index], ++live[action.index]);
    } else if (action.kind == ActionKind::kBackwardInput) {
      --live[action.index];
    }
  }
  return peak;
}

void AddOffload(absl::Span<const int32_t> stashes, std::vector<Program>& programs) {
  if (std::all_of(stashes.begin(), stashes.end(), [](int32_t most) { return most == 0; })) return;
  Cycle cycle;
  for (const Program& program : programs) {
    const Cycle own = FindCycle(program, stashes);
    cycle.first = std::max(cycle.first, own.first);
    cycle.length = std::lcm(cycle.length, own.length);
  }
  for (Program& program : programs) program = Offloaded(program, stashes, cycle);
}

}  // namespace penstock
