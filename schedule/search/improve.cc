#include "schedule/search/improve.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace penstock {
namespace {

class LocalSearch {
 public:
  LocalSearch(const StepProblem& problem, const TimedOrder& start, RandomStream& random)
      : check_(problem), clock_(problem), random_(random), now_(start), best_(start) {
    cost_ns_ = Cost(clock_.Measure(now_.order));
    PENSTOCK_CHECK(cost_ns_ != StepClock::kNever);
    path_ = clock_.CriticalPath();
  }

  TimedOrder Run(const ImproveOptions& options) {
    const int64_t threshold_ns = now_.makespan_ns / 1000 * options.threshold_permille;
    for (int64_t i = 0; i < options.moves && best_.makespan_ns > options.bound_ns; ++i) {
      const double left = 1.0 - static_cast<double>(i) / static_cast<double>(options.moves);
      const auto limit_ns = static_cast<int64_t>(static_cast<double>(threshold_ns) * left);
      Try(limit_ns > 0 ? static_cast<int64_t>(random_.Below(limit_ns + 1)) : 0);
    }
    return std::move(best_);
  }

 private:
  struct Move {
    int32_t worker, from, to;
  };

  // The length first; then when the workers end on average, which leads over the plateaus of the length.
  int64_t Cost(int64_t makespan_ns) const {
    if (makespan_ns == StepClock::kNever) return makespan_ns;
    const auto workers = static_cast<int64_t>(now_.order.lists.size());
    int64_t mean_ns = 0;
    for (int32_t worker = 0; worker < workers; ++worker) mean_ns += clock_.end_ns(worker) / workers;
    return makespan_ns + mean_ns / 16;
  }

  Move Propose() {
    StepClock::Place place;
    const uint32_t kind = random_.Next();
    if (kind % 4 != 0) {
      place = path_[random_.Below(path_.size())];
    } else {
      place.worker = static_cast<int32_t>(random_.Below(now_.order.lists.size()));
      place.position = static_cast<int32_t>(random_.Below(now_.order.lists[place.worker].size()));
    }
    const PassList& list = now_.order.lists[place.worker];
    const auto size = static_cast<int32_t>(list.size());
    const int32_t direction = (kind >> 2) % 2 == 0 ? 1 : -1;
    // Past its own kind, which would change nothing, and then 1 (half of the time), 2, 3... places.
    int32_t to = place.position;
    while (to + direction >= 0 && to + direction < size && list[to + direction] == list[to]) {
      to += direction;
    }
    to += direction * (1 + std::countr_zero(kind >> 3 | 1u << 12));
    return {place.worker, place.position, std::clamp(to, 0, size - 1)};
  }

  void Apply(const Move& move) {
    const auto list = now_.order.lists[move.worker].begin();
    if (move.from < move.to) {
      std::rotate(list + move.from, list + move.from + 1, list + move.to + 1);
    } else {
      std::rotate(list + move.to, list + move.from, list + move.from + 1);
    }
  }

  void Try(int64_t worse_ns) {
    const Move move = Propose();
    if (move.from == move.to) return;
    Apply(move);
    if (check_.Allows(move.worker, now_.order.lists[move.worker])) {
      const int64_t makespan_ns = clock_.Measure(now_.order);
      const int64_t cost_ns = Cost(makespan_ns);
      if (makespan_ns != StepClock::kNever && cost_ns <= cost_ns_ + worse_ns) {
        cost_ns_ = cost_ns;
        now_.makespan_ns = makespan_ns;
        path_ = clock_.CriticalPath();
        if (makespan_ns < best_.makespan_ns) best_ = now_;
        return;
      }
    }
    Apply({move.worker, move.to, move.from});
  }

  ListCheck check_;
  StepClock clock_;
  RandomStream& random_;
  TimedOrder now_;
  TimedOrder best_;
  int64_t cost_ns_ = 0;                 // of now_
  std::vector<StepClock::Place> path_;  // of now_
};

}  // namespace

TimedOrder Improve(const StepProblem& problem, const TimedOrder& start,
                   const ImproveOptions& options, RandomStream& random) {
  return LocalSearch(problem, start, random).Run(options);
}

}  // namespace penstock
