// The CSV files of PyTorch's pipelining: a line for each worker with the actions of one step, and nothing else.
//
//   0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1
//   1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1
//
// They are a part of what text.h reads: ParseSchedule takes them, and CompleteSchedule (lower.h) adds the
// updates at the end of the step and FLUSH. What the form has no words for cannot be written: updates within
// the range, weights of other versions than the current one, several pipelines, shared parameters, stages
// that do their forward again.
//
// Ansel et al., "PyTorch 2", ASPLOS 2024; the form is that of torch.distributed.pipelining.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "schedule/schedule.h"

namespace penstock {

// A whole backward is one B. Read again and completed it is the same schedule, list by list, but for its name.
//
// Errors: those of CheckSchedule; InvalidArgument saying what of the schedule the form has no words for;
// ResourceExhausted if there are more than kScheduleTextActionsMax actions.
absl::StatusOr<std::string> PrintPipeliningCsv(const Schedule& schedule);

}  // namespace penstock
