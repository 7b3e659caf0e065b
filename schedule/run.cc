#include "schedule/run.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"

namespace penstock {
namespace {

void TrimEnd(std::string& text) { text.erase(text.find_last_not_of(' ') + 1); }

// The lists around each blocked worker's position, one column for each worker. Long lists and wide
// pipelines are cut; the sentence in front of the grid names everyone.
std::string Grid(const Schedule& schedule, const std::vector<WorkerId>& workers,
                 const std::vector<int64_t>& positions) {
  constexpr int64_t kRowsAround = 3;
  constexpr size_t kColumnsMax = 8;
  const size_t columns = std::min(workers.size(), kColumnsMax);
  std::string grid = "     ";
  for (size_t column = 0; column < columns; ++column) {
    absl::StrAppendFormat(&grid, " %-12s", absl::StrCat("worker ", workers[column].value));
  }
  if (columns < workers.size()) {
    absl::StrAppend(&grid, " and ", workers.size() - columns, " more");
  }
  TrimEnd(grid);
  for (int64_t row = -kRowsAround; row <= kRowsAround; ++row) {
    absl::StrAppend(&grid, row == 0 ? "\n --> " : "\n     ");
    for (size_t column = 0; column < columns; ++column) {
      const Program& program = schedule.programs[workers[column].value];
      const int64_t position = positions[column] + row;
      const bool exists = position >= 0 && position < program.size();
      absl::StrAppendFormat(&grid, " %-12s", exists ? ToString(program.At(position)) : "");
    }
    TrimEnd(grid);
  }
  return grid;
}

}  // namespace

Interpreter::Interpreter(const Schedule& schedule, int32_t channel_capacity, RunObserver& observer)
    : schedule_(schedule),
      channel_capacity_(channel_capacity),
      observer_(observer),
      channels_(schedule.topology.edges.size()),
      periods_max_(std::numeric_limits<int64_t>::max()) {
  const Topology& topology = schedule.topology;
  for (size_t group = 0; group < topology.groups.size(); ++group) {
    members_.push_back(topology.WorkersOf(GroupId(static_cast<int32_t>(group))));
  }
  std::vector<WorkerId> everyone;
  for (int32_t id = 0; id < topology.workers; ++id) {
    const WorkerId worker(id);
    everyone.push_back(worker);
    workers_.push_back({worker, ProgramCursor(schedule.programs[id]),
                        Machine(topology, worker, schedule.weight_policy)});
    workers_.back().machine.BeginRange(schedule.completeness);
  }
  members_.push_back(std::move(everyone));
}

absl::StatusOr<bool> Interpreter::RunToEnd() {
  periods_max_ = std::numeric_limits<int64_t>::max();
  PENSTOCK_ASSIGN_OR_RETURN(const bool done, RunUntilBlocked());
  if (!done) return false;
  for (size_t channel = 0; channel < channels_.size(); ++channel) {
    const std::deque<int64_t>& left = channels_[channel].messages;
    if (left.empty()) continue;
    const Edge& edge = schedule_.topology.edges[channel];
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", schedule_.topology.worker(edge.to).value, " ends without ",
                     ToString(edge.Receive(left.front())), ", which was sent"));
  }
  return true;
}

absl::StatusOr<bool> Interpreter::RunToPeriod(int64_t periods) {
  periods_max_ = periods;
  return RunUntilBlocked();
}

absl::StatusOr<bool> Interpreter::RunUntilBlocked() {
  bool moved = true;
  while (moved) {
    moved = false;
    for (Worker& worker : workers_) {
      while (!Halted(worker)) {
        current_worker_ = worker.id;
        current_position_ = worker.cursor.position();
        PENSTOCK_ASSIGN_OR_RETURN(const bool advanced, TryAdvance(worker));
        if (!advanced) break;
        moved = true;
      }
    }
  }
  current_position_ = -1;
  return std::all_of(workers_.begin(), workers_.end(),
                     [this](const Worker& worker) { return Halted(worker); });
}

absl::StatusOr<bool> Interpreter::TryAdvance(Worker& worker) {
  const Action action = worker.cursor.Current();
  if (IsSend(action.kind) || IsReceive(action.kind)) return TryMessage(worker, action);
  if (IsCollective(action.kind) && !MembersOf(action).empty()) return TryCollective(action);
  PENSTOCK_ASSIGN_OR_RETURN(const Effect effect, worker.machine.Apply(action));
  worker.cursor.Advance();
  PENSTOCK_RETURN_IF_ERROR(observer_.OnAction(worker.id, action, effect, MessageId()));
  return true;
}

