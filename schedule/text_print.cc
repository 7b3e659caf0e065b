#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "schedule/text.h"
#include "schedule/text_words.h"

namespace penstock {
namespace {

template <typename TypedId>
std::string JoinIds(const std::vector<TypedId>& ids) {
  return absl::StrJoin(ids, ",",
                       [](std::string* out, TypedId id) { absl::StrAppend(out, id.value); });
}

std::string PrintHeader(const Schedule& schedule) {
  std::string name = schedule.name.empty() ? "-" : schedule.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !IsScheduleNameCharacter(c); }, '-');
  std::string header = absl::StrCat(
      kScheduleTextHeader, " name=", name, " weights=", ToString(schedule.weight_policy),
      " complete=", CompletenessName(schedule.completeness), " range=", schedule.range.first, "+",
      schedule.range.count, " stages=",
      absl::StrJoin(schedule.topology.table, ",", [](std::string* out, const StageWiring& row) {
        absl::StrAppend(out, row.worker.value);
      }));
  if (schedule.topology.pipelines > 1) {
    absl::StrAppend(&header, " pipelines=", schedule.topology.pipelines);
  }
  if (schedule.topology.form == Topology::Form::kReplicas) {
    absl::StrAppend(&header, " replicas=", absl::StrJoin(ReplicasOf(schedule.topology), ","));
  }
  if (schedule.topology.form == Topology::Form::kThereAndBack) {
    const Topology::Rounds& rounds = schedule.topology.rounds;
    absl::StrAppend(&header, " rounds=", rounds.microbatches, "/", rounds.step);
    if (schedule.topology.streams_weights) {
      absl::StrAppend(&header, " stream=", schedule.topology.weights_in_file ? "file" : "weights");
    }
  }
  if (const std::vector<StageId> recomputes = schedule.topology.Recomputing();
      !recomputes.empty()) {
    absl::StrAppend(&header, " recompute=", JoinIds(recomputes));
  }
  for (const ReduceGroup& group : schedule.topology.groups) {
    absl::StrAppend(&header, " group=", QuantityName(group.quantity), ":",
                    OperationName(group.operation), ":", JoinIds(group.stages));
  }
  return header;
}

void PrintProgram(const Program& program, const ScheduleTextOptions& options, std::string& text) {
  if (options.expand) {
    AppendActions(Expand(program), options.merge_backward, text);
    return;
  }
  AppendActions(program.prologue, options.merge_backward, text);
  if (program.repeats > 0 && !program.period.empty()) {
    if (!program.prologue.empty()) text += ',';
    text += '[';
    AppendActions(program.period, options.merge_backward, text);
    absl::StrAppend(&text, "]*", program.repeats, "+", program.shift);
    if (!program.epilogue.empty()) text += ',';
  } else if (!program.prologue.empty() && !program.epilogue.empty()) {
    text += ',';
  }
  AppendActions(program.epilogue, options.merge_backward, text);
}

}  // namespace

void AppendActions(const ActionList& list, bool merge_backward, std::string& text) {
  for (size_t i = 0; i < list.size(); ++i) {
    const Action& action = list[i];
    if (i > 0) text += ',';
    if (merge_backward && action.kind == ActionKind::kBackwardInput && i + 1 < list.size() &&
        list[i + 1] == Action{ActionKind::kBackwardWeight, action.index, action.microbatch}) {
      absl::StrAppend(&text, action.index, "B", action.microbatch);
      ++i;
    } else {
      text += ToString(action);
    }
  }
}

std::string PrintSchedule(const Schedule& schedule, const ScheduleTextOptions& options) {
  std::string text = PrintHeader(schedule);
  text += '\n';
  for (const Program& program : schedule.programs) {
    PrintProgram(program, options, text);
    text += '\n';
  }
  return text;
}

}  // namespace penstock
