#include "schedule/sent_bytes.h"

#include <cstdint>
#include <utility>

#include "schedule/collective_clock.h"

namespace penstock {
namespace {

// Calls `visit(action, times)` for each action that is written down; microbatches are those of the first copy.
template <typename Visit>
void ForEachWritten(const Program& program, const Visit& visit) {
  for (const auto& [list, times] :
       {std::pair(&program.prologue, int64_t{1}), std::pair(&program.period, program.repeats),
        std::pair(&program.epilogue, int64_t{1})}) {
    for (const Action& action : *list) visit(action, times);
  }
}

// Adds what each worker sends for a collective that is the same each time.
void AddCollective(const Schedule& schedule, const Traffic& traffic, const Action& collective,
                   const std::vector<WorkerId>& members, std::vector<double>& sent) {
  int64_t count = 0;
  ForEachWritten(schedule.programs[members.front().value],
                 [&](const Action& action, int64_t times) {
                   if (action == collective) count += times;
                 });
  const WorkerLinks links;
  CollectiveClock once(schedule.topology, links, traffic);
  std::vector<int64_t> now_ns(schedule.topology.workers);
  once.Perform(collective, members, absl::MakeSpan(now_ns));
  for (size_t worker = 0; worker < sent.size(); ++worker) {
    sent[worker] += static_cast<double>(count) * once.sent_bytes()[worker];
  }
}

}  // namespace

std::vector<double> SentBytesOf(const Schedule& schedule, const Traffic& traffic) {
  const Topology& topology = schedule.topology;
  std::vector<double> sent(topology.workers);
  std::vector<WorkerId> workers;
  for (int32_t worker = 0; worker < topology.workers; ++worker) {
    workers.emplace_back(worker);
    ForEachWritten(schedule.programs[worker], [&](const Action& action, int64_t times) {
      if (IsSend(action.kind)) sent[worker] += static_cast<double>(times) * traffic.BytesOf(action);
    });
  }
  for (int32_t group = 0; group < static_cast<int32_t>(topology.groups.size()); ++group) {
    AddCollective(schedule, traffic, {ActionKind::kReduce, group},
                  topology.WorkersOf(GroupId(group)), sent);
  }
  for (int32_t norm = 0; norm < topology.norms(); ++norm) {
    AddCollective(schedule, traffic, {ActionKind::kNorm, norm}, workers, sent);
  }
  return sent;
}

}  // namespace penstock
