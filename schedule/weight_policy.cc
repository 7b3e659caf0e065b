#include "schedule/weight_policy.h"

#include <algorithm>

#include "base/check.h"

namespace penstock {

void VersionLedger::Reset(int64_t version) {
  PENSTOCK_CHECK(
      current_readers_ == 0 &&
      std::all_of(kept_.begin(), kept_.end(), [](const Kept& kept) { return kept.readers == 0; }));
  kept_.clear();
  current_ = first_version_ = version;
  forwards_ = 0;
}

void VersionLedger::SetPolicy(WeightPolicy policy) {
  policy_ = policy;
  Reset(current_);
}

int64_t VersionLedger::NextForwardVersion() const {
  if (policy_.kind != WeightPolicy::Kind::kDelayed) return current_;
  return first_version_ + std::max<int64_t>(0, forwards_ / policy_.batch - policy_.lag);
}

int64_t VersionLedger::BeginForward() {
  const int64_t version = NextForwardVersion();
  if (BackwardReadsForwardVersion()) ++ReadersOf(version);
  ++forwards_;
  ReleaseUnread();
  return version;
}

int64_t VersionLedger::NextForwardAim() const {
  if (!IsPredicted()) return NextForwardVersion();
  const bool aligned = policy_.kind == WeightPolicy::Kind::kAligned;
  const int64_t until_first_stage = aligned ? stage_.value / 2 : 0;
  return first_version_ + (forwards_ + until_first_stage) / policy_.batch;
}

int64_t VersionLedger::BackwardAim(int64_t forward_version, int64_t aim) const {
  if (policy_.kind == WeightPolicy::Kind::kCorrected) return forward_version;
  return IsPredicted() ? aim : BackwardVersion(forward_version);
}

int64_t VersionLedger::BackwardVersion(int64_t forward_version) const {
  return BackwardReadsForwardVersion() ? forward_version : current_;
}

void VersionLedger::EndBackward(int64_t forward_version) {
  if (!BackwardReadsForwardVersion()) return;
  --ReadersOf(forward_version);
  ReleaseUnread();
}

bool VersionLedger::Update() {
  const bool keeps = current_readers_ > 0 || MayBeRead(current_);
  if (keeps) kept_.push_back({current_, current_readers_});
  current_readers_ = 0;
  ++current_;
  return keeps;
}

bool VersionLedger::MayBeRead(int64_t version) const {
  return policy_.kind == WeightPolicy::Kind::kDelayed && version >= NextForwardVersion();
}

int64_t& VersionLedger::ReadersOf(int64_t version) {
  if (version == current_) return current_readers_;
  const auto kept = std::find_if(kept_.begin(), kept_.end(),
                                 [version](const Kept& each) { return each.version == version; });
  PENSTOCK_CHECK(kept != kept_.end());
  return kept->readers;
}

void VersionLedger::ReleaseUnread() {
  kept_.erase(kept_.begin(), std::find_if(kept_.begin(), kept_.end(), [this](const Kept& kept) {
                return kept.readers > 0 || MayBeRead(kept.version);
              }));
}

void VersionLedger::AppendRelativeState(std::vector<int64_t>& state) const {
  state.push_back(current_readers_);
  state.push_back(static_cast<int64_t>(kept_.size()));
  for (const Kept& kept : kept_) {
    state.push_back(current_ - kept.version);
    state.push_back(kept.readers);
  }
  if (policy_.kind == WeightPolicy::Kind::kDelayed) {
    state.push_back(forwards_ % policy_.batch);
    state.push_back(std::min(forwards_ / policy_.batch, policy_.lag));
    state.push_back(current_ - NextForwardVersion());
  }
  if (IsPredicted()) {
    state.push_back(forwards_ % policy_.batch);
    state.push_back(current_ - NextForwardAim());
  }
}

}  // namespace penstock
