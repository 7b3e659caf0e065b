#include "services/worker/run_peers.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/seen_epoch.h"
#include "base/status.h"

namespace penstock {
namespace {

template <typename Request>
absl::Status BadPlan(const Request& request, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat("plan of job ", request.job_id(), ", epoch ", request.epoch(), ": ", what));
}

template <typename Request>
absl::StatusOr<RunPeers> PeersOfTyped(const Request& request, const std::string& name,
                                      uint64_t incarnation) {
  const int stages = request.plan().stages_size();
  if (request.job_id().empty()) return BadPlan(request, "job_id is empty");
  if (request.epoch() < 1) return BadPlan(request, "epoch is below 1");
  if (request.epoch() > kEpochMax) {
    return BadPlan(request, absl::StrCat("epoch is above ", kEpochMax));
  }
  if (stages == 0) return BadPlan(request, "no stages");

  RunPeers peers = {.job_id = request.job_id(),
                    .epoch = request.epoch(),
                    .self = request.worker_index(),
                    .worker_of_stage = std::vector<int>(stages, -1)};
  for (const v1::StageAssignment& stage : request.plan().stages()) {
    const int worker = stage.worker_index();
    // There is at least one stage on every worker, so neither number can reach the stages' count.
    if (stage.stage() < 0 || stage.stage() >= stages || worker < 0 || worker >= stages) {
      return BadPlan(request, absl::StrCat("stage ", stage.stage(), " on worker ", worker,
                                           ", expected both below ", stages));
    }
    if (peers.worker_of_stage[stage.stage()] >= 0) {
      return BadPlan(request, absl::StrCat("stage ", stage.stage(), " is listed twice"));
    }
    peers.worker_of_stage[stage.stage()] = worker;
    if (worker >= static_cast<int>(peers.workers.size())) peers.workers.resize(worker + 1);
    TensorPeer& peer = peers.workers[worker];
    TensorPeer listed = {stage.worker(), stage.address(), stage.incarnation()};
    if (!peer.name.empty() && peer != listed) {
      return BadPlan(request, absl::StrCat("worker ", worker, " is listed as ", peer.ToString(),
                                           " and as ", listed.ToString()));
    }
    peer = std::move(listed);
  }
  for (const TensorPeer& peer : peers.workers) {
    if (peer.name.empty()) return BadPlan(request, "a worker has no stage or no name");
    PENSTOCK_RETURN_IF_ERROR(
        Annotate(ParseHostPort(peer.address).status(), absl::StrCat("worker ", peer.name)));
  }
  if (peers.self < 0 || peers.self >= static_cast<int>(peers.workers.size())) {
    return BadPlan(request, absl::StrCat("worker_index ", peers.self, " has no stage"));
  }
  const TensorPeer& self = peers.workers[peers.self];
  if (self.name != name || self.incarnation != incarnation) {
    return absl::FailedPreconditionError(absl::StrCat(
        "plan of job ", request.job_id(), " is for ", self.ToString(), ", incarnation ",
        self.incarnation, "; this is worker ", name, ", incarnation ", incarnation));
  }
  return peers;
}

}  // namespace

absl::StatusOr<RunPeers> PeersOf(const RunRequest& request, const std::string& name,
                                 uint64_t incarnation) {
  return std::visit([&](const auto& typed) { return PeersOfTyped(typed, name, incarnation); },
                    request);
}

}  // namespace penstock
