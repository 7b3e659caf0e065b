// HealthService: the standard health service for the server as a whole, and for parts of it that have a name.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <map>
#include <string>

#include "base/mutex.h"
#include "services/rpc/waker_list.h"

namespace penstock {

class RpcServer;

class HealthService {
 public:
  // Adds the methods to `server`. REQUIRES: the server is not started, and does not outlive this.
  void AddTo(RpcServer& server);

  void SetServing(bool serving) { SetPartServing("", serving); }
  // A part is known from the first call on.
  void SetPartServing(const std::string& name, bool serving) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  // By the part's name; the whole has none.
  std::map<std::string, bool> serving_ ABSL_GUARDED_BY(mutex_) = {{"", false}};
  WakerList watchers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace penstock
