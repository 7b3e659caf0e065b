#include "planner/job/steps_to_loss.h"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

constexpr int kFeatures = 6;
// The weights' deviations a priori, by whose they are: those that all share, the method's, the setup's, the method's in
// the setup. 0: there is no such weight. In the order: constant, d, u, p, d p, u p.
constexpr double kDeviations[][kFeatures] = {
    {0, 0.2, 0.25, 0, 0.1, 0.1},
    {0.15, 0.2, 0, 0.1, 0.07, 0},
    {0, 0.2, 0.2, 0, 0.1, 0.1},
    {0.15, 0.2, 0, 0.1, 0, 0},
};
// The prior mean of the weight of d that all share: one update of delay costs a third of the steps.
constexpr int kDelay = 1;
constexpr double kDelayMean = 0.3;
// The noise in the steps of one run, as a part of them.
constexpr double kNoise = 0.125;

// Levels of loss stand at the parts 1, 0.71, 0.5, ... of the job's steps.
constexpr int kLevels = 9;
double ProgressOf(int level) { return std::pow(2.0, -0.5 * level); }
constexpr double kProgressMin = 1.0 / 16;

constexpr double kDeviationsOf90Percent = 1.645;
// A factor beyond any sense is still a number.
double Exp(double log) { return std::exp(std::min(log, 50.0)); }

}  // namespace

double StepsFactor::median() const { return Exp(log_mean); }
double StepsFactor::expected() const { return Exp(log_mean + 0.5 * log_deviation * log_deviation); }

double StepsFactor::low() const { return Exp(log_mean - kDeviationsOf90Percent * log_deviation); }
double StepsFactor::high() const { return Exp(log_mean + kDeviationsOf90Percent * log_deviation); }

NormalRegression::Weight StepsToLoss::PriorOf(const Key& key) {
  return {.mean = key.of == Of::kAll && key.feature == kDelay ? kDelayMean : 0,
          .deviation = kDeviations[static_cast<int>(key.of)][key.feature]};
}

std::vector<std::pair<StepsToLoss::Key, double>> StepsToLoss::FeaturesOf(
    const UpdatePattern& pattern, const std::string& setup, double progress) {
  std::vector<std::pair<Key, double>> features;
  if (pattern.synchronous) return features;
  const double d = pattern.delay;
  const double u = std::log(pattern.updates_per_step);
  const double p = std::log(std::clamp(progress, kProgressMin, 1.0));
  const std::array<double, kFeatures> values = {1, d, u, p, d * p, u * p};
  for (const Of of : {Of::kAll, Of::kMethod, Of::kSetup, Of::kMethodInSetup}) {
    const bool has_method = of == Of::kMethod || of == Of::kMethodInSetup;
    const bool has_setup = of == Of::kSetup || of == Of::kMethodInSetup;
    const Key key = {of, has_method ? pattern.method : "", has_setup ? setup : ""};
    for (int i = 0; i < kFeatures; ++i) {
      if (kDeviations[static_cast<int>(of)][i] == 0) continue;
      features.push_back({key, values[i]});
      features.back().first.feature = i;
    }
  }
  return features;
}

StepsToLoss::StepsToLoss(absl::Span<const ObservedRun> runs) {
  std::map<std::string, std::vector<ObservedRun>> by_setup;
  for (const ObservedRun& run : runs) {
    by_setup[run.setup].push_back(run);
    for (const auto& [key, value] : FeaturesOf(run.pattern, run.setup, 1)) {
      weights_.emplace(key, static_cast<int>(weights_.size()));
    }
  }
  std::vector<NormalRegression::Weight> prior(weights_.size());
  for (const auto& [key, index] : weights_) prior[index] = PriorOf(key);
  regression_.emplace(prior);
  for (const auto& [name, of_setup] : by_setup) ObserveSetup(name, of_setup);
}

void StepsToLoss::ObserveSetup(const std::string& name, absl::Span<const ObservedRun> runs) {
  Setup& setup = setups_[name];
  for (const ObservedRun& run : runs) {
    const bool synchronous = run.pattern.synchronous;
    setup.runs += synchronous ? 0 : 1;
    const bool better = std::pair(synchronous, run.curve.steps()) >
                        std::pair(setup.is_synchronous, setup.curve.steps());
    if (!better) continue;
    setup.steps = run.steps;
    setup.curve = run.curve;
    setup.is_synchronous = synchronous;
  }
  const int64_t first = runs.front().first;
  std::vector<std::vector<NormalRegression::Observation>> levels(kLevels);
  for (const ObservedRun& run : runs) {
    std::vector<std::pair<int, double>> reached;  // level, steps
    for (int level = 0; level < kLevels; ++level) {
      const double at = ProgressOf(level) * static_cast<double>(setup.steps);
      const std::optional<double> loss =
          at < static_cast<double>(first) ? std::nullopt : setup.curve.LossAt(at);
      if (!loss.has_value()) continue;
      if (const auto steps = run.curve.StepsTo(*loss); steps.has_value()) {
        reached.push_back({level, *steps});
      }
    }
    for (const auto& [level, steps] : reached) {
      NormalRegression::Observation& one = levels[level].emplace_back();
      for (const auto& [key, value] : FeaturesOf(run.pattern, name, ProgressOf(level))) {
        one.x.push_back({weights_.at(key), value});
      }
      one.y = std::log(steps);
      one.precision = 1 / (kNoise * kNoise * static_cast<double>(reached.size()));
    }
  }
  for (const auto& level : levels) regression_->ObserveDifferences(level);
}

StepsFactor StepsToLoss::Predict(const UpdatePattern& pattern, const std::string& setup,
                                 double progress) const {
  if (pattern.synchronous) return {};
  std::vector<std::pair<int, double>> known;
  double mean = 0;
  double variance = kNoise * kNoise;
  for (const auto& [key, value] : FeaturesOf(pattern, setup, progress)) {
    if (const auto weight = weights_.find(key); weight != weights_.end()) {
      known.push_back({weight->second, value});
      continue;
    }
    // No run has it: it is as it was a priori.
    const NormalRegression::Weight prior = PriorOf(key);
    mean += prior.mean * value;
    variance += prior.deviation * prior.deviation * value * value;
  }
  const NormalRegression::Normal fitted = regression_->Predict(known);
  return {.log_mean = mean + fitted.mean, .log_deviation = std::sqrt(variance + fitted.variance)};
}

std::optional<double> StepsToLoss::ProgressAt(const std::string& name, double loss) const {
  const auto setup = setups_.find(name);
  if (setup == setups_.end()) return std::nullopt;
  const std::optional<double> steps = setup->second.curve.StepsTo(loss);
  if (!steps.has_value()) return std::nullopt;
  return std::min(1.0, *steps / static_cast<double>(setup->second.steps));
}

int StepsToLoss::RunsOf(const std::string& setup) const {
  const auto found = setups_.find(setup);
  return found == setups_.end() ? 0 : found->second.runs;
}

}  // namespace penstock
