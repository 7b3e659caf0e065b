// LearnedSteps: what earlier jobs tell of the steps that methods take to a loss.
//
// Everything is in the jobs' records, which outlive the process: the curves of those that raced, and the losses of the
// job itself. So nothing else has to be kept, and a coordinator that starts again learns the same from its store.
//
// Thread-compatible.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "penstock/v1/cluster.pb.h"
#include "planner/job/steps_to_loss.h"

namespace penstock {

// Returns a text of all that decides how fast a job learns, but for its method: equal for two jobs whose losses can be
// compared. Seeds, names and settings of how a job is run do not count, nor does the number of microbatches
// (UpdatePattern has what it changes). `spec`: as it was submitted, with the defaults that are known.
std::string SetupOf(const v1::JobSpec& spec);

class LearnedSteps {
 public:
  // The runs and setups remembered, of the latest jobs; fitting a model to them takes some hundredths of a second.
  static constexpr size_t kRunsMax = 128;
  static constexpr size_t kSetupsMax = 16;

  // Takes what the job's record says so far, in place of what it said before.
  void Learn(const v1::GetJobResponse& record);

  std::vector<ObservedRun> Runs() const;

 private:
  struct OfJob {
    std::string job_id;
    std::vector<ObservedRun> runs;
  };
  bool HasTooMany() const;

  std::deque<OfJob> jobs_;  // the latest at the end
};

v1::UpdatePattern ToMessage(const UpdatePattern& pattern);
v1::StepsFactor ToMessage(const StepsFactor& factor);
void ToMessage(const LossCurve& curve, google::protobuf::RepeatedPtrField<v1::LossPoint>& points);

}  // namespace penstock
