// The text form of a whole schedule: a header line, then one line for each worker, in the manner of
// the CSV files of PyTorch's pipelining.
//
//   # penstock schedule 1 name=pipedream weights=stash complete=train range=0+100 stages=0,1
//   0F0,0SEND_F0,[0F1,0SEND_F1,0RECV_B0,0I0,0W0,0UPDATE]*99+1,0RECV_B99,0I99,0W99,0UPDATE,FLUSH
//   [1RECV_F0,1F0,1I0,1W0,1SEND_B0,1UPDATE]*100+1,FLUSH
//
// [...]*R+D is a period: R copies, the microbatches of each D more than of the one before. `stages`
// lists the worker of each stage, `range` is first microbatch + count, and a group of stages that
// share parameters is group=gradient:sum:0,3. pipelines=2 says that the stages make two pipelines, which
// microbatches go through in turn, replicas=3,1 that the first three stages are replicas of one,
// rounds=4/8 that pipelines go there and back, in rounds of 4 of the 8 microbatches of a step, recompute=0,2
// that these stages do their forward again. 0B3 stands for 0I3,0W3. Empty cells, empty lines, and further
// lines that start with # are skipped.
//
// Where the header, or a file without one (PyTorch's), does not say it, it follows from the actions: a
// stage is on the worker whose line has it, the range is that of the forwards, and the stages that have an R
// recompute.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "schedule/schedule.h"

namespace penstock {

struct ScheduleTextOptions {
  bool merge_backward = false;  // 0B3 for adjacent 0I3 and 0W3
  bool expand = false;          // every action of every copy instead of [...]*R+D
};

// Characters of the name that a header cannot hold become '-'.
std::string PrintSchedule(const Schedule& schedule, const ScheduleTextOptions& options = {});

// The inverse. Nothing is checked beyond the form: call Verify, and CompleteSchedule (lower.h) if
// the lists hold compute actions only.
//
// Errors: InvalidArgument with line, column and the text in question (numbers of microbatches, copies
// and shifts that are not below kMicrobatchMax among them); ResourceExhausted if there
// are more than kScheduleTextActionsMax actions in the lists.
inline constexpr int64_t kScheduleTextActionsMax = 10'000'000;
absl::StatusOr<Schedule> ParseSchedule(absl::string_view text);

// Tells the user that `text` has a name of the version before, which ParseSchedule still takes. Empty: it has none.
std::string NoteOnOldNames(absl::string_view text);

}  // namespace penstock
