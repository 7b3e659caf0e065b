// CallLane: handler threads, and a bounded number of calls that wait for them or are under way. Each kind of callers has a
// lane of its own, so that no number of others' calls, and nothing that these wait for, delays them.
//
// A call is admitted first, which gives it a place. With a place it may run tasks, one after the other; between two of
// them it may wait for something without a thread. So the lane's queue needs no bound beside that on its places.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "services/rpc/task_pool.h"

namespace penstock {

// Whose calls share a lane.
enum class Callers {
  kCluster,  // the cluster's own programs: heartbeats, reports, the coordinator's orders
  kUsers,    // people and their programs: they submit, look and cancel
  kWatchers,  // all streams that wait for news; one holds a thread only while it looks for its next message
  kAttached,  // the streams by which workers are attached, which no number of watchers keeps out
  kProbes,    // health checks, whose answers need no work
  kData,      // parts of files, which wait for a disk, and hold a mebibyte each
};

struct CallLaneLimits {
  int threads = 1;
  int calls_max = 1;
  // Of one peer; below `calls_max`, so that none keeps out all others.
  int calls_per_peer_max = 1;
};

class CallLane {
 public:
  // `name` is shown for the threads by the system's tools, 15 letters at most.
  CallLane(const std::string& name, CallLaneLimits limits);
  // REQUIRES: all places have been given back. Returns when the threads have ended.
  ~CallLane();
  CallLane(const CallLane&) = delete;
  CallLane& operator=(const CallLane&) = delete;

  // The place of one call, given back when it goes. REQUIRES: the lane outlives it.
  class Place {
   public:
    Place() = default;
    Place(Place&& other) noexcept { *this = std::move(other); }
    Place& operator=(Place&& other) noexcept {
      GiveBack();
      lane_ = std::exchange(other.lane_, nullptr);
      peer_ = std::move(other.peer_);
      return *this;
    }
    ~Place() { GiveBack(); }

    // Idempotent.
    void GiveBack();

   private:
    friend class CallLane;
    Place(CallLane* lane, std::string peer) : lane_(lane), peer_(std::move(peer)) {}

    CallLane* lane_ = nullptr;
    std::string peer_;
  };

  // `peer`: who calls, by any name that all calls of one peer have.
  // Errors: ResourceExhausted, which limit was met and what to do.
  absl::StatusOr<Place> Admit(const std::string& peer) ABSL_LOCKS_EXCLUDED(mutex_);

  // Runs `task` on a thread of the lane. REQUIRES: its call has a place, and no other task that waits.
  void Run(std::function<void()> task);

 private:
  void Leave(const std::string& peer) ABSL_LOCKS_EXCLUDED(mutex_);

  const CallLaneLimits limits_;
  Mutex mutex_;
  int calls_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<std::string, int> calls_of_ ABSL_GUARDED_BY(mutex_);  // by peer, of those that have some
  std::unique_ptr<TaskPool> tasks_;                              // constant after construction
};

// The lanes of a server, each there if a method of its needs it.
using CallLanes = std::map<Callers, std::unique_ptr<CallLane>>;

}  // namespace penstock
