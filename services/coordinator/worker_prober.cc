#include "services/coordinator/worker_prober.h"

#include "base/status.h"
#include "services/rpc/address.h"
#include "services/rpc/limits.h"

namespace penstock {

void WorkerProber::Perform(const ProbeWorker& probe) {
  if (stopping_) return;
  (void)tasks_.Submit([this, probe] { Probe(probe); });  // without a place heartbeats decide
}

void WorkerProber::Probe(const ProbeWorker& probe) {
  if (stopping_) return;
  const absl::StatusOr<HostPort> address = ParseHostPort(probe.address);
  const absl::Status answer =
      address.ok() ? ProbeListener(*address, rpc_limits::kProbeTimeout) : address.status();
  if (stopping_) return;
  loop_.Post([probe, answer](Coordinator& coordinator, Now now) {
    coordinator.OnProbed(probe, answer, now);
  });
}

}  // namespace penstock
