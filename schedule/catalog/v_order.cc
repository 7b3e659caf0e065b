#include "schedule/catalog/v_order.h"

namespace penstock {

VOrder::VOrder(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range)
    : microbatches_(options.microbatches_per_step),
      first_(range.first),
      stages_{StageOf(worker), StageId(options.topology.stages() - 1 - worker.value)},
      program_{.repeats = range.count / microbatches_, .shift = microbatches_} {}

Program VOrder::Finish() {
  for (const Part part : {kUp, kDown}) {
    while (due(part) > 0) W(part);
  }
  for (const StageId stage : stages_) Update(program_.period, stage);
  return std::move(program_);
}

}  // namespace penstock
