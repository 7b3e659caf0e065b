#include "services/coordinator/leadership.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/effects.h"

namespace penstock {

void Leadership::Do(Step step, int64_t at_ns) {
  step_ = step;
  at_ns_ = at_ns;
}

void Leadership::OnLooked(const absl::StatusOr<std::optional<LeaderEntry>>& found, int64_t now_ns) {
  trouble_ = found.status();
  if (!found.ok()) return Do(Step::kLook, now_ns + limits_.retry_ms * kNsPerMs);
  leader_ = *found;
  // The answer to a campaign may have been lost.
  if (leader_.has_value() && leader_->lease == lease_.id && LeaseLives(now_ns)) {
    return Lead(*leader_, now_ns);
  }
  if (leader_.has_value()) return Do(Step::kAwaitRemoval, now_ns);
  Do(LeaseLives(now_ns) ? Step::kCampaign : Step::kGrant, now_ns);
}

void Leadership::OnAwaited(const absl::StatusOr<bool>& removed, int64_t now_ns) {
  trouble_ = removed.status();
  if (removed.ok() && *removed) leader_.reset();
  // The key is read again in any case: another may have made it again.
  Do(Step::kLook, removed.ok() ? now_ns : now_ns + limits_.retry_ms * kNsPerMs);
}

void Leadership::OnGranted(const absl::StatusOr<EtcdCalls::Lease>& lease, int64_t asked_ns,
                           int64_t now_ns) {
  trouble_ = lease.status();
  if (!lease.ok()) return Do(Step::kLook, now_ns + limits_.retry_ms * kNsPerMs);
  lease_ = *lease;
  renewed_ns_ = asked_ns;
  lease_ends_ns_ = asked_ns + (lease_.ttl_ms - limits_.safety_ms) * kNsPerMs;
  Do(LeaseLives(now_ns) ? Step::kCampaign : Step::kLook, now_ns);
}

void Leadership::OnCampaigned(const absl::StatusOr<Campaign>& campaign, int64_t now_ns) {
  trouble_ = campaign.status();
  if (!campaign.ok()) return Do(Step::kLook, now_ns + limits_.retry_ms * kNsPerMs);
  leader_ = campaign->leader;
  const bool has_it = campaign->won || leader_->lease == lease_.id;
  if (has_it && LeaseLives(now_ns)) return Lead(*leader_, now_ns);
  // A lease that won too late would keep others waiting; one that lost is of no use.
  Do(Step::kRevoke, now_ns);
}

void Leadership::Lead(const LeaderEntry& entry, int64_t now_ns) {
  leads_ = true;
  term_ = entry.term;
  Do(Step::kRenew, std::max(now_ns, renewed_ns_ + limits_.renew_interval_ms * kNsPerMs));
}

void Leadership::OnRenewed(const absl::StatusOr<int64_t>& ttl_ms, int64_t asked_ns,
                           int64_t now_ns) {
  trouble_ = ttl_ms.status();
  if (!Leads(now_ns)) return;  // the answer came too late, whatever it says
  if (!ttl_ms.ok()) return Do(Step::kRenew, now_ns + limits_.retry_ms * kNsPerMs);
  if (*ttl_ms <= 0) return EndTerm("etcd has ended its lease", now_ns);
  renewed_ns_ = asked_ns;
  lease_ends_ns_ = asked_ns + (*ttl_ms - limits_.safety_ms) * kNsPerMs;
  if (!Leads(now_ns)) return;
  Do(Step::kRenew, asked_ns + limits_.renew_interval_ms * kNsPerMs);
}

void Leadership::OnRevoked(int64_t now_ns) {
  lease_ = {};
  Do(Step::kLook, std::max(now_ns, retired_until_ns_));
}

bool Leadership::Leads(int64_t now_ns) {
  if (leads_ && !LeaseLives(now_ns)) {
    EndTerm(absl::StrCat("it could not renew its lease in time",
                         trouble_.ok() ? "" : absl::StrCat(": ", trouble_.message())),
            now_ns);
  }
  return leads_;
}

void Leadership::Retire(int64_t term, const std::string& why, int64_t now_ns) {
  if (!leads_ || term != term_) return;
  retired_until_ns_ = now_ns + limits_.retire_ms * kNsPerMs;
  EndTerm(why, now_ns);
}

void Leadership::EndTerm(const std::string& why, int64_t now_ns) {
  leads_ = false;
  why_over_ = why;
  leader_.reset();
  Do(Step::kRevoke, now_ns);
}

}  // namespace penstock
