// How deep the pipeline is filled where place s has r(s) replicas, and microbatch m goes through replica m mod
// r(s). Let a microbatch take a replica of place s the time r(s) T, in all, so that every place passes one
// on in each T, and let place s have done w(s) forwards on each replica before its first backward. Each place
// repeats itself after r(s) microbatches: a round, of r(s) T.
//
// kAtSteps: the rounds of replica i begin i T after those of replica 0, so that a forward and a backward of
// place s are due T after those of the microbatch before. The forward of a microbatch on place s + 1 must not
// be due before the one on place s is done, nor its backward on place s before the one on place s + 1.
// Added up the two say
//     w(s) r(s) >= w(s+1) r(s+1) + r(s+1),
// and where it holds a timetable without gaps exists, so that as soon as possible is as fast.
//
// kAtUpdates: nobody begins a round before all replicas have ended the one before, so all rounds of a place
// begin at once, and the microbatch m is due (m mod r(s)) T earlier than above. The most by which m mod p
// exceeds m mod q is p - gcd(p, q), so that the condition for p = r(s), q = r(s+1) becomes
//     w(s) r(s) >= w(s+1) r(s+1) + r(s+1) + p + q - 2 gcd(p, q).
// Between equal numbers of replicas this adds nothing: they are pipelines beside each other.
//
// The warm-up is the least that satisfies it, from the last place on, which has none.
#include "schedule/catalog/replicas.h"

#include <algorithm>
#include <numeric>

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

std::vector<int64_t> WarmUpForwards(absl::Span<const int32_t> replicas, ReplicasMeet meet) {
  std::vector<int64_t> forwards(replicas.size());
  for (size_t place = replicas.size() - 1; place > 0; --place) {
    const int64_t own = replicas[place - 1];
    const int64_t next = replicas[place];
    int64_t ahead = (forwards[place] + 1) * next;
    if (meet == ReplicasMeet::kAtUpdates) ahead += own + next - 2 * std::gcd(own, next);
    forwards[place - 1] = (ahead + own - 1) / own;
  }
  return forwards;
}

int64_t WarmUpForwardsOf(const Topology& topology, StageId stage, ReplicasMeet meet) {
  return WarmUpForwards(ReplicasOf(topology), meet)[topology[stage].place];
}

Program RoundRobinOneFOneB(const Topology& topology, StageId stage, MicrobatchRange range) {
  const int64_t replicas = topology[stage].turns;
  const int64_t rounds = range.count / replicas;
  const int32_t place = topology[stage].place;
  const std::vector<int32_t> all = ReplicasOf(topology);
  const std::vector<int64_t> warm_ups = WarmUpForwards(all, ReplicasMeet::kAtUpdates);
  const int64_t warm_up = std::min(rounds, warm_ups[place]);
  const int64_t first_round = std::min(rounds - warm_up, FirstRounds(all, warm_ups)[place]);
  // All programs repeat themselves after as many microbatches.
  const int64_t rounds_of_period = topology.cycle / replicas;
  Program program{.repeats = (rounds - warm_up - first_round) / rounds_of_period,
                  .shift = topology.cycle};
  const auto microbatch = [&](int64_t round) {
    return range.first + round * replicas + topology[stage].replica;
  };
  const auto backward = [&](ActionList& list, int64_t round) {
    if (round + warm_up < rounds) Forward(list, stage, microbatch(round + warm_up));
    Backward(list, stage, microbatch(round));
    Update(list, stage);
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
