#include "job/snapshot_rule.h"

#include <algorithm>

namespace penstock {

SnapshotRule SnapshotRuleOf(const v1::JobSpec& spec, const ResolvedJob& job) {
  const v1::RecoverySpec& recovery = spec.recovery();
  if (recovery.mode() == "off") return {};
  const int64_t every_steps = recovery.snapshot_every_steps();
  // Replicas take the mean of their running statistics wherever a run drains, so more cuts would change these.
  const bool combines_buffers = !job.stage_replicas.empty() &&
                                std::any_of(job.model.nodes.begin(), job.model.nodes.end(),
                                            [](const auto& node) { return !node.buffers.empty(); });
  const bool drains_anyway =
      job.method->synchronous && job.order == Order::kStatic && !combines_buffers;
  return {.at_cuts = spec.checkpoint().directory().empty() || every_steps > 0,
          .every_steps = drains_anyway ? every_steps : 0};
}

}  // namespace penstock
