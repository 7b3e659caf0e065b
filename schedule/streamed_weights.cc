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

// A slot, and when the workers begin the slots before it.
struct PlacedSlot {
  const WeightSlot& slot;
  const StageWiring& row;
  int64_t asked = 0;   // the tick of the slot before of the same worker
  bool again = false;  // that one has the same stage
};

class SlotList {
 public:
  SlotList(const Topology& topology, const StreamedSlotsOptions& options)
      : topology_(topology), options_(options) {}

  void AddOwn(const PlacedSlot& placed) {
    const WeightSlot& slot = placed.slot;
    const bool streams = placed.row.source.value >= 0;
    const bool loads = topology_.Loads(slot.stage);
    const auto add = [&](int64_t tick, Phase phase, ActionKind kind) {
      list_.Add(tick, phase, kind, slot.stage, slot.microbatches.first);
    };
    if (streams) add(placed.asked, Phase::kAsk, ActionKind::kSendRequest);
    // One worker with one stage has its weights once.
    const int64_t loaded = placed.again ? slot.tick : placed.asked;
    if (loads) add(loaded, Phase::kAsk, ActionKind::kLoadWeights);
    if (streams) add(slot.tick, Phase::kGet, ActionKind::kRecvWeights);
    AddPasses(placed);
    const int64_t last = slot.tick + slot.microbatches.count - 1;
    if (streams || loads) add(last, Phase::kDrop, ActionKind::kDropWeights);
    const bool ends =
        options_.updates_at_once && slot.microbatches.end() % topology_.rounds.step == 0;
    if (ends && placed.row.updates) {
      list_.Add(last, Phase::kUpdate, ActionKind::kUpdate, slot.stage, 0);
    }
  }

  // What this worker does for a slot of another that passes a part which is its own.
  void AddAnswer(const PlacedSlot& placed) {
    const WeightSlot& slot = placed.slot;
    const int64_t first = slot.microbatches.first;
    const int64_t read =
        topology_.weights_in_file ? std::min(placed.asked + 1, slot.tick - 1) : placed.asked;
    list_.Add(placed.asked, Phase::kAnswer, ActionKind::kRecvRequest, slot.stage, first);
    list_.Add(read, Phase::kAnswer, ActionKind::kSendWeights, slot.stage, first);
  }

  // The sum of `stage`, of this worker, with which another one's slot goes on, after the first pass of tick `sent`.
  void AddSum(StageId stage, const WeightSlot& slot, int64_t sent) {
    list_.Add(sent, Phase::kAnswer, ActionKind::kSendSum, stage, slot.microbatches.first);
  }

  ActionList InOrder() { return list_.InOrder(); }

 private:
  void AddPasses(const PlacedSlot& placed) {
    const WeightSlot& slot = placed.slot;
    for (int64_t i = 0; i < slot.microbatches.count; ++i) {
      const auto add = [&](ActionKind kind) {
        list_.Add(slot.tick + i, Phase::kPass, kind, slot.stage, slot.microbatches.first + i);
      };
      if (placed.row.forward) add(ActionKind::kForward);
      if (!placed.row.backward || options_.forwards_only) continue;
      add(ActionKind::kBackwardInput);
      add(ActionKind::kBackwardWeight);
    }
  }

  const Topology& topology_;
  const StreamedSlotsOptions& options_;
  TickedList list_;
};

}  // namespace

ActionList StreamedSlots(const Topology& topology, WorkerId worker,
                         absl::Span<const WeightSlot> slots, const StreamedSlotsOptions& options) {
  SlotList list(topology, options);
  const int64_t start = slots.empty() ? 0 : slots.front().tick - 1;
  std::vector<int64_t> begun(topology.workers, start);         // by worker: the tick of its slot
  std::vector<int64_t> before(topology.workers, start);        // and of the one before that
  std::vector<StageId> passed(topology.workers, StageId(-1));  // and its last stage
  for (const WeightSlot& slot : slots) {
    const StageWiring& row = topology[slot.stage];
    const int32_t on = row.worker.value;
    if (slot.tick != begun[on]) before[on] = std::exchange(begun[on], slot.tick);
    const PlacedSlot placed = {.slot = slot,
                               .row = row,
                               .asked = before[on],
                               .again = std::exchange(passed[on], slot.stage) == slot.stage};
    const int64_t first = slot.microbatches.first;
    if (row.worker == worker) {
      list.AddOwn(placed);
    } else if (row.source.value >= 0 && topology.worker(row.source) == worker) {
      list.AddAnswer(placed);
    }
    if (!row.backward || options.forwards_only || !topology.GoesOnWithSum(first)) continue;
    const StageId summed = topology.StageAt(row.place, first - 1);
    if (topology.worker(summed) == worker) list.AddSum(summed, slot, begun[worker.value]);
  }
  return list.InOrder();
}

}  // namespace penstock
