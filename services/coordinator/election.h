// Election: keeps this coordinator in the race for the leadership of its cluster, and its lease alive while it leads
// (leadership.h says by which rules). A thread of its own asks etcd, so nothing that the coordinator does delays a renewal.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "services/coordinator/leadership.h"
#include "services/coordinator/mandate.h"
#include "services/etcd/etcd_calls.h"

namespace penstock {

struct ElectionParts {
  EtcdCalls& etcd;  // these two outlive the election
  Clock& clock;
  std::string prefix;   // of the cluster in etcd
  std::string address;  // where users and workers reach this coordinator
  LeadershipLimits limits = {};
  std::function<void(const std::string&)> log =
      nullptr;  // a line for operators, from its thread; null: nowhere
};

class Election {
 public:
  // What is known of the leadership.
  struct View {
    std::optional<int64_t> term;  // in which this coordinator leads; none: it does not
    std::string leader;           // the leader's address; empty: not known
    absl::Status trouble;         // why etcd could not be asked, if so
  };

  explicit Election(ElectionParts parts);  // starts
  // Stop().
  ~Election();
  Election(const Election&) = delete;
  Election& operator=(const Election&) = delete;

  View Look() ABSL_LOCKS_EXCLUDED(mutex_);
  // Waits at most `timeout` until this coordinator leads in another term than `term`, or in none, or the other way round.
  View AwaitChange(const std::optional<int64_t>& term, absl::Duration timeout)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Returns the right to act in `term`. REQUIRES: the election outlives it.
  std::unique_ptr<Mandate> MandateOf(int64_t term);

  // Gives the leadership up, if it has it in `term`; others come first.
  void Retire(int64_t term, const std::string& why) ABSL_LOCKS_EXCLUDED(mutex_);
  // Takes part no more: gives the leadership up, so that another can lead at once. Idempotent.
  void Stop() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class TermMandate;

  // For a renewal, so that there is time for another.
  static constexpr absl::Duration kRenewTimeout = absl::Milliseconds(600);
  // For other calls; and for a wait for the leader's end, after which its key is read again.
  static constexpr absl::Duration kCallTimeout = absl::Seconds(1);
  static constexpr absl::Duration kAwaitTimeout = absl::Seconds(2);

  void Run();
  // Waits until the next step is due. Returns nothing when it is to stop.
  std::optional<Leadership::Step> AwaitStep() ABSL_LOCKS_EXCLUDED(mutex_);
  // Asks etcd and hands on the answer.
  void Perform(Leadership::Step step) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::optional<LeaderEntry>> ReadLeader();
  absl::StatusOr<Leadership::Campaign> MakeKey(int64_t lease);
  bool Leads(int64_t term) ABSL_LOCKS_EXCLUDED(mutex_);
  View ViewLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Log(const std::string& line) const;

  const ElectionParts parts_;
  const std::string key_;
  StreamCanceller canceller_;  // of waits
  bool told_leading_ = false;  // in the log; its thread only
  Mutex mutex_;
  CondVar changed_;
  Leadership leadership_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace penstock
