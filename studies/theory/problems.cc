#include "studies/theory/problems.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random.h"

namespace penstock {
namespace {

// The purpose of a stream of random numbers.
enum Purpose : uint64_t { kFeatures = 0x7468656f727900, kTruth, kLabels };

Matrix NormalMatrix(const ProblemSize& size, uint64_t seed) {
  RandomStream random(seed, kFeatures);
  Matrix matrix(size.rows, size.width);
  for (double& value : matrix.values) value = random.Normal();
  return matrix;
}

std::vector<double> Truth(const ProblemSize& size, uint64_t seed) {
  RandomStream random(seed, kTruth);
  std::vector<double> weights(size.width);
  for (double& weight : weights) weight = random.Normal();
  return weights;
}

Problem LeastSquares(std::string name, Matrix features, const std::vector<double>& truth) {
  Problem problem{.name = std::move(name), .features = std::move(features)};
  for (int64_t row = 0; row < problem.rows(); ++row) {
    problem.targets.push_back(Dot(problem.features.Row(row), truth.data(), problem.width()));
  }
  return problem;
}

// The Hessian [width, width] of a logistic problem; the lower half alone.
Matrix LogisticHessian(const Problem& problem, const std::vector<double>& weights) {
  Matrix hessian(problem.width(), problem.width());
  for (int64_t row = 0; row < problem.rows(); ++row) {
    const double* x = problem.features.Row(row);
    const double probability =
        problem.OutputGradient(row, Dot(x, weights.data(), problem.width())) + problem.targets[row];
    const double curvature =
        probability * (1.0 - probability) / static_cast<double>(problem.rows());
    for (int64_t i = 0; i < problem.width(); ++i) {
      if (x[i] != 0.0) AddScaled(curvature * x[i], x, i + 1, hessian.Row(i));
    }
  }
  for (int64_t i = 0; i < problem.width(); ++i) hessian.At(i, i) += problem.l2;
  return hessian;
}

}  // namespace

Problem RandomQuadratic(const ProblemSize& size, uint64_t seed) {
  return LeastSquares("random quadratic", NormalMatrix(size, seed), Truth(size, seed));
}

Problem NesterovQuadratic(const ProblemSize& size, uint64_t seed, double mu) {
  Matrix basis = NormalMatrix(size, seed);
  Orthonormalize(basis);
  // C of tridiag(-1, 2 + mu, -1) = C C': the diagonal, and one entry below it.
  std::vector<double> diagonal(size.width);
  std::vector<double> below(size.width);  // below[i] is C[i][i - 1]
  for (int64_t i = 0; i < size.width; ++i) {
    below[i] = i == 0 ? 0.0 : -1.0 / diagonal[i - 1];
    diagonal[i] = std::sqrt(2.0 + mu - below[i] * below[i]);
  }
  // X = sqrt(rows) Q C': column i is the mix that row i of C says.
  const double scale = std::sqrt(static_cast<double>(size.rows));
  Matrix features(size.rows, size.width);
  for (int64_t row = 0; row < size.rows; ++row) {
    for (int64_t i = 0; i < size.width; ++i) {
      const double left = i == 0 ? 0.0 : below[i] * basis.At(row, i - 1);
      features.At(row, i) = scale * (left + diagonal[i] * basis.At(row, i));
    }
  }
  return LeastSquares("Nesterov quadratic", std::move(features), Truth(size, seed));
}

Problem SyntheticLogistic(const ProblemSize& size, uint64_t seed, double l2) {
  Problem problem =
      LeastSquares("logistic regression", NormalMatrix(size, seed), Truth(size, seed));
  problem.loss = Loss::kLogistic;
  problem.l2 = l2;
  RandomStream random(seed, kLabels);
  for (double& target : problem.targets) {
    const double probability = 1.0 / (1.0 + std::exp(-target));
    target = random.Uniform() < probability ? 1.0 : 0.0;
  }
  const absl::StatusOr<double> optimum = MinimizeLogistic(problem);
  PENSTOCK_CHECK(optimum.ok());  // standard normal features are neither large nor alike
  problem.optimum = *optimum;
  return problem;
}

absl::StatusOr<double> MinimizeLogistic(const Problem& problem) {
  constexpr int kStepsMax = 200;
  constexpr double kSquaredGradientMin = 1e-20;
  std::vector<double> weights(problem.width());
  std::vector<double> step(problem.width());
  double value = problem.Objective(weights);
  for (int i = 0; i < kStepsMax; ++i) {
    problem.Gradient(weights, absl::MakeSpan(step));
    if (SquaredNorm(step) <= kSquaredGradientMin) break;
    Matrix hessian = LogisticHessian(problem, weights);
    if (!SolvePositiveDefinite(hessian, step)) {
      return absl::InvalidArgumentError(
          absl::StrCat(problem.name, ": the features are too large or too much alike for an l2 of ",
                       problem.l2, "; scale them, for example to [0, 1]"));
    }
    // A full step overshoots where the sigmoid is flat: halve it until the value falls.
    double length = 1.0;
    double next_value = value;
    std::vector<double> next;
    do {
      next = weights;
      AddScaled(-length, step.data(), problem.width(), next.data());
      next_value = problem.Objective(next);
      length *= 0.5;
    } while (next_value > value && length > 1e-6);
    if (next_value >= value) break;  // rounding is all that is left
    weights = std::move(next);
    value = next_value;
  }
  return value;
}

}  // namespace penstock
