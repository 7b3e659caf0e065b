// ChooseByExpectedTime: which candidate of a plan is expected to be the first at a loss. The time is that of its step,
// times the steps that it is expected to need (steps_to_loss.h).
//
// Pure functions.
#pragma once

#include <map>
#include <string>

#include "absl/types/span.h"
#include "planner/job/plan_job.h"
#include "planner/job/steps_to_loss.h"

namespace penstock {

struct ExpectedTime {
  StepsFactor factor;
  double seconds = 0;  // per step that a method that drains takes to the loss
};

struct ExpectedChoice {
  int candidate = -1;  // of the plan
  std::string reason;  // a clause: what it is expected to take, and what the next best one
  std::map<int, ExpectedTime> times;  // of the candidates that were eligible

  // Returns its seconds; infinite for one that was not eligible.
  double SecondsOf(int at) const;
};

// `eligible`: candidates of `plan` that run. `setup`: that of the job, as the model's runs have it. `progress`: the part
// of the job's steps after which a synchronous run has the loss. `one_method`: the candidates differ in their stages,
// which train alike where their delays are equal; else those of one method train alike.
// REQUIRES: `eligible` is not empty.
ExpectedChoice ChooseByExpectedTime(const JobPlan& plan, absl::Span<const int> eligible,
                                    const StepsToLoss& model, const std::string& setup,
                                    double progress, bool one_method);

}  // namespace penstock
