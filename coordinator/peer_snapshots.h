// PeerSnapshots: which snapshots of a job its workers have in memory, and on which of them it can go on from there.
//
// A snapshot counts once every worker of the attempt has told that it keeps its layers. Each part is held by that worker and,
// if the copy succeeded, by a peer; one whose part nobody holds any more is of no use.
//
// A state machine without I/O; thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/start.h"
#include "coordinator/checkpoint_tracker.h"
#include "coordinator/membership.h"
#include "penstock/v1/cluster.pb.h"
#include "planner/job/assign.h"

namespace penstock {

class PeerSnapshots {
 public:
  // The complete ones that are remembered: the latest.
  static constexpr size_t kCompleteMax = 2;
  // Of a message that says where one is; a call has 1 MiB.
  static constexpr size_t kBytesMax = 512 << 10;
  // Steps of which some workers have told and others have not: as many snapshots as a worker keeps.
  static constexpr size_t kIncompleteMax = 3;

  struct Snapshot {
    v1::PeerSnapshot where;
    FoundStart start;
  };

  // Takes over those in the record of an earlier process; what cannot be read is left out.
  void TakeOver(const v1::GetJobResponse& record);
  // Another attempt begins, on these workers.
  void BeginAttempt(const std::vector<WorkerOffer>& workers, int64_t epoch);

  // A worker keeps its layers. Returns what the snapshot has once all do; Add follows.
  std::optional<CheckpointTracker::Complete> OnKept(int32_t worker_index,
                                                    const v1::LayersKept& kept);
  // One that no worker would take, or that is too much to be sent to all of them, does not count. REQUIRES: it is complete; `manifest` is its own.
  void Add(const std::string& job_id, const Manifest& manifest);

  // Returns the steps of which no worker is waited for any more, since the last call: their snapshots are complete, or given up.
  std::vector<int64_t> TakeSettled() { return std::exchange(settled_, {}); }

  // What the workers have not told of the steps before this one does not come any more.
  void SettleBefore(int64_t step);

  // A worker's process is gone, or there is another of its name.
  void OnGone(const std::string& worker, uint64_t incarnation);
  void OnRegistered(const std::string& worker, uint64_t incarnation);
  // Those that are not here any more hold nothing.
  void KeepHolders(const IsWorkerHere& is_here);
  // It cannot be read.
  void Drop(const std::string& directory);

  // Returns the latest that is held whole, or null.
  const Snapshot* Latest() const;
  // Returns the one in this directory, or null.
  const Snapshot* Find(const std::string& directory) const;
  void WriteTo(v1::GetJobResponse& record) const;

  // The record, with WriteTo, is saved, and what was saved is stored.
  void OnSaved();
  void OnStored() { stored_ = saved_; }
  // Returns the directory of the first snapshot that is needed, by this process or by a later one, which has the stored record.
  // Empty: all of them.
  std::string FirstNeeded() const;

 private:
  struct Incomplete {
    CheckpointTracker::Complete content;
    std::map<int32_t, v1::SnapshotPart> parts;  // by worker index
  };

  template <typename Lost>
  void RemoveHolders(Lost is_lost);

  std::vector<WorkerOffer> workers_;
  int64_t epoch_ = 0;
  std::map<int64_t, Incomplete> incomplete_;  // by step
  std::vector<int64_t> settled_;
  std::vector<Snapshot> complete_;  // in the order in which they came to be
  std::string saved_;               // the directory of the latest, as in the record
  std::string stored_;
};

}  // namespace penstock
