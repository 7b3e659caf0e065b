#include "studies/theory/problem.h"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

double Sigmoid(double x) {
  const double small = std::exp(-std::fabs(x));
  return (x >= 0 ? 1.0 : small) / (1.0 + small);
}

double RowLoss(Loss loss, double prediction, double target) {
  if (loss == Loss::kSquared) return 0.5 * (prediction - target) * (prediction - target);
  return std::max(prediction, 0.0) - prediction * target +
         std::log1p(std::exp(-std::fabs(prediction)));
}

// Calls `body` with the place in the minibatch and the row of each of its rows.
template <typename Body>
void ForEachRow(const Problem& problem, const Partition& partition, int64_t minibatch, Body body) {
  int64_t row = minibatch * partition.batch % problem.rows();
  for (int64_t i = 0; i < partition.batch; ++i) {
    body(i, row);
    if (++row == problem.rows()) row = 0;
  }
}

}  // namespace

double Problem::Objective(absl::Span<const double> weights) const {
  double sum = 0.0;
  for (int64_t row = 0; row < rows(); ++row) {
    sum += RowLoss(loss, Dot(features.Row(row), weights.data(), width()), targets[row]);
  }
  return sum / static_cast<double>(rows()) + 0.5 * l2 * SquaredNorm(weights);
}

double Problem::OutputGradient(int64_t row, double prediction) const {
  return (loss == Loss::kSquared ? prediction : Sigmoid(prediction)) - targets[row];
}

void Problem::Gradient(absl::Span<const double> weights, absl::Span<double> gradient) const {
  for (int64_t i = 0; i < width(); ++i) gradient[i] = l2 * weights[i];
  const double scale = 1.0 / static_cast<double>(rows());
  for (int64_t row = 0; row < rows(); ++row) {
    const double prediction = Dot(features.Row(row), weights.data(), width());
    AddScaled(scale * OutputGradient(row, prediction), features.Row(row), width(), gradient.data());
  }
}

double Problem::Smoothness() const {
  const double curvature_max = loss == Loss::kSquared ? 1.0 : 0.25;
  return curvature_max * LargestGramEigenvalue(features) + l2;
}

void OutputGradients(const Problem& problem, const Partition& partition, int64_t minibatch,
                     absl::Span<double> predictions) {
  const double scale = 1.0 / static_cast<double>(partition.batch);
  ForEachRow(problem, partition, minibatch, [&](int64_t i, int64_t row) {
    predictions[i] = scale * problem.OutputGradient(row, predictions[i]);
  });
}

void BlockForward(const Problem& problem, const Partition& partition, int32_t stage,
                  int64_t minibatch, const double* block, absl::Span<double> predictions) {
  const int64_t begin = partition.BlockBegin(stage, problem.width());
  const int64_t size = partition.BlockEnd(stage, problem.width()) - begin;
  ForEachRow(problem, partition, minibatch, [&](int64_t i, int64_t row) {
    predictions[i] += Dot(problem.features.Row(row) + begin, block, size);
  });
}

void BlockGradient(const Problem& problem, const Partition& partition, int32_t stage,
                   int64_t minibatch, absl::Span<const double> output_gradients,
                   const double* block, absl::Span<double> gradient) {
  const int64_t begin = partition.BlockBegin(stage, problem.width());
  const int64_t size = partition.BlockEnd(stage, problem.width()) - begin;
  for (int64_t i = 0; i < size; ++i) gradient[i] = problem.l2 * block[i];
  ForEachRow(problem, partition, minibatch, [&](int64_t i, int64_t row) {
    AddScaled(output_gradients[i], problem.features.Row(row) + begin, size, gradient.data());
  });
}

}  // namespace penstock
