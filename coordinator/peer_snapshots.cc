#include "coordinator/peer_snapshots.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "checkpoint/layout.h"

namespace penstock {
namespace {

bool IsHeldWhole(const v1::PeerSnapshot& snapshot) {
  return std::all_of(snapshot.parts().begin(), snapshot.parts().end(),
                     [](const v1::SnapshotPart& part) { return part.holders_size() > 0; });
}

void AddHolder(const WorkerOffer& worker, v1::SnapshotPart& part) {
  v1::SnapshotHolder& holder = *part.add_holders();
  holder.set_worker(worker.name);
  holder.set_address(worker.address);
  holder.set_incarnation(worker.incarnation);
}

FoundStart StartIn(const v1::PeerSnapshot& snapshot, const Manifest& manifest) {
  FoundStart start = StartOf(manifest);
  start.snapshot = snapshot.directory();
  return start;
}

}  // namespace

void PeerSnapshots::TakeOver(const v1::GetJobResponse& record) {
  for (const v1::PeerSnapshot& snapshot : record.snapshots()) {
    const absl::StatusOr<Manifest> manifest = ParseManifest(absl::string_view(snapshot.manifest()));
    if (manifest.ok()) complete_.push_back({snapshot, StartIn(snapshot, *manifest)});
  }
  OnSaved();
  OnStored();
}

void PeerSnapshots::BeginAttempt(const std::vector<WorkerOffer>& workers, int64_t epoch) {
  workers_ = workers;
  epoch_ = epoch;
  incomplete_.clear();
}

std::optional<CheckpointTracker::Complete> PeerSnapshots::OnKept(int32_t worker_index,
                                                                 const v1::LayersKept& kept) {
  const v1::LayersSaved& saved = kept.layers();
  const bool is_late = !complete_.empty() && saved.step() <= complete_.back().start.step &&
                       complete_.back().where.epoch() == epoch_;
  if (is_late) {
    settled_.push_back(saved.step());
    return std::nullopt;
  }
  Incomplete& incomplete = incomplete_[saved.step()];
  if (incomplete.parts.count(worker_index) > 0) return std::nullopt;
  v1::SnapshotPart& part = incomplete.parts[worker_index];
  AddHolder(workers_[worker_index], part);
  for (const WorkerOffer& worker : workers_) {
    const bool has_copy = kept.has_copy() && worker.name == kept.copy().worker() &&
                          worker.incarnation == kept.copy().incarnation();
    if (has_copy) AddHolder(worker, part);
  }
  for (const v1::LayerDigest& layer : saved.layers()) part.add_layers(layer.layer());
  incomplete.content.Add(saved);
  if (incomplete.parts.size() == workers_.size()) {
    incomplete.content.Sort();
    return incomplete.content;
  }
  if (incomplete_.size() > kIncompleteMax) SettleBefore(std::next(incomplete_.begin())->first);
  return std::nullopt;
}

void PeerSnapshots::Add(const std::string& job_id, const Manifest& manifest) {
  auto incomplete = incomplete_.extract(manifest.step);
  v1::PeerSnapshot snapshot;
  snapshot.set_directory(SnapshotDirectory(job_id, epoch_, manifest.step));
  snapshot.set_manifest(SerializeManifest(manifest));
  snapshot.set_epoch(epoch_);
  for (auto& [worker, part] : incomplete.mapped().parts) *snapshot.add_parts() = std::move(part);
  // Workers may have told of files that cannot be.
  if (snapshot.ByteSizeLong() <= kBytesMax &&
      ParseManifest(absl::string_view(snapshot.manifest())).ok()) {
    complete_.push_back({snapshot, StartIn(snapshot, manifest)});
  }
  if (complete_.size() > kCompleteMax) complete_.erase(complete_.begin());
  settled_.push_back(manifest.step);
  SettleBefore(manifest.step);
}

void PeerSnapshots::SettleBefore(int64_t step) {
  const auto end = incomplete_.lower_bound(step);
  for (auto it = incomplete_.begin(); it != end; it = incomplete_.erase(it)) {
    settled_.push_back(it->first);
  }
}

template <typename Lost>
void PeerSnapshots::RemoveHolders(Lost is_lost) {
  const auto remove_from = [&](v1::SnapshotPart& part) {
    auto& holders = *part.mutable_holders();
    holders.erase(std::remove_if(holders.begin(), holders.end(), is_lost), holders.end());
  };
  for (Snapshot& snapshot : complete_) {
    for (v1::SnapshotPart& part : *snapshot.where.mutable_parts()) remove_from(part);
  }
  for (auto& [step, incomplete] : incomplete_) {
    for (auto& [worker, part] : incomplete.parts) remove_from(part);
  }
}

void PeerSnapshots::OnGone(const std::string& worker, uint64_t incarnation) {
  RemoveHolders([&](const v1::SnapshotHolder& holder) {
    return holder.worker() == worker && holder.incarnation() == incarnation;
  });
}

void PeerSnapshots::OnRegistered(const std::string& worker, uint64_t incarnation) {
  RemoveHolders([&](const v1::SnapshotHolder& holder) {
    return holder.worker() == worker && holder.incarnation() != incarnation;
  });
}

void PeerSnapshots::KeepHolders(const IsWorkerHere& is_here) {
  RemoveHolders([&](const v1::SnapshotHolder& holder) {
    return !is_here(holder.worker(), holder.incarnation());
  });
}

void PeerSnapshots::Drop(const std::string& directory) {
  std::erase_if(complete_,
                [&](const Snapshot& snapshot) { return snapshot.where.directory() == directory; });
}

const PeerSnapshots::Snapshot* PeerSnapshots::Latest() const {
  const auto latest =
      std::find_if(complete_.rbegin(), complete_.rend(),
                   [](const Snapshot& snapshot) { return IsHeldWhole(snapshot.where); });
  return latest == complete_.rend() ? nullptr : &*latest;
}

const PeerSnapshots::Snapshot* PeerSnapshots::Find(const std::string& directory) const {
  const auto found = std::find_if(
      complete_.begin(), complete_.end(),
      [&](const Snapshot& snapshot) { return snapshot.where.directory() == directory; });
  return found == complete_.end() ? nullptr : &*found;
}

void PeerSnapshots::OnSaved() {
  const Snapshot* const latest = Latest();
  saved_ = latest == nullptr ? "" : latest->where.directory();
}

std::string PeerSnapshots::FirstNeeded() const {
  const Snapshot* const latest = Latest();
  return latest == nullptr ? stored_ : std::min(stored_, latest->where.directory());
}

void PeerSnapshots::WriteTo(v1::GetJobResponse& record) const {
  for (const Snapshot& snapshot : complete_) *record.add_snapshots() = snapshot.where;
}

}  // namespace penstock
