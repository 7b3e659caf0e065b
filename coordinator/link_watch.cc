#include "coordinator/link_watch.h"

#include <algorithm>

#include "coordinator/effects.h"

namespace penstock {
namespace {

// Fills the places from the first on, and goes back where nobody fits.
class Placing {
 public:
  Placing(const std::vector<WorkerOffer>& workers, int64_t count, const std::set<PlacePair>& pairs,
          const DeadLinks& dead, int64_t now_ns)
      : workers_(workers), count_(count), pairs_(pairs), dead_(dead), now_ns_(now_ns) {}

  bool Fill() {
    if (static_cast<int64_t>(placed_.size()) == count_) return true;
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (std::find(placed_.begin(), placed_.end(), i) != placed_.end() || !Fits(i)) continue;
      if (++tried_ > kOrdersMax) return false;
      placed_.push_back(i);
      if (Fill()) return true;
      placed_.pop_back();
    }
    return false;
  }

  const std::vector<size_t>& placed() const { return placed_; }

 private:
  bool Fits(size_t worker) const {
    const auto place = static_cast<int32_t>(placed_.size());
    return std::none_of(pairs_.begin(), pairs_.end(), [&](const PlacePair& pair) {
      return pair.second == place &&
             dead_.Has(workers_[placed_[pair.first]].name, workers_[worker].name, now_ns_);
    });
  }

  const std::vector<WorkerOffer>& workers_;
  const int64_t count_;
  const std::set<PlacePair>& pairs_;  // the lesser place first
  const DeadLinks& dead_;
  const int64_t now_ns_;
  std::vector<size_t> placed_;  // by place
  int tried_ = 0;
};

}  // namespace

void HeartbeatLog::OnHeartbeat(int64_t now_ns) {
  heard_ns_.push_back(now_ns);
  if (heard_ns_.size() > kKept) heard_ns_.pop_front();
}

bool LinkWatch::IsDead(const HeartbeatLog& reporter, const HeartbeatLog& peer, int64_t silent_ms,
                       int64_t now_ns) {
  // Beyond this the job is stuck anyway, and no time that a worker tells overflows.
  constexpr int64_t kSilentMaxMs = 3'600'000;
  if (silent_ms < kLimitMs) return false;
  const int64_t since_ns = now_ns - std::min(silent_ms, kSilentMaxMs) * kNsPerMs;
  return reporter.IsHeardSince(since_ns) && peer.IsHeardSince(since_ns);
}

void DeadLinks::OnDead(const std::string& a, const std::string& b, int64_t now_ns) {
  std::erase_if(found_ns_,
                [&](const auto& link) { return link.second + kWhileMs * kNsPerMs <= now_ns; });
  found_ns_[std::minmax(a, b)] = now_ns;
}

bool DeadLinks::Has(const std::string& a, const std::string& b, int64_t now_ns) const {
  const auto found = found_ns_.find(std::minmax(a, b));
  return found != found_ns_.end() && now_ns < found->second + kWhileMs * kNsPerMs;
}

bool DeadLinks::any(int64_t now_ns) const {
  return std::any_of(found_ns_.begin(), found_ns_.end(),
                     [&](const auto& link) { return now_ns < link.second + kWhileMs * kNsPerMs; });
}

std::vector<WorkerOffer> PlaceApart(std::vector<WorkerOffer> workers, int64_t count,
                                    const std::set<PlacePair>& pairs, const DeadLinks& dead,
                                    int64_t now_ns) {
  if (dead.any(now_ns)) {
    Placing placing(workers, count, pairs, dead, now_ns);
    if (placing.Fill()) {
      std::vector<WorkerOffer> placed;
      for (const size_t worker : placing.placed()) placed.push_back(workers[worker]);
      return placed;
    }
  }
  workers.resize(count);
  return workers;
}

}  // namespace penstock
