// Problem: what the studies minimise, f(w) = mean over rows of loss(x_i w, y_i) + l2/2 ||w||^2.
//
// The model is linear, so a stage of a pipeline holds a block of columns and its weights: a forward adds
// the stage's part to the predictions of a minibatch, the last stage turns predictions into the gradient
// of the loss by them, and a backward is that times the block's columns. All the studies of
// arXiv 2606.03498 but the language model have this form.
//
// Minibatch b holds the rows [b * batch, (b + 1) * batch) mod rows. Blocks are contiguous and differ by at
// most one column.
//
// A value; reading is thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "studies/theory/matrix.h"

namespace penstock {

enum class Loss : uint8_t {
  kSquared,   // (prediction - target)^2 / 2
  kLogistic,  // of the logit `prediction`, for targets 0 and 1
};

struct Problem {
  std::string name;
  Loss loss = Loss::kSquared;
  Matrix features;              // [rows, width]
  std::vector<double> targets;  // [rows]
  double l2 = 0.0;
  double optimum = 0.0;  // the least value of the objective

  int64_t rows() const { return features.rows; }
  int64_t width() const { return features.columns; }

  double Objective(absl::Span<const double> weights) const;
  // Into `gradient` [width].
  void Gradient(absl::Span<const double> weights, absl::Span<double> gradient) const;
  // The derivative of a row's loss by its prediction.
  double OutputGradient(int64_t row, double prediction) const;
  // L: the largest eigenvalue that the Hessian has anywhere (for logistic regression a bound of it).
  double Smoothness() const;
};

// The cut of a problem into stages and minibatches.
struct Partition {
  int32_t stages = 1;
  int64_t batch = 10;  // rows of a minibatch

  int64_t BlockBegin(int32_t stage, int64_t width) const { return width * stage / stages; }
  int64_t BlockEnd(int32_t stage, int64_t width) const { return BlockBegin(stage + 1, width); }
};

// The gradient of one block for one minibatch, at a model that `predictions` come from: into
// `gradient` [block width]. `predictions` [batch] are turned into output gradients by OutputGradients;
// `block` [block width] are the block's weights, for the l2 term.
void OutputGradients(const Problem& problem, const Partition& partition, int64_t minibatch,
                     absl::Span<double> predictions);
void BlockGradient(const Problem& problem, const Partition& partition, int32_t stage,
                   int64_t minibatch, absl::Span<const double> output_gradients,
                   const double* block, absl::Span<double> gradient);
// Adds the block's part to the predictions [batch] of a minibatch.
void BlockForward(const Problem& problem, const Partition& partition, int32_t stage,
                  int64_t minibatch, const double* block, absl::Span<double> predictions);

}  // namespace penstock
