#include "planner/job/normal_regression.h"

#include <cmath>

namespace penstock {
NormalRegression::NormalRegression(absl::Span<const Weight> prior)
    : size_(static_cast<int>(prior.size())), precision_(prior.size() * prior.size()) {
  for (size_t i = 0; i < prior.size(); ++i) {
    const double precision = 1 / (prior[i].deviation * prior[i].deviation);
    precision_[i * prior.size() + i] = precision;
    pull_.push_back(precision * prior[i].mean);
  }
}

std::vector<double> NormalRegression::Solve(std::vector<double> b) const {
  const auto at = [this](int row, int column) -> double& { return factor_[row * size_ + column]; };
  if (factor_.empty()) {
    factor_ = precision_;
    for (int i = 0; i < size_; ++i) {
      for (int j = 0; j <= i; ++j) {
        double sum = at(i, j);
        for (int k = 0; k < j; ++k) sum -= at(i, k) * at(j, k);
        at(i, j) = i == j ? std::sqrt(sum) : sum / at(j, j);
      }
    }
  }
  for (int i = 0; i < size_; ++i) {
    for (int k = 0; k < i; ++k) b[i] -= at(i, k) * b[k];
    b[i] /= at(i, i);
  }
  for (int i = size_ - 1; i >= 0; --i) {
    for (int k = i + 1; k < size_; ++k) b[i] -= at(k, i) * b[k];
    b[i] /= at(i, i);
  }
  return b;
}

void NormalRegression::Add(const std::vector<double>& x, double y, double precision) {
  factor_.clear();
  std::vector<int> there;  // most are not
  for (int i = 0; i < size_; ++i) {
    if (x[i] != 0) there.push_back(i);
  }
  for (const int i : there) {
    pull_[i] += precision * x[i] * y;
    for (const int j : there) precision_[i * size_ + j] += precision * x[i] * x[j];
  }
}

void NormalRegression::Observe(const Observation& observation) {
  std::vector<double> x(size_);
  for (const auto& [weight, factor] : observation.x) x[weight] += factor;
  Add(x, observation.y, observation.precision);
}

void NormalRegression::ObserveDifferences(absl::Span<const Observation> observations) {
  // With a flat prior of the common number, what is left are the distances to the weighted mean.
  std::vector<double> mean_x(size_);
  double mean_y = 0;
  double precision = 0;
  for (const Observation& one : observations) precision += one.precision;
  for (const Observation& one : observations) {
    const double share = one.precision / precision;
    for (const auto& [weight, factor] : one.x) mean_x[weight] += share * factor;
    mean_y += share * one.y;
  }
  for (const Observation& one : observations) {
    std::vector<double> x(size_);
    for (int i = 0; i < size_; ++i) x[i] = -mean_x[i];
    for (const auto& [weight, factor] : one.x) x[weight] += factor;
    Add(x, one.y - mean_y, one.precision);
  }
}

NormalRegression::Normal NormalRegression::Predict(
    absl::Span<const std::pair<int, double>> x) const {
  std::vector<double> all(size_);
  for (const auto& [weight, factor] : x) all[weight] += factor;
  // With A the precision: mean = x A^-1 pull, variance = x A^-1 x.
  const std::vector<double> solved = Solve(all);
  Normal predicted;
  for (int i = 0; i < size_; ++i) {
    predicted.mean += solved[i] * pull_[i];
    predicted.variance += solved[i] * all[i];
  }
  return predicted;
}

}  // namespace penstock
