#include "schedule/version_ledger.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "schedule/warm_up.h"

namespace penstock {

VersionLedger::VersionLedger(WeightPolicy policy, const Topology& topology, StageId stage)
    : averages_gradients_(topology.AveragesGradients()) {
  const StageWiring& row = topology[stage];
  const std::vector<int64_t> ahead = MicrobatchesAhead(ReplicasOf(topology));
  stage_.place = row.place;
  stage_.places = topology.depth();
  stage_.replicas = row.replicas;
  stage_.behind_first = ahead.front() - ahead[row.place];
  if (topology.form == Topology::Form::kThereAndBack) {
    stage_.step = topology.rounds.step;
    for (int64_t m = 0; m < stage_.step; ++m) stage_.of_step += topology.Visits(m, stage);
  }
  SetPolicy(policy);
}

void VersionLedger::Reset(int64_t version) {
  PENSTOCK_CHECK(
      current_readers_ == 0 &&
      std::all_of(kept_.begin(), kept_.end(), [](const Kept& kept) { return kept.readers == 0; }));
  kept_.clear();
  released_ = 0;
  stage_.current = stage_.first_version = version;
  stage_.forwards = 0;
}

void VersionLedger::SetPolicy(WeightPolicy policy) {
  stage_.policy = policy;
  stage_.update = averages_gradients_ ? stage_.replicas : policy.batch;
  Reset(stage_.current);
}

int64_t VersionLedger::oldest_live() const {
  const int64_t kept = released_ == kept_.size() ? stage_.current : kept_[released_].version;
  return std::min(kept, rules().keeps_from(stage_));
}

int64_t VersionLedger::BeginForward(int64_t microbatch) {
  if (stage_.forwards == 0) stage_.first_microbatch = microbatch;
  const int64_t version = rules().forward(stage_, microbatch);
  ++ReadersOf(BackwardVersion(version));
  ++stage_.forwards;
  ReleaseUnread();
  return version;
}

int64_t VersionLedger::ReadOnce() {
  const int64_t version = NextForwardVersion();
  ++stage_.forwards;
  ReleaseUnread();
  return version;
}

void VersionLedger::EndBackward(int64_t forward_version) {
  --ReadersOf(BackwardVersion(forward_version));
  ReleaseUnread();
}

bool VersionLedger::Update(bool moves) {
  const int64_t replaced = stage_.current++;
  if (!moves) {
    ReleaseUnread();
    return false;
  }
  // A backward that reads the replaced version no more reads another one from here on.
  const int64_t readers = std::exchange(current_readers_, 0);
  const bool keeps_readers = BackwardVersion(replaced) == replaced;
  const bool keeps = (keeps_readers && readers > 0) || KeepsUnread(replaced);
  if (keeps) kept_.push_back({replaced, keeps_readers ? readers : 0});
  if (!keeps_readers) ReadersOf(BackwardVersion(replaced)) += readers;
  for (size_t i = released_; i < kept_.size(); ++i) {
    const int64_t read = BackwardVersion(kept_[i].version);
    if (read == kept_[i].version) break;
    ReadersOf(read) += std::exchange(kept_[i].readers, 0);
  }
  ReleaseUnread();
  return keeps;
}

int64_t& VersionLedger::ReadersOf(int64_t version) {
  const auto kept =
      std::lower_bound(kept_.begin() + static_cast<int64_t>(released_), kept_.end(), version,
                       [](const Kept& each, int64_t sought) { return each.version < sought; });
  const bool is_current = kept == kept_.end();
  PENSTOCK_CHECK(draws() || version == (is_current ? stage_.current : kept->version));
  return is_current ? current_readers_ : kept->readers;
}

void VersionLedger::ReleaseUnread() {
  while (released_ < kept_.size() && kept_[released_].readers == 0 &&
         !KeepsUnread(kept_[released_].version)) {
    ++released_;
  }
  if (2 * released_ < kept_.size()) return;
  // Moves no more entries than were released.
  kept_.erase(kept_.begin(), kept_.begin() + static_cast<int64_t>(released_));
  released_ = 0;
}

void VersionLedger::AppendRelativeState(std::vector<int64_t>& state) const {
  if (!draws()) {
    state.push_back(current_readers_);
    state.push_back(live());
    for (size_t i = released_; i < kept_.size(); ++i) {
      state.push_back(stage_.current - kept_[i].version);
      state.push_back(kept_[i].readers);
    }
  }
  rules().append_state(stage_, state);
}

}  // namespace penstock
