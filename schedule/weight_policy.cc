#include "schedule/weight_policy.h"

#include <algorithm>

#include "base/check.h"

namespace penstock {

VersionLedger::VersionLedger(WeightPolicy policy, StageId stage, int32_t stages)
    : stage_(stage), stages_(stages) {
  SetPolicy(policy);
}

void VersionLedger::Reset(int64_t version) {
  PENSTOCK_CHECK(
      current_readers_ == 0 &&
      std::all_of(kept_.begin(), kept_.end(), [](const Kept& kept) { return kept.readers == 0; }));
  kept_.clear();
  released_ = 0;
  current_ = first_version_ = version;
  forwards_ = 0;
}

void VersionLedger::SetPolicy(WeightPolicy policy) {
  policy_ = policy;
  draws_ = BlockDraws(policy.seed, policy.lag, stages_);
  Reset(current_);
}

int64_t VersionLedger::oldest_live() const {
  if (policy_.draws()) return OldestDrawn();
  return released_ == kept_.size() ? current_ : kept_[released_].version;
}

int64_t VersionLedger::NextForwardVersion() const {
  if (policy_.draws()) {
    return first_version_ + forwards_ - draws_.DelayMin(stage_.value, forwards_);
  }
  if (policy_.kind != WeightPolicy::Kind::kDelayed) return current_;
  return first_version_ + std::max<int64_t>(0, forwards_ / policy_.batch - policy_.lag);
}

int64_t VersionLedger::BeginForward(int64_t microbatch) {
  if (policy_.draws()) {
    if (forwards_ == 0) first_microbatch_ = microbatch;
    const int64_t k = forwards_++;
    return first_version_ + k - draws_.DelayOf(microbatch, stage_.value, k);
  }
  const int64_t version = NextForwardVersion();
  if (BackwardReadsForwardVersion()) ++ReadersOf(version);
  ++forwards_;
  ReleaseUnread();
  return version;
}

int64_t VersionLedger::AimOfForward(int64_t forward) const {
  const bool aligned = policy_.kind == WeightPolicy::Kind::kAligned;
  const int64_t until_first_stage = aligned ? stage_.value / 2 : 0;
  return first_version_ + (forward + until_first_stage) / policy_.batch;
}

int64_t VersionLedger::BackwardAim(int64_t forward_version, int64_t aim) const {
  if (policy_.kind == WeightPolicy::Kind::kCorrected) return forward_version;
  return IsPredicted() ? aim : BackwardVersion(forward_version);
}

int64_t VersionLedger::BackwardVersion(int64_t forward_version) const {
  return BackwardReadsForwardVersion() || policy_.draws() ? forward_version : current_;
}

void VersionLedger::EndBackward(int64_t forward_version) {
  if (!BackwardReadsForwardVersion()) return;
  --ReadersOf(forward_version);
  ReleaseUnread();
}

bool VersionLedger::Update(bool moves) {
  if (policy_.draws()) {
    const int64_t replaced = current_++;
    const bool keeps = moves && MayBeRead(replaced);
    if (keeps) kept_.push_back({replaced, 0});
    ReleaseUnread();
    return keeps;
  }
  const bool keeps = current_readers_ > 0 || MayBeRead(current_);
  if (keeps) kept_.push_back({current_, current_readers_});
  current_readers_ = 0;
  ++current_;
  return keeps;
}

bool VersionLedger::MayBeRead(int64_t version) const {
  if (policy_.draws()) return version >= OldestDrawn();
  return policy_.kind == WeightPolicy::Kind::kDelayed && version >= NextForwardVersion();
}

int64_t& VersionLedger::ReadersOf(int64_t version) {
  if (version == current_) return current_readers_;
  const auto kept =
      std::lower_bound(kept_.begin() + static_cast<int64_t>(released_), kept_.end(), version,
                       [](const Kept& each, int64_t sought) { return each.version < sought; });
  PENSTOCK_CHECK(kept != kept_.end() && kept->version == version);
  return kept->readers;
}

void VersionLedger::ReleaseUnread() {
  while (released_ < kept_.size() && kept_[released_].readers == 0 &&
         !MayBeRead(kept_[released_].version)) {
    ++released_;
  }
  if (2 * released_ < kept_.size()) return;
  // Moves no more entries than were released.
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<int64_t>(released_));
  released_ = 0;
}

void VersionLedger::AppendRelativeState(std::vector<int64_t>& state) const {
  if (policy_.draws()) {
    // What is allowed from here; not what was or will be drawn, nor which weights are the same.
    state.push_back(std::min<int64_t>(forwards_, stages_ - 1 - stage_.value));
    state.push_back(first_version_ + forwards_ - current_);
    return;
  }
  state.push_back(current_readers_);
  state.push_back(live());
  for (size_t i = released_; i < kept_.size(); ++i) {
    state.push_back(current_ - kept_[i].version);
    state.push_back(kept_[i].readers);
  }
  if (policy_.kind == WeightPolicy::Kind::kDelayed) {
    state.push_back(forwards_ % policy_.batch);
    state.push_back(std::min(forwards_ / policy_.batch, policy_.lag));
    state.push_back(current_ - NextForwardVersion());
  }
  if (IsPredicted()) {
    state.push_back(forwards_ % policy_.batch);
    state.push_back(current_ - AimOfForward(forwards_));
  }
}

}  // namespace penstock
