#include "schedule/catalog/continuous.h"

#include <algorithm>
#include <numeric>

#include "schedule/warm_up.h"

namespace penstock {
namespace {

// By place: the round that the period of its program begins with. When all places have come to the ends of
// their periods, place s has done w(s) r(s) - w(s+1) r(s+1) more forwards than place s + 1 if all begin
// with round 0, which channels of the least capacity may not hold. So the periods of later places begin
// later, by about half of that, and as many gradients as activations are on their way.
std::vector<int64_t> FirstRounds(absl::Span<const int32_t> replicas,
                                 absl::Span<const int64_t> warm_up) {
  std::vector<int64_t> rounds(replicas.size());
  for (size_t place = 0; place + 1 < replicas.size(); ++place) {
    const int64_t next = replicas[place + 1];
    const int64_t here = rounds[place] * replicas[place];
    const int64_t ahead = warm_up[place] * replicas[place] - warm_up[place + 1] * next;
    // Between `here` and `here` + `ahead` there is a multiple of `next`, as ahead >= next.
    const int64_t least = (here + next - 1) / next;
    const int64_t most = (here + ahead) / next;
    const int64_t nearest = (here + ahead / 2 + next / 2) / next;
    rounds[place + 1] = std::clamp(nearest, least, most);
  }
  return rounds;
}

}  // namespace

Program ContinuousOneFOneB(const ScheduleOptions& options, StageId stage, MicrobatchRange range,
                           int64_t update_interval) {
  const Topology& topology = options.topology;
  const int64_t replicas = topology[stage].turns;
  const int64_t rounds = range.count / replicas;
  const int32_t place = topology[stage].place;
  const std::vector<int32_t> all = ReplicasOf(topology);
  const std::vector<int64_t> warm_ups = WarmUpForwards(all, ReplicasMeet::kAtUpdates);
  const int64_t warm_up = std::min(rounds, warm_ups[place]);
  const int64_t first_round = std::min(rounds - warm_up, FirstRounds(all, warm_ups)[place]);
  // All programs repeat themselves after as many microbatches.
  const int64_t shift = std::lcm(topology.cycle, update_interval);
  const int64_t rounds_of_period = shift / replicas;
  const int64_t rounds_of_update = std::max<int64_t>(1, update_interval / replicas);
  Program program{.repeats = (rounds - warm_up - first_round) / rounds_of_period, .shift = shift};
  const auto microbatch = [&](int64_t round) {
    return range.first + round * replicas + topology[stage].replica;
  };
  const auto backward = [&](ActionList& list, int64_t round) {
    if (round + warm_up < rounds) Forward(list, stage, microbatch(round + warm_up));
    Backward(list, stage, microbatch(round));
    if ((round + 1) % rounds_of_update == 0) Update(list, stage);
  };
  for (int64_t round = 0; round < warm_up; ++round) {
    Forward(program.prologue, stage, microbatch(round));
  }
  for (int64_t round = 0; round < first_round; ++round) backward(program.prologue, round);
  for (int64_t round = 0; round < rounds_of_period && program.repeats > 0; ++round) {
    backward(program.period, first_round + round);
  }
  const int64_t rest = first_round + program.repeats * rounds_of_period;
  for (int64_t round = rest; round < rounds; ++round) backward(program.epilogue, round);
  return program;
}

}  // namespace penstock
