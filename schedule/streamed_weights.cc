#include "schedule/streamed_weights.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace penstock {
namespace {

// What comes first in a tick.
enum class Phase : uint8_t { kAsk, kGet, kPass, kDrop, kUpdate, kAnswer };

// Collects the actions of a list in any order.
class TickedList {
 public:
  void Add(int64_t tick, Phase phase, ActionKind kind, StageId stage, int64_t microbatch) {
    actions_.push_back({{tick, phase}, {kind, stage.value, microbatch}});
  }

  // By tick and phase; of one phase in the order in which they were added.
  ActionList InOrder() {
    std::stable_sort(actions_.begin(), actions_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    ActionList list;
    for (const auto& [when, action] : actions_) list.push_back(action);
    return list;
  }

 private:
  std::vector<std::pair<std::pair<int64_t, Phase>, Action>> actions_;
};

void AddPasses(const StageWiring& row, const WeightSlot& slot, bool forwards_only,
               TickedList& list) {
  for (int64_t i = 0; i < slot.microbatches.count; ++i) {
    const auto add = [&](ActionKind kind) {
      list.Add(slot.tick + i, Phase::kPass, kind, slot.stage, slot.microbatches.first + i);
    };
    if (row.forward) add(ActionKind::kForward);
    if (!row.backward || forwards_only) continue;
    add(ActionKind::kBackwardInput);
    add(ActionKind::kBackwardWeight);
  }
}

}  // namespace

ActionList StreamedSlots(const Topology& topology, WorkerId worker,
                         absl::Span<const WeightSlot> slots, const StreamedSlotsOptions& options) {
  TickedList list;
  const int64_t begin = slots.empty() ? 0 : slots.front().tick - 1;
  std::vector<int64_t> asks(topology.workers, begin);  // by worker: the tick of its slot before
  std::vector<StageId> passed(topology.workers, StageId(-1));  // and the stage
  for (const WeightSlot& slot : slots) {
    const StageWiring& row = topology[slot.stage];
    const int64_t asked = std::exchange(asks[row.worker.value], slot.tick);
    const int64_t first = slot.microbatches.first;
    const bool streams = row.source.value >= 0;
    const bool loads = topology.Loads(slot.stage);
    const bool again = std::exchange(passed[row.worker.value], slot.stage) == slot.stage;
    if (row.worker == worker) {
      if (streams) list.Add(asked, Phase::kAsk, ActionKind::kSendRequest, slot.stage, first);
      // One worker with one stage has its weights once.
      const int64_t loaded = again ? slot.tick : asked;
      if (loads) list.Add(loaded, Phase::kAsk, ActionKind::kLoadWeights, slot.stage, first);
      if (streams) list.Add(slot.tick, Phase::kGet, ActionKind::kRecvWeights, slot.stage, first);
      AddPasses(row, slot, options.forwards_only, list);
      const int64_t last = slot.tick + slot.microbatches.count - 1;
      if (streams || loads) {
        list.Add(last, Phase::kDrop, ActionKind::kDropWeights, slot.stage, first);
      }
      const bool ends = options.updates_at_once && slot.microbatches.end() == options.step_end;
      if (ends && row.updates) list.Add(last, Phase::kUpdate, ActionKind::kUpdate, slot.stage, 0);
    } else if (streams && topology.worker(row.source) == worker) {
      const int64_t read = topology.weights_in_file ? std::min(asked + 1, slot.tick - 1) : asked;
      list.Add(asked, Phase::kAnswer, ActionKind::kRecvRequest, slot.stage, first);
      list.Add(read, Phase::kAnswer, ActionKind::kSendWeights, slot.stage, first);
    }
  }
  return list.InOrder();
}

}  // namespace penstock
