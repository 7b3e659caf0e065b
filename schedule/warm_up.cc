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
// kAtUpdates: nobody begins the round after an update before all replicas have ended the one before it, so all rounds of
// a place begin at once, and the microbatch m is due (m mod r(s)) T earlier than above. The more rounds an update has, the
// less often they wait; that they begin together from the first update on stays. The most by which m mod p
// exceeds m mod q is p - gcd(p, q), so that the condition for p = r(s), q = r(s+1) becomes
//     w(s) r(s) >= w(s+1) r(s+1) + r(s+1) + p + q - 2 gcd(p, q).
// Between equal numbers of replicas this adds nothing: they are pipelines beside each other.
//
// The warm-up is the least that satisfies it, from the last place on, which has none.
#include "schedule/warm_up.h"

#include <algorithm>
#include <numeric>

namespace penstock {

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

std::vector<int64_t> MicrobatchesAhead(absl::Span<const int32_t> replicas) {
  std::vector<int64_t> ahead = WarmUpForwards(replicas, ReplicasMeet::kAtUpdates);
  for (size_t place = 0; place < ahead.size(); ++place) ahead[place] *= replicas[place];
  return ahead;
}

}  // namespace penstock
