// Leadership: when one of several coordinators may act as the leader. A state machine without clock, threads or network:
// Next says what to ask etcd, the answer comes back with the time at which it was asked for, and Leads says at any time
// whether this coordinator leads. election.h asks and keeps the time.
//
//                 leader's key is there                removed, or a while has passed
//      LOOKING ────────────────────────▶ WAITING ─────────────────────────────────▶ LOOKING
//         │ nobody's                        ▲ lost to another
//         ▼                                 │
//      GRANTING ──lease──▶ CAMPAIGNING ─────┤
//                               │ won
//                               ▼
//      LOOKING ◀──RETIRING ◀── LEADING: renews its lease
//
// The leader's key in etcd holds a lease. Who makes the key leads, in a term that is named after the revision at which it
// was made: later terms have larger numbers. While the lease lives the key stays, so nobody else can make it.
//
// A leader counts its lease by its own clock, from when it asked for it, which is before etcd began to count, and ends
// `safety_ms` earlier. So it stops before etcd lets another lead, unless its clock stands still (a frozen virtual machine) or
// runs slower than etcd's by more than that. Then its writes are refused all the same (etcd_store.h), and what it tells
// workers is of older epochs (job_run.h) and of an older term (services/worker/term_fence.h); only what it tells users may be of a moment ago.
//
// A term that is over never comes back, even if a late answer says that the lease was renewed.
//
// Thread-compatible. Times are of one monotonic clock, in ns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "services/etcd/etcd_calls.h"

namespace penstock {

struct LeadershipLimits {
  int64_t ttl_ms = 2000;            // of the lease
  int64_t safety_ms = 200;          // a leader stops this long before its lease ends
  int64_t renew_interval_ms = 500;  // from asking to asking
  int64_t retry_ms = 100;           // after an error
  int64_t retire_ms = 3000;         // after it gave up leading, for others to come first
};

// The leader's key.
struct LeaderEntry {
  std::string address;   // where users and workers reach the leader
  int64_t term = 0;      // the revision at which the key was made
  int64_t lease = 0;     // which keeps it
  int64_t revision = 0;  // of all that was seen when the key was read
};

class Leadership {
 public:
  enum class Step { kLook, kAwaitRemoval, kGrant, kCampaign, kRenew, kRevoke };
  struct Todo {
    Step step = Step::kLook;
    int64_t at_ns = 0;  // not before
  };
  // Of a campaign: the key as this coordinator made it, or that of another.
  struct Campaign {
    bool won = false;
    LeaderEntry leader;
  };

  explicit Leadership(const LeadershipLimits& limits) : limits_(limits) {}

  // What to do next.
  Todo Next() const { return {.step = step_, .at_ns = at_ns_}; }

  // ---- Answers to what Next asked for. `asked_ns`: before the call was made. `now_ns`: when the answer came.
  // Nothing: nobody leads.
  void OnLooked(const absl::StatusOr<std::optional<LeaderEntry>>& found, int64_t now_ns);
  // False: the time to wait is over.
  void OnAwaited(const absl::StatusOr<bool>& removed, int64_t now_ns);
  void OnGranted(const absl::StatusOr<EtcdCalls::Lease>& lease, int64_t asked_ns, int64_t now_ns);
  void OnCampaigned(const absl::StatusOr<Campaign>& campaign, int64_t now_ns);
  // The length that the lease has from now on, in ms; 0: it has ended.
  void OnRenewed(const absl::StatusOr<int64_t>& ttl_ms, int64_t asked_ns, int64_t now_ns);
  // Whether or not it was done: the lease ends by itself.
  void OnRevoked(int64_t now_ns);

  // ---- The term.
  // Returns whether this coordinator leads. Once it does not, the term is over.
  bool Leads(int64_t now_ns);
  // Ends the term, if it is `term`, and lets others come first.
  void Retire(int64_t term, const std::string& why, int64_t now_ns);
  // Returns the number of the last term; 0: there was none.
  int64_t term() const { return term_; }
  // Returns why the last term ended.
  const std::string& why_over() const { return why_over_; }

  // The lease, for kCampaign, kRenew and kRevoke.
  int64_t lease() const { return lease_.id; }
  // The leader that was seen last, for kAwaitRemoval; none: nobody leads, as far as is known.
  const std::optional<LeaderEntry>& leader() const { return leader_; }
  // Returns the error of the last answer; OK if it was none.
  const absl::Status& trouble() const { return trouble_; }

 private:
  void Do(Step step, int64_t at_ns);
  void EndTerm(const std::string& why, int64_t now_ns);
  // Whether the lease can be counted on.
  bool LeaseLives(int64_t now_ns) const { return lease_.id != 0 && now_ns < lease_ends_ns_; }
  void Lead(const LeaderEntry& entry, int64_t now_ns);

  const LeadershipLimits limits_;
  Step step_ = Step::kLook;
  int64_t at_ns_ = 0;
  EtcdCalls::Lease lease_;
  int64_t lease_ends_ns_ = 0;  // less the time for safety
  int64_t renewed_ns_ = 0;     // when the lease was asked for, or its last renewal
  int64_t retired_until_ns_ = 0;
  int64_t term_ = 0;
  bool leads_ = false;
  std::string why_over_;
  std::optional<LeaderEntry> leader_;
  absl::Status trouble_;
};

}  // namespace penstock