absl::StatusOr<bool> Interpreter::TryMessage(Worker& worker, const Action& action) {
  MessageId message{.channel = schedule_.topology.EdgeOf(action)};
  Channel* channel = message.channel < 0 ? nullptr : &channels_[message.channel];
  if (channel != nullptr && IsSend(action.kind) && IsFull(action)) return false;
  if (channel != nullptr && IsReceive(action.kind)) {
    if (channel->messages.empty()) return false;
    if (channel->messages.front() != action.microbatch) {
      return absl::FailedPreconditionError(
          absl::StrCat("worker ", worker.id.value, ": ", ToString(action),
                       ": the next message is that of microbatch ", channel->messages.front()));
    }
  }
  // Without a channel the machine refuses.
  PENSTOCK_ASSIGN_OR_RETURN(const Effect effect, worker.machine.Apply(action));
  if (IsSend(action.kind)) {
    channel->messages.push_back(action.microbatch);
    message.number = channel->sent++;
  } else {
    channel->messages.pop_front();
    message.number = channel->received++;
  }
  worker.cursor.Advance();
  PENSTOCK_RETURN_IF_ERROR(observer_.OnAction(worker.id, action, effect, message));
  return true;
}

absl::StatusOr<bool> Interpreter::TryCollective(const Action& action) {
  const absl::Span<const WorkerId> members = MembersOf(action);
  for (const WorkerId id : members) {
    const Worker& member = workers_[id.value];
    if (Halted(member) || member.cursor.Current() != action) return false;
  }
  std::optional<MicrobatchRange> reduced;
  for (const WorkerId id : members) {
    Worker& member = workers_[id.value];
    PENSTOCK_ASSIGN_OR_RETURN(const Effect effect, member.machine.Apply(action));
    if (reduced.value_or(effect.microbatches) != effect.microbatches) {
      return absl::FailedPreconditionError(absl::StrCat(
          "worker ", id.value, ": ", ToString(action), ": its gradients are of microbatches ",
          effect.microbatches.first, "+", effect.microbatches.count, ", those of worker ",
          members.front().value, " of ", reduced->first, "+", reduced->count));
    }
    reduced = effect.microbatches;
    member.cursor.Advance();
  }
  observer_.OnCollective(action, members);
  return true;
}

absl::Span<const WorkerId> Interpreter::MembersOf(const Action& action) const {
  if (action.kind == ActionKind::kNorm) return members_.back();
  const auto groups = static_cast<int32_t>(members_.size()) - 1;
  if (action.index < 0 || action.index >= groups) return {};
  return members_[action.index];
}

bool Interpreter::IsFull(const Action& send) const {
  return static_cast<int64_t>(channels_[schedule_.topology.EdgeOf(send)].messages.size()) >=
         channel_capacity_;
}

bool Interpreter::BlockedOnFullChannel() const {
  return std::any_of(workers_.begin(), workers_.end(), [this](const Worker& worker) {
    if (worker.cursor.Done()) return false;
    const Action action = worker.cursor.Current();
    return IsSend(action.kind) && IsFull(action);
  });
}

std::string Interpreter::WhyBlocked(const Action& action) const {
  if (IsSend(action.kind)) return "the channel is full";
  if (IsReceive(action.kind)) return "no message comes";
  std::string missing = "waits for";
  for (const WorkerId id : MembersOf(action)) {
    const Worker& member = workers_[id.value];
    if (!member.cursor.Done() && member.cursor.Current() == action) continue;
    absl::StrAppend(&missing, " worker ", id.value);
  }
  return missing;
}

std::string Interpreter::DescribeBlocked() const {
  std::string sentence;
  std::vector<WorkerId> blocked;
  std::vector<int64_t> positions;
  for (const Worker& worker : workers_) {
    if (worker.cursor.Done()) continue;
    const Action action = worker.cursor.Current();
    absl::StrAppend(&sentence, blocked.empty() ? "" : ", ", "worker ", worker.id.value, " at ",
                    ToString(action), " (", WhyBlocked(action), ")");
    blocked.push_back(worker.id);
    positions.push_back(worker.cursor.position());
  }
  return absl::StrCat(sentence, "\n", Grid(schedule_, blocked, positions));
}

std::string Interpreter::DrawFailure() const {
  if (current_position_ < 0) return "";
  std::vector<WorkerId> workers = {current_worker_};
  std::vector<int64_t> positions = {current_position_};
  for (const Worker& worker : workers_) {
    if (worker.id == current_worker_) continue;
    workers.push_back(worker.id);
    positions.push_back(worker.cursor.position());
  }
  return Grid(schedule_, workers, positions);
}

void Interpreter::AppendRelativeState(int64_t origin, std::vector<int64_t>& state) const {
  for (const Worker& worker : workers_) worker.machine.AppendRelativeState(origin, state);
  for (const Channel& channel : channels_) {
    state.push_back(static_cast<int64_t>(channel.messages.size()));
    for (const int64_t microbatch : channel.messages) state.push_back(microbatch - origin);
  }
}

}  // namespace penstock
