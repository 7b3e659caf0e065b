#include "services/worker/run_snapshot.h"

#include <algorithm>
#include <map>
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

void AddSilentLinks(const std::vector<LinkTraffic>& links, v1::HeartbeatRequest& request) {
  std::map<std::string, int64_t> silent_ms;  // the longest of the edges to a worker
  for (const LinkTraffic& link : links) {
    const int64_t ms = link.silent_ns / 1'000'000;
    if (link.sent && ms > 0) silent_ms[link.peer] = std::max(silent_ms[link.peer], ms);
  }
  for (const auto& [peer, ms] : silent_ms) {
    v1::SilentLink& silent = *request.add_silent_links();
    silent.set_peer(peer);
    silent.set_silent_ms(ms);
  }
}

}  // namespace penstock
