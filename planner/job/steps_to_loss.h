// StepsToLoss: how many steps a method takes to a loss, as a multiple of what a method takes that drains at every step.
//
// It is fitted to the loss curves of earlier runs. Everything else that the steps to a loss depend on (model, data,
// rate) is the run's setup, and only runs of one setup are compared, at equal losses:
//
//   log steps(run, loss) = c(setup, loss) + effect(run, progress) + noise
//
// with any c, and with effect = 0, exactly, for runs that drain at every step. Otherwise it is linear in
//
//   d, the delay of gradients in updates    u, the logarithm of the updates in a step
//   p, the logarithm of the progress (the part of the job's steps that a synchronous run takes to the loss)
//   d p, u p, and a constant of the method
//
// with weights that are the sum of those that all runs share, those of the method, those of the setup, and those of the
// method in this setup: a method, or a setup, that nobody has tried is expected to behave as others do, and less is
// known of it. A priori a delay costs steps, and smaller updates neither cost nor save any (ADR 28 has the numbers and
// their sources). The levels of one curve go wrong together, so they count as one observation.
//
// The prediction is log-normal. Uncertainty enters a choice by the mean of that distribution, which is above its median
// by half the variance: the expected time to the loss is minimized, and of two methods that seem alike the one of which
// more is known is taken.
//
// Plain values and pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "planner/job/loss_curve.h"
#include "planner/job/normal_regression.h"
#include "planner/job/update_pattern.h"

namespace penstock {

// A run that trained from the first step on.
struct ObservedRun {
  std::string setup;  // runs of equal ones reach equal losses in equal steps, but for `pattern`
  int64_t steps = 0;  // of the whole job
  // The steps that are not looked at: until the rate has warmed up smaller updates look better.
  int64_t first = 0;
  UpdatePattern pattern;
  LossCurve curve;
  friend bool operator==(const ObservedRun&, const ObservedRun&) = default;
};

// Times the steps of a synchronous run.
struct StepsFactor {
  double log_mean = 0;
  double log_deviation = 0;

  double median() const;
  double expected() const;
  // The bounds between which it is with a probability of 90 %.
  double low() const;
  double high() const;
};

class StepsToLoss {
 public:
  explicit StepsToLoss(absl::Span<const ObservedRun> runs);

  // `progress`: the part of the setup's steps, from 0 to 1, that a synchronous run takes to the loss.
  StepsFactor Predict(const UpdatePattern& pattern, const std::string& setup,
                      double progress) const;

  // Returns the progress at which runs of the setup had `loss`; absent: none has.
  std::optional<double> ProgressAt(const std::string& setup, double loss) const;
  // Returns how many runs of the setup are not synchronous: a prediction for it rests on them.
  int RunsOf(const std::string& setup) const;

 private:
  enum class Of { kAll, kMethod, kSetup, kMethodInSetup };
  // Identifies a weight: whose it is (the names of the method and setup), and which of kFeatures it belongs to.
  struct Key {
    Of of = Of::kAll;
    std::string method;
    std::string setup;
    int feature = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Setup {
    int64_t steps = 0;
    LossCurve curve;  // of a synchronous run, or if there is none of the longest
    bool is_synchronous = false;
    int runs = 0;
  };

  static NormalRegression::Weight PriorOf(const Key& key);
  static std::vector<std::pair<Key, double>> FeaturesOf(const UpdatePattern& pattern,
                                                        const std::string& setup, double progress);
  void ObserveSetup(const std::string& name, absl::Span<const ObservedRun> runs);

  std::map<std::string, Setup> setups_;
  std::map<Key, int> weights_;
  std::optional<NormalRegression> regression_;
};

}  // namespace penstock
