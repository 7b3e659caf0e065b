// CollectiveClock: when the members of a REDUCE or NORM are done, if the links between workers take time.
//
// Counts the messages that workers send each other (worker/collectives.h): everybody sends first, each over its own
// link to each other worker, on which messages go one after the other.
//
//   replicas of a stage  two exchanges of each bucket: of r replicas each gets its part of it from all others, and
//                        once it has added them up sends them the sum; the first of the next bucket comes before the
//                        second of this one, so that links do not wait for the sum. A bucket leaves when it is whole,
//                        which may be during the last W
//   shared parameters    the messages of schedule/tied_sum.h, one after the other; in an exchange at once
//   copies of weights    from the one that updated them, which waits for nobody
//   replicas of a model  nothing: they are on one worker
//   NORM                 from all to all
//
// Where workers have network cards with a limit, these carry the messages, too, and may be in use by others. Each worker
// then sends to the next one first, so that equal parts meet no other on their way.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "schedule/action.h"
#include "schedule/network_cards.h"
#include "schedule/schedule.h"
#include "schedule/simulate.h"

namespace penstock {

class CollectiveClock {
 public:
  // `cards`: null where they have no limit. REQUIRES: the arguments outlive the clock, and fit each other
  // (CostsNs::From is OK).
  CollectiveClock(const Topology& topology, const WorkerLinks& links, const Traffic& traffic,
                  NetworkCards* cards = nullptr)
      : topology_(topology),
        links_(links),
        traffic_(traffic),
        cards_(cards),
        sent_bytes_(topology.workers),
        reduced_ns_(topology.workers) {}

  // By worker: `now_ns`, what it is when each of `members` begins with `action`, becomes what it is when each is
  // done. Other workers' entries stay. False if it takes no messages that are known; then nothing has changed.
  bool Perform(const Action& action, absl::Span<const WorkerId> members,
               absl::Span<int64_t> now_ns);

  // When something was under way: from the first message that left to the last that came.
  struct Window {
    int64_t start_ns = 0;
    int64_t end_ns = 0;
  };
  // The last W of `worker` before the next REDUCE of `group`, which has begun before it.
  void NoteLastPass(GroupId group, WorkerId worker, Window pass) {
    last_pass_[{group.value, worker}] = pass;
  }
  // By worker, after a Perform that such a W came before: when its part of that was under way. Empty after others.
  const std::map<WorkerId, Window>& early_windows() const { return early_windows_; }

  // The bytes that each worker has sent so far.
  const std::vector<double>& sent_bytes() const { return sent_bytes_; }

 private:
  // A message that is sent at `at_ns`. Returns when it is there.
  int64_t Send(WorkerId from, WorkerId to, double bytes, int64_t at_ns);
  void ReduceReplicas(GroupId id, absl::Span<int64_t> now_ns);
  // When bucket `bucket` of `worker` is whole; `now_ns`: when it has come to the REDUCE.
  int64_t WholeAt(GroupId id, size_t bucket, WorkerId worker, int64_t now_ns) const;
  void ReduceTied(const ReduceGroup& group, const Traffic::OfGroup::Tied& tied,
                  absl::Span<int64_t> now_ns);
  void CopyWeights(const ReduceGroup& group, double bytes, absl::Span<int64_t> now_ns);
  void CombineNorms(absl::Span<const WorkerId> members, absl::Span<int64_t> now_ns);

  const Topology& topology_;
  const WorkerLinks& links_;
  const Traffic& traffic_;
  NetworkCards* const cards_;
  std::vector<double> sent_bytes_;
  std::map<std::pair<WorkerId, WorkerId>, int64_t> free_ns_;  // by direction
  std::map<std::pair<int32_t, WorkerId>, Window> last_pass_;  // by group; until its REDUCE
  std::map<WorkerId, Window> early_windows_;
  std::vector<int64_t>
      reduced_ns_;  // by worker: when it was done with the last reduction of replicas
};

}  // namespace penstock
