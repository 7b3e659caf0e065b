// DualPipe-V: a V pipeline whose workers pass one microbatch forward and another back at the same time,
// so that the messages of one hide behind the work of the other. Here a worker does one thing at a time:
// the order is kept, the overlap is that of messages with computation.
//
// With W workers of two stages, M >= 2W microbatches in a step, and equal times of F, I and W:
//   bubble            W-1 of these times in a step on every worker
//   activation stash  2W-s on stage s counted from 0 (between F and W), each of half the size of 1F1B's
//   weight versions   1; staleness 0
//
// With r replicas of every stage these are pipelines beside each other, each with M/r of the microbatches.
//
// DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, arXiv 2412.19437 (DualPipe); its cut-in-half form is
// described at github.com/deepseek-ai/DualPipe.
#include <algorithm>
#include <deque>

#include "schedule/catalog/v_order.h"

namespace penstock {

Program DualPipeV(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range) {
  constexpr auto kDown = VOrder::kDown;
  constexpr auto kUp = VOrder::kUp;
  const int64_t workers = options.topology.workers;
  const int64_t before = worker.value;
  const int64_t after = workers - 1 - before;
  // The order is made for steps that fill the pipeline.
  const int64_t microbatches = std::max(options.microbatches_per_step, 2 * workers);
  VOrder order(options, worker, range);
  std::deque<VOrder::Part> put_off;  // W's, oldest first
  const auto input_only = [&](VOrder::Part part) {
    order.I(part);
    put_off.push_back(part);
  };
  const auto oldest_weight = [&] {
    if (put_off.empty()) return;
    order.W(put_off.front());
    put_off.pop_front();
  };

  for (int64_t i = 0; i < 2 * after; ++i) order.F(kDown);
  for (int64_t i = 0; i < before + 1; ++i) {
    order.F(kDown);
    order.F(kUp);
  }
  for (int64_t i = 0; i < after; ++i) {
    input_only(kUp);
    oldest_weight();
    order.F(kUp);
  }
  for (int64_t i = 0; i < microbatches - 2 * workers + before + 1; ++i) {
    order.F(kDown);
    order.B(kUp);
    order.F(kUp);
    order.B(kDown);
  }
  for (int64_t i = 0; i < after; ++i) {
    order.B(kUp);
    order.F(kUp);
    order.B(kDown);
  }
  // The second half of the remaining backwards leaves its W's for the drain.
  for (int64_t i = 0; i < before + 1; ++i) {
    const int64_t half = (before + 1) / 2;
    const bool up_late = i > half || (i == half && before % 2 == 1);
    const bool down_late = i >= half;
    up_late ? input_only(kUp) : order.B(kUp);
    down_late ? input_only(kDown) : order.B(kDown);
  }
  for (int64_t i = 0; i < after; ++i) {
    oldest_weight();
    input_only(kDown);
  }
  while (!put_off.empty()) oldest_weight();
  return order.Finish();
}

}  // namespace penstock
