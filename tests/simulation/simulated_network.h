// SimulatedNetwork: calls between the processes of a simulated world, as gRPC makes them: with a deadline, answered once, and
// as Unavailable if the other process is not there, or ends.
//
// While it is disturbed, requests and answers are lost, requests come twice, and calls take longer than they may. Two
// processes can be cut off from each other.
//
// Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/random.h"
#include "tests/simulation/process.h"
#include "tests/simulation/virtual_time.h"

namespace penstock {

struct NetworkDisturbance {
  int lost_requests_percent = 0;
  int lost_answers_percent = 0;
  int repeated_percent = 0;
  int slow_percent = 0;  // these take up to twice their time limit
};

class SimulatedNetwork {
 public:
  template <typename R>
  using Reply = std::function<void(absl::StatusOr<R>)>;

  // REQUIRES: both outlive the network.
  SimulatedNetwork(VirtualTime& time, RandomStream& random) : time_(time), random_(random) {}

  void Disturb(const NetworkDisturbance& disturbance) { disturbance_ = disturbance; }
  void Cut(const Process& a, const Process& b) { cut_.insert(Pair(a, b)); }
  void Mend(const Process& a, const Process& b) { cut_.erase(Pair(a, b)); }
  bool Connects(const Process& a, const Process& b) const { return cut_.count(Pair(a, b)) == 0; }
  // The time of one message.
  absl::Duration Delay() {
    return absl::Microseconds(200 + static_cast<int64_t>(random_.Below(4800)));
  }

  // `serve` runs in `to` and gives its answer to the function that it gets; `done` runs in `from`, once, unless that has ended.
  template <typename R>
  void Call(Process& from, Process& to, absl::Duration timeout, std::function<void(Reply<R>)> serve,
            Reply<R> done);

 private:
  static std::pair<std::string, std::string> Pair(const Process& a, const Process& b) {
    return std::minmax(a.name(), b.name());
  }
  bool Percent(int percent) { return static_cast<int>(random_.Below(100)) < percent; }

  VirtualTime& time_;
  RandomStream& random_;
  NetworkDisturbance disturbance_;
  std::set<std::pair<std::string, std::string>> cut_;
};

template <typename R>
void SimulatedNetwork::Call(Process& from, Process& to, absl::Duration timeout,
                            std::function<void(Reply<R>)> serve, Reply<R> done) {
  struct State {
    bool is_over = false;
    int64_t death = -1;
  };
  auto state = std::make_shared<State>();
  const auto finish = [state, &from, &to, life = from.life(),
                       done = std::move(done)](absl::StatusOr<R> answer) {
    if (std::exchange(state->is_over, true)) return;
    if (state->death >= 0) to.ForgetDeath(state->death);
    from.Do(life, [done, answer = std::move(answer)] { done(answer); });
  };
  const auto gone = [this, &from, &to, finish] {
    time_.After(Delay(), [this, &from, &to, finish] {
      if (Connects(from, to)) {
        finish(absl::UnavailableError(absl::StrCat(to.name(), ": connection closed")));
      }
    });
  };
  time_.After(timeout, [&to, finish] {
    finish(absl::DeadlineExceededError(absl::StrCat(to.name(), ": no answer in time")));
  });
  if (!to.alive()) return gone();
  state->death = to.OnDeath(gone);
  if (Percent(disturbance_.lost_requests_percent)) {
    if (Percent(50)) gone();  // the connection broke
    return;
  }
  const bool answer_is_lost = Percent(disturbance_.lost_answers_percent);
  const auto reply = [this, &from, &to, finish, gone, answer_is_lost](absl::StatusOr<R> answer) {
    if (answer_is_lost) return gone();
    time_.After(Delay(), [this, &from, &to, finish, answer = std::move(answer)] {
      if (Connects(from, to)) finish(answer);
    });
  };
  const int copies = Percent(disturbance_.repeated_percent) ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    absl::Duration delay = Delay();
    if (Percent(disturbance_.slow_percent)) delay += random_.Uniform() * 2 * timeout;
    time_.After(delay, [this, &from, &to, life = to.life(), serve, reply] {
      if (Connects(from, to)) to.Do(life, [serve, reply] { serve(reply); });
    });
  }
}

}  // namespace penstock
