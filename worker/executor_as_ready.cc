// The executor in recorded order: it asks what is ready (schedule/ready_order.h), does it, and notes it.
//
// It never asks for a message that is not there, except to learn why its edge ended; so the order in which it
// waits decides nothing.
#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/status.h"
#include "job/run/recorded.h"
#include "worker/executor.h"

namespace penstock {

absl::Status Executor::TrainAsReady(MicrobatchRange& range) {
  const ScheduleOptions options = ScheduleOptionsOf(parts_.job, parts_.topology);
  ReadyOrder order(parts_.topology, parts_.worker,
                   ReadyOrderOptionsOf(parts_.job, options, range, parts_.in_flight_max));
  const std::vector<StageId> stages = parts_.topology.StagesOf(parts_.worker);
  order_log_ = OrderLog(stages, range, parts_.topology[stages.front()].replicas);
  machine_.SetPolicy(WeightPolicyOf(*parts_.job.method, options));
  machine_.BeginRange(Completeness::kTrain);
  BeginWindow();
  while (!order.finished()) {
    PENSTOCK_ASSIGN_OR_RETURN(const std::optional<OrderBlock> block, AwaitBlock(order, range));
    if (!block.has_value()) continue;
    if (!block->backward) {
      PENSTOCK_ASSIGN_OR_RETURN(const bool goes_on, EnterGate(order.MicrobatchOf(*block), range));
      if (!goes_on) {
        order.Shorten(range.count);
        continue;
      }
    }
    PENSTOCK_RETURN_IF_ERROR(PerformBlock(*block, order));
  }
  order_log_.Shorten(range.count);
  return range.count == 0 ? absl::OkStatus() : Perform({ActionKind::kFlush});
}

absl::Status Executor::PerformBlock(const OrderBlock& block, ReadyOrder& order) {
  const int64_t microbatch = order.MicrobatchOf(block);
  for (Action action : order.ActionsOf(block)) {
    action.microbatch = microbatch;
    PENSTOCK_RETURN_IF_ERROR(Perform(action));
  }
  order_log_.Append(block);
  for (const Action& action : order.Done(block)) PENSTOCK_RETURN_IF_ERROR(Perform(action));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<OrderBlock>> Executor::AwaitBlock(ReadyOrder& order,
                                                               MicrobatchRange& range) {
  const auto message_waits = [this](const Action& receive) { return ReceiverOf(receive).Ready(); };
  const auto version_is_made = [this](StageId stage) {
    return machine_.NextForwardVersionIsMade(stage);
  };
  const auto until = Monotonic(Deadline());
  int64_t since_ns = 0;
  while (true) {
    const int64_t heard = parts_.bell->rings();
    if (const auto block = order.Next({message_waits, version_is_made})) {
      if (since_ns > 0) awaited_ = {since_ns, parts_.clock.MonotonicNs()};
      return block;
    }
    // A cut may mean that nothing more comes; the gate hears it here, since it is not entered while nothing
    // is ready.
    if (const std::optional<int64_t> cut_step = parts_.gate.cut_step()) {
      const int64_t count = *cut_step * parts_.job.microbatches - range.first;
      if (count < range.count) {
        range.count = count;
        order.Shorten(count);
        return std::nullopt;
      }
    }
    PENSTOCK_RETURN_IF_ERROR(parts_.gate.cancelled());
    if (since_ns == 0) since_ns = parts_.clock.MonotonicNs();
    if (parts_.bell->WaitBeyond(heard, std::min(until, After(Pulse::kInterval)))) continue;
    courier_.pulse().Beat();
    if (CondVar::Clock::now() >= until) {
      return absl::DeadlineExceededError(
          absl::StrCat("no message that would let worker ", parts_.worker.value,
                       " go on came in time, after ", order_log_.size(), " of ",
                       order_log_.size_complete(), " forwards and backwards of a range"));
    }
  }
}

}  // namespace penstock
