// NetworkCards: one network card for each worker, which all its messages share.
//
// A card carries what its worker sends one message after the other, and what the worker gets one after the other; the two
// directions do not hinder each other. A message goes through both cards at once, so that it takes the time of one
// where both are free.
//
// At the sender, messages go out in the order in which the worker sends them. At the receiver they have precedence in the
// order in which the worker takes them: a message has whatever time of the card those before it leave, in several
// pieces if need be. So what is needed first is never late because of what is needed later, and the times of a
// run follow from its order alone (run.h), whatever order it is played in.
//
// Thread-compatible. A card remembers the latest kBusyMax intervals in which it is busy: a message that was sent before all
// of them, and is taken after them, has no time before them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "base/ids.h"

namespace penstock {

class NetworkCards {
 public:
  // REQUIRES: bytes_per_second > 0.
  NetworkCards(int32_t workers, double bytes_per_second)
      : bytes_per_second_(bytes_per_second), out_free_ns_(workers), in_busy_(workers) {}

  // How long a card takes for this many bytes.
  int64_t TimeOf(double bytes) const;
  // `from` sends a message at `at_ns`. Returns when it begins to go out.
  int64_t Leave(WorkerId from, double bytes, int64_t at_ns);
  // `to` takes a message that began to go out at `left_ns`. Returns when all of it is there.
  int64_t Arrive(WorkerId to, double bytes, int64_t left_ns);

  static constexpr size_t kBusyMax = 256;

 private:
  struct Interval {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };

  const double bytes_per_second_;
  std::vector<int64_t> out_free_ns_;           // by worker
  std::vector<std::deque<Interval>> in_busy_;  // by worker, ascending, with gaps between them
};

}  // namespace penstock
