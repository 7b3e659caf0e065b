// WorkerProber: tries to reach workers whose streams have ended, and tells the event loop what came of it.
//
// Connections are opened on threads of its own, since an address may be a name, which the system's resolver may take long
// for. When there are more workers than threads, those that answer take no time; the others wait, and their heartbeats may
// decide first.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <atomic>

#include "coordinator/effects.h"
#include "services/coordinator/event_loop.h"
#include "services/rpc/task_pool.h"

namespace penstock {

class WorkerProber {
 public:
  static constexpr int kThreads = 4;
  // Workers that wait for a thread; of those beyond it nothing is found out.
  static constexpr int kQueueMax = 2048;

  // REQUIRES: `loop` outlives the prober.
  explicit WorkerProber(EventLoop& loop) : loop_(loop) {}
  // Stop(), and waits for what is under way.
  ~WorkerProber() { Stop(); }

  void Perform(const ProbeWorker& probe);
  // Nothing is found out any more: when this process ends, all streams do.
  void Stop() { stopping_ = true; }

 private:
  void Probe(const ProbeWorker& probe);

  EventLoop& loop_;
  std::atomic<bool> stopping_ = false;
  TaskPool tasks_{kThreads, kQueueMax, "prober"};  // last: its threads use all of the above
};

}  // namespace penstock
