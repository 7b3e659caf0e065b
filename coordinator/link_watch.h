// LinkWatch: finds a link between two workers that carries nothing, while both reach the coordinator.
//
// A worker tells with its heartbeats which others it sends to and hears nothing from. Either end may be the reason: a frozen
// process answers nobody, and one that was frozen believes that all others were silent. But such a process sends no heartbeats
// either. So the link is dead, and neither worker is to blame, once several heartbeats of both have come since it fell silent.
//
// DeadLinks remembers such links, and PlaceApart puts workers where they do not need them.
//
// State machines and pure functions without clock or I/O; thread-compatible.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "planner/job/assign.h"

namespace penstock {

// Of one worker of a crew.
class HeartbeatLog {
 public:
  static constexpr size_t kKept = 3;

  void OnHeartbeat(int64_t now_ns);
  // Returns whether kKept heartbeats have come since then.
  bool IsHeardSince(int64_t since_ns) const {
    return heard_ns_.size() == kKept && heard_ns_.front() >= since_ns;
  }

 private:
  std::deque<int64_t> heard_ns_;  // the last kKept
};

class LinkWatch {
 public:
  // A link may be silent for this time, counted from a question that was not answered. A process that is or was frozen for as long
  // has missed too many heartbeats to be mistaken for a dead link.
  static constexpr int64_t kLimitMs = 2000;

  // `reporter` has heard nothing from `peer` for `silent_ms`. Returns whether the link between them is dead.
  static bool IsDead(const HeartbeatLog& reporter, const HeartbeatLog& peer, int64_t silent_ms,
                     int64_t now_ns);
};

// Links between workers, by their names, that were dead a while ago.
class DeadLinks {
 public:
  // A link counts as dead for so long after it was found so: it is tried again then.
  static constexpr int64_t kWhileMs = 60'000;

  void OnDead(const std::string& a, const std::string& b, int64_t now_ns);
  bool Has(const std::string& a, const std::string& b, int64_t now_ns) const;
  bool any(int64_t now_ns) const;

 private:
  std::map<std::pair<std::string, std::string>, int64_t> found_ns_;  // the lesser name first
};

// Two places of a crew whose workers send tensors to each other.
using PlacePair = std::pair<int32_t, int32_t>;

// Returns `count` of the workers, in an order in which none of `pairs` has a dead link: those that come first as far as
// possible. If there is none, or it is not found among the first kOrdersMax, returns the first `count` as they come.
// REQUIRES: there are as many.
inline constexpr int kOrdersMax = 10'000;
std::vector<WorkerOffer> PlaceApart(std::vector<WorkerOffer> workers, int64_t count,
                                    const std::set<PlacePair>& pairs, const DeadLinks& dead,
                                    int64_t now_ns);

}  // namespace penstock
