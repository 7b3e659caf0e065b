#include "job/snapshot_rule.h"

namespace penstock {

SnapshotRule SnapshotRuleOf(const v1::JobSpec& spec, const ResolvedJob& job) {
  const v1::RecoverySpec& recovery = spec.recovery();
  if (recovery.mode() == "off") return {};
  const int64_t every_steps = recovery.snapshot_every_steps();
  const bool drains_anyway = job.method->synchronous && job.order == Order::kStatic;
  return {.at_cuts = spec.checkpoint().directory().empty() || every_steps > 0,
          .every_steps = drains_anyway ? every_steps : 0};
}

}  // namespace penstock
