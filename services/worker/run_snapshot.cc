#include "services/worker/run_snapshot.h"

#include <utility>

#include "absl/time/time.h"

namespace penstock {

RunSnapshot SnapshotOf(const std::string& worker, const RunHost& host,
                       const EventReporter& reporter, TensorHub& hub, Clock& clock) {
  RunHost::Activity activity = host.GetActivity(/*with_stages=*/true);
  RunSnapshot snapshot = {.worker = worker,
                          .job_id = activity.job_id,
                          .epoch = activity.epoch,
                          .running = activity.active,
                          .stages = std::move(activity.stages),
                          .last_step = reporter.last_step(),
                          .tokens = reporter.tokens(),
                          .samples = reporter.samples(),
                          .actions_done = activity.actions_done};
  for (const LinkTraffic& link : hub.Traffic(activity.job_id)) {
    snapshot.links.push_back({.kind = Name(link.edge.kind),
                              .source = link.edge.source,
                              .destination = link.edge.destination,
                              .peer = link.peer,
                              .sent = link.sent,
                              .path = link.path,
                              .bytes = link.bytes,
                              .messages = link.messages,
                              .waiting = link.waiting,
                              .wait_seconds = double(link.wait_ns) * 1e-9,
                              .transfer_seconds = double(link.transfer_ns) * 1e-9,
                              .round_trip_seconds = double(link.round_trip_ns) * 1e-9,
                              .redials = link.redials,
                              .resent = link.resent,
                              .duplicates = link.duplicates,
                              .damaged = link.damaged});
  }
  if (snapshot.last_step.step() > 0) {
    const int64_t ago_ns = clock.MonotonicNs() - snapshot.last_step.monotonic_ns();
    snapshot.last_step_unix_seconds =
        absl::ToDoubleSeconds(clock.WallTime() - absl::UnixEpoch()) - double(ago_ns) * 1e-9;
  }
  return snapshot;
}

}  // namespace penstock
