#include "schedule/weight_policy.h"

#include <algorithm>

#include "base/check.h"

namespace penstock {
namespace {

// Whether a microbatch's backward reads the version that its forward read, so that it must be kept.
bool BackwardReadsForwardVersion(WeightPolicy policy) {
  switch (policy) {
    case WeightPolicy::kSingle:
      return false;
    case WeightPolicy::kStash:
      return true;
  }
  PENSTOCK_CHECK(false);
}

}  // namespace

void VersionLedger::Reset(int64_t version) {
  PENSTOCK_CHECK(kept_.empty() && current_readers_ == 0);
  current_ = version;
}

int64_t VersionLedger::BeginForward() {
  if (BackwardReadsForwardVersion(policy_)) ++current_readers_;
  return current_;
}

int64_t VersionLedger::BackwardVersion(int64_t forward_version) const {
  return BackwardReadsForwardVersion(policy_) ? forward_version : current_;
}

void VersionLedger::EndBackward(int64_t forward_version) {
  if (!BackwardReadsForwardVersion(policy_)) return;
  if (forward_version == current_) {
    --current_readers_;
    return;
  }
  const auto read = std::find_if(kept_.begin(), kept_.end(), [forward_version](const Kept& kept) {
    return kept.version == forward_version;
  });
  PENSTOCK_CHECK(read != kept_.end());
  --read->readers;
  kept_.erase(kept_.begin(), std::find_if(kept_.begin(), kept_.end(),
                                          [](const Kept& kept) { return kept.readers > 0; }));
}

bool VersionLedger::Update() {
  const bool keeps = current_readers_ > 0;
  if (keeps) kept_.push_back({current_, current_readers_});
  current_readers_ = 0;
  ++current_;
  return keeps;
}

void VersionLedger::AppendRelativeState(std::vector<int64_t>& state) const {
  state.push_back(current_readers_);
  state.push_back(static_cast<int64_t>(kept_.size()));
  for (const Kept& kept : kept_) {
    state.push_back(current_ - kept.version);
    state.push_back(kept.readers);
  }
}

}  // namespace penstock
