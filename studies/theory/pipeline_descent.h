// Descent through a pipeline: plays a sequence of forwards and backwards on a problem.
//
// With one replica the sequence is PipeDream's, with weight stashing: a forward reads its stage's newest
// weights, and the backward is that of the model a microbatch saw on its way, block by block. With R
// replicas it is LocalSGD's: each has its weights, and all are averaged when a round is done; the curve
// shows the average at any time.
//
// arXiv 2606.03498, algorithm 2 and appendix E.
//
// A pure function.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "studies/theory/curve.h"
#include "studies/theory/noise.h"
#include "studies/theory/problem.h"
#include "studies/theory/ticks.h"

namespace penstock {

// Told of every block update before it is made.
struct UpdateView {
  int64_t k = 0;                      // updates before
  absl::Span<const double> weights;   // [width], of the model that is updated
  absl::Span<const double> gradient;  // [block width], noise included
};
using UpdateObserver = std::function<void(const UpdateView&)>;

struct PipelineDescentOptions {
  double learning_rate = 0.1;
  int64_t batch = 10;
  int64_t replicas = 1;
  int64_t round = 0;            // microbatches between averages; 0: never
  int64_t first_minibatch = 0;  // of microbatch 0
  CurvePlan plan;
};

struct DescentResult {
  Curve curve;
  std::vector<double> weights;  // [width], at the end of the budget
};

// Starts at zero. Microbatch m is minibatch first_minibatch + m, and problems wrap around.
DescentResult PipelineDescent(const Problem& problem, const TickSequence& sequence,
                              const PipelineDescentOptions& options,
                              const GradientNoise& noise = {}, const UpdateObserver& observer = {});

}  // namespace penstock
