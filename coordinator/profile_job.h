// ProfileJob: a job whose workers measure instead of training (profile_gatherer.h): the layers of a model on each kind
// of device, and the links between them.
//
//   FindingLayerTimes -> Measuring -> Ended
//
// There is no step to drain to: a profile that is cancelled stops.
//
// Thread-compatible.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "coordinator/job_run.h"
#include "penstock/v1/cluster.pb.h"

namespace penstock {

class ProfileJob final : public JobRun {
 public:
  ProfileJob(const v1::GetJobResponse& record, int64_t last_sequence, ResolvedJob job,
             const JobRunLimits& limits, CoordinatorEffects& effects)
      : JobRun(record, last_sequence, std::move(job), limits, effects),
        profile_spec_(record.profile_spec()) {}

  // ---- For its phases.
  const v1::ProfileSpec& profile_spec() const { return profile_spec_; }
  v1::Plan& plan() { return plan_; }
  void SetProfile(v1::ClusterProfile profile) { profile_ = std::move(profile); }

 private:
  int64_t FewestWorkers() const override { return std::max(1, profile_spec_.workers()); }
  bool WantsAllFree() const override { return profile_spec_.workers() == 0; }
  int64_t WorkersAmong(int64_t free) const override;
  std::unique_ptr<JobPhase> FirstPhase(std::unique_ptr<Crew> crew) override;
  std::string WhyNotSaved() const override { return "a profile cannot be continued"; }
  void WriteTo(v1::GetJobResponse& record) const override;

  const v1::ProfileSpec profile_spec_;
  v1::Plan plan_;
  std::optional<v1::ClusterProfile> profile_;  // once it has succeeded
};

}  // namespace penstock
