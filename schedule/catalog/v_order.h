// The order of a worker of a V pipeline, which holds stage w on the way down and stage 2W-1-w on the way
// back up.
//
// Written for any number of microbatches of a step; those that a step does not have are left out. W's of
// one stage come in the order of its microbatches, which is the order of its I's.
#pragma once

#include "schedule/catalog/schedules.h"

namespace penstock {

class VOrder {
 public:
  enum Part { kDown, kUp };

  VOrder(const ScheduleOptions& options, WorkerId worker, MicrobatchRange range);

  // The next forward, gradient of the input, or gradient of the weights of one part.
  void F(Part part) { Add(ActionKind::kForward, part, forwards_[part]++); }
  void I(Part part) { Add(ActionKind::kBackwardInput, part, inputs_[part]++); }
  void W(Part part) { Add(ActionKind::kBackwardWeight, part, weights_[part]++); }
  void B(Part part) {
    I(part);
    W(part);
  }

  int64_t forwards(Part part) const { return forwards_[part]; }
  // W's that are due: their I's are listed.
  int64_t due(Part part) const { return inputs_[part] - weights_[part]; }

  // The W's that are still due, both updates, and the whole as the period of a program.
  Program Finish();

 private:
  void Add(ActionKind kind, Part part, int64_t microbatch) {
    if (microbatch >= microbatches_) return;
    program_.period.push_back({kind, stages_[part].value, first_ + microbatch});
  }

  const int64_t microbatches_;
  const int64_t first_;
  StageId stages_[2];
  int64_t forwards_[2] = {0, 0};
  int64_t inputs_[2] = {0, 0};
  int64_t weights_[2] = {0, 0};
  Program program_;
};

}  // namespace penstock
