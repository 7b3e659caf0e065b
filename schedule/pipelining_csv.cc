#include "schedule/pipelining_csv.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/lower.h"
#include "schedule/text.h"
#include "schedule/text_words.h"

namespace penstock {
namespace {

absl::Status NoWordsFor(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("PyTorch's form has no words for ", what));
}

absl::Status CheckWords(const Schedule& schedule) {
  const Topology& topology = schedule.topology;
  if (topology.form == Topology::Form::kThereAndBack) {
    return NoWordsFor("pipelines that go there and back");
  }
  if (topology.form == Topology::Form::kReplicas) return NoWordsFor("replicas of stages");
  if (topology.pipelines > 1) return NoWordsFor(absl::StrCat(topology.pipelines, " replicas"));
  if (!topology.groups.empty()) return NoWordsFor("stages that share parameters");
  if (MovesStashes(schedule)) return NoWordsFor("stashes that wait on the host");
  if (!topology.Recomputing().empty()) return NoWordsFor("stages that do their forward again");
  if (schedule.weight_policy == kSingleVersion) return absl::OkStatus();
  return NoWordsFor(absl::StrCat(
      "weights that are not the current ones (weights=", ToString(schedule.weight_policy), ")"));
}

int64_t ActionsOf(const Schedule& schedule) {
  int64_t actions = 0;
  for (const Program& program : schedule.programs) {
    actions += std::min(program.size(), kScheduleTextActionsMax + 1);
    if (actions > kScheduleTextActionsMax) break;
  }
  return actions;
}

// The actions of the step without the updates after it, which the form leaves out.
absl::StatusOr<ActionList> StepOf(const Program& program) {
  ActionList list = Expand(program);
  const auto is_message_or_pass = [](const Action& action) { return HasMicrobatch(action.kind); };
  const auto end = std::find_if_not(list.begin(), list.end(), is_message_or_pass);
  const auto again = std::find_if(end, list.end(), is_message_or_pass);
  if (again != list.end()) {
    return NoWordsFor(absl::StrCat("an update within the range (", ToString(*end), " before ",
                                   ToString(*again), "); it holds one step"));
  }
  const auto other = std::find_if(end, list.end(), [](const Action& action) {
    return action.kind != ActionKind::kUpdate && action.kind != ActionKind::kFlush;
  });
  if (other != list.end()) return NoWordsFor(ToString(*other));
  list.erase(end, list.end());
  return list;
}

}  // namespace

absl::StatusOr<std::string> PrintPipeliningCsv(const Schedule& schedule) {
  PENSTOCK_RETURN_IF_ERROR(CheckSchedule(schedule));
  PENSTOCK_RETURN_IF_ERROR(CheckWords(schedule));
  if (ActionsOf(schedule) > kScheduleTextActionsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the schedule has more than ", kScheduleTextActionsMax, " actions"));
  }
  std::string text;
  for (const Program& program : schedule.programs) {
    PENSTOCK_ASSIGN_OR_RETURN(const ActionList step, StepOf(program));
    AppendActions(step, /*merge_backward=*/true, text);
    text += '\n';
  }
  return text;
}

}  // namespace penstock
