// LinkMeter: what one end of an edge counts beside bytes and messages, for metrics.
//
// Thread safety: each method by one thread at a time, different ones by different threads; reading from
// any, also while they run. What a broken stream makes an end count may come from any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/mutex.h"
#include "worker/counter.h"

namespace penstock {

class LinkMeter {
 public:
  using TimePoint = CondVar::Clock::time_point;
  static TimePoint Now() { return CondVar::Clock::now(); }

  // The shortest round trip is taken of the last this many, and up to as many before them.
  static constexpr int kRoundTrips = 64;

  // The executor stood still: for credit, or for a message.
  void AddWait(TimePoint since, TimePoint until) { wait_ns_.Add(Between(since, until)); }
  // A tensor was on its way: at the sender from its hand-over until its last chunk has been written, at the
  // receiver from its first chunk until it is whole.
  void AddTransfer(TimePoint since, TimePoint until) { transfer_ns_.Add(Between(since, until)); }
  // From the last chunk of a message to its credit. A receiver that waited for the message gives credit at once,
  // so the shortest of some is the network's round trip, and longer where receivers never wait.
  void AddRoundTrip(TimePoint since, TimePoint until) {
    shortest_ns_ =
        round_trips_ == 0 ? Between(since, until) : std::min(shortest_ns_, Between(since, until));
    round_trip_ns_.Set(before_ns_ == 0 ? shortest_ns_ : std::min(shortest_ns_, before_ns_));
    if (++round_trips_ < kRoundTrips) return;
    before_ns_ = shortest_ns_;
    round_trips_ = 0;
  }

  // A stream was opened after one that broke: at the sender each dial counts, at the receiver each that came.
  void AddRedial() { redials_.fetch_add(1, std::memory_order_relaxed); }
  // A message was sent once more.
  void AddResent() { resent_.fetch_add(1, std::memory_order_relaxed); }
  // A message came once more, and was dropped.
  void AddDuplicate() { duplicates_.fetch_add(1, std::memory_order_relaxed); }
  // A frame came that did not fit its checksum.
  void AddDamaged() { damaged_.fetch_add(1, std::memory_order_relaxed); }

  int64_t redials() const { return redials_.load(std::memory_order_relaxed); }
  int64_t resent() const { return resent_.load(std::memory_order_relaxed); }
  int64_t duplicates() const { return duplicates_.load(std::memory_order_relaxed); }
  int64_t damaged() const { return damaged_.load(std::memory_order_relaxed); }
  int64_t wait_ns() const { return wait_ns_.value(); }
  int64_t transfer_ns() const { return transfer_ns_.value(); }
  // 0: none yet.
  int64_t round_trip_ns() const { return round_trip_ns_.value(); }

 private:
  static int64_t Between(TimePoint since, TimePoint until) {
    return std::max<int64_t>(
        1, std::chrono::duration_cast<std::chrono::nanoseconds>(until - since).count());
  }

  Counter wait_ns_, transfer_ns_, round_trip_ns_;
  std::atomic<int64_t> redials_ = 0;
  std::atomic<int64_t> resent_ = 0;
  std::atomic<int64_t> duplicates_ = 0;
  std::atomic<int64_t> damaged_ = 0;
  // Used by the thread that calls AddRoundTrip.
  int64_t shortest_ns_ = 0;
  int64_t before_ns_ = 0;  // of the kRoundTrips before
  int round_trips_ = 0;
};

}  // namespace penstock
