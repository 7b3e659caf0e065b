// NormalRegression: linear regression of observations with normal noise on weights with a normal prior, in closed form.
//
// Thread-compatible.
#pragma once

#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace penstock {

class NormalRegression {
 public:
  struct Weight {
    double mean = 0;  // before any observation
    double deviation = 1;
  };
  struct Observation {
    std::vector<std::pair<int, double>> x;  // index of the weight, and its factor
    double y = 0;
    double precision = 1;  // one over the variance of the noise
  };
  struct Normal {
    double mean = 0;
    double variance = 0;
  };

  // REQUIRES: deviations are positive.
  explicit NormalRegression(absl::Span<const Weight> prior);

  // y is the sum of x times the weights, and the noise.
  void Observe(const Observation& observation);
  // Observes values that share an unknown, arbitrary offset: only the differences between them count, so one alone says
  // nothing.
  void ObserveDifferences(absl::Span<const Observation> observations);

  // Predicts the sum of x times the weights, given what was observed.
  Normal Predict(absl::Span<const std::pair<int, double>> x) const;

 private:
  void Add(const std::vector<double>& x, double y, double precision);
  // Solves precision_ z = b.
  std::vector<double> Solve(std::vector<double> b) const;

  int size_;
  std::vector<double> precision_;  // of the weights together: size_ x size_
  std::vector<double> pull_;       // precision times mean
  // The Cholesky factor of precision_, in its lower half, once somebody has asked; empty: not since the last observation.
  mutable std::vector<double> factor_;
};

}  // namespace penstock
