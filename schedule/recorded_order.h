// RecordedOrder: the order of every worker over the ranges of a run, as it was logged, and what that run was.
//
// A value; thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "schedule/order_log.h"
#include "schedule/schedule.h"

namespace penstock {

struct RecordedOrder {
  struct Stage {
    WorkerId worker;
    int32_t first_layer = 0;
    int32_t layers = 0;
    friend bool operator==(const Stage&, const Stage&) = default;
  };
  struct Range {
    MicrobatchRange microbatches;
    std::vector<OrderLog> workers;  // complete, by WorkerId
    friend bool operator==(const Range&, const Range&) = default;
  };

  std::string method;
  std::string weights;       // of the policy; empty: the method's own
  int64_t microbatches = 0;  // of a step
  std::vector<Stage> stages;
  std::vector<Range> ranges;  // ascending, without gaps

  // Workers, as the stages name them.
  int32_t workers() const;
  std::vector<StageId> StagesOf(WorkerId worker) const;
  // The stages of each place, which have the same layers: replicas, microbatch m of a range going through the m-th of
  // them, counted round.
  std::vector<std::vector<StageId>> Places() const;
  // Replicas of a place that the worker has a stage of. REQUIRES: it has one.
  int32_t ReplicasOn(WorkerId worker) const;

  friend bool operator==(const RecordedOrder&, const RecordedOrder&) = default;
};

// Adds the ranges of a run that went on where `order` ended.
// Errors: InvalidArgument if the two are of different jobs, or there is a gap.
absl::Status Continue(const RecordedOrder& later, RecordedOrder& order);

// The text form: lines of words, and what follows a # is for people.
//
//   penstock-order 1
//   method pipedream
//   microbatches 4
//   stage 0 worker 0 layers 0+3
//   stage 1 worker 1 layers 3+4
//   range 0+4
//   worker 0
//    0F*2 0B 0F 0B 0F 0B*2
//   worker 1
//    1F 1B 1F 1B 1F 1B 1F 1B
//   end
//
// 0F*2 are two forwards of stage 0, 0B is one backward. Which microbatch each is of follows by counting. Stages
// beside each other with the same layers are replicas.
std::string PrintRecordedOrder(const RecordedOrder& order);

// The inverse. Errors: InvalidArgument with the line, and the worker and block where it is in one: not this
// form, a stage that is not on the worker, more or fewer blocks than the range has, a gap between ranges, or
// no end.
absl::StatusOr<RecordedOrder> ParseRecordedOrder(absl::string_view text);

}  // namespace penstock
