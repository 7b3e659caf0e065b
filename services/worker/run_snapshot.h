// RunSnapshot: the run of a worker at this moment, for metrics, put together from its parts.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "penstock/v1/cluster.pb.h"
#include "services/metrics/run_metrics.h"
#include "services/transport/tensor_hub.h"
#include "services/worker/event_reporter.h"
#include "services/worker/run_host.h"

namespace penstock {

// Shows the newest attempt, also after its end. Thread safety: that of its arguments, which any thread may use.
RunSnapshot SnapshotOf(const std::string& worker, const RunHost& host,
                       const EventReporter& reporter, TensorHub& hub, Clock& clock);

// Adds the workers that the run on this one sends to and hears nothing from, each once. `links`: of the run.
void AddSilentLinks(const std::vector<LinkTraffic>& links, v1::HeartbeatRequest& request);

}  // namespace penstock
