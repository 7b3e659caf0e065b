// Randomized PipeDream (RPD): the algorithm that arXiv 2606.03498 proves things about (algorithm 1).
//
// Update k reads a model put together from old blocks, each stage's up to delta block updates old and
// chosen at random; then draws a stage and a minibatch, and updates that stage's block with the gradient
// of the minibatch at the model read. Delays are uniform in [0, min(delta, k)], as in the authors' code.
//
// The draws are a function of (seed, k), so all step sizes of a seed make the same ones.
//
// Pure functions; BlockHistory is thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "studies/theory/curve.h"
#include "studies/theory/noise.h"
#include "studies/theory/pipeline_descent.h"
#include "studies/theory/problem.h"

namespace penstock {

// A model of blocks and its past: the blocks that the last `delta` updates replaced.
class BlockHistory {
 public:
  BlockHistory(const Partition& partition, int64_t width, int64_t delta);

  int64_t updates() const { return updates_; }
  absl::Span<const double> weights() const { return weights_; }
  // The first column of a block; that of stage `stages` is the width.
  int64_t begin(int32_t stage) const { return begins_[stage]; }

  // The block of `stage` as it was after the first `updates() - delay` updates.
  // REQUIRES: 0 <= delay <= min(delta, updates()).
  const double* Read(int32_t stage, int64_t delay) const;

  // Subtracts `scaled_gradient` [block width] from the block of `stage`; this is one update.
  void Update(int32_t stage, absl::Span<const double> scaled_gradient);

 private:
  std::vector<int64_t> begins_;  // by stage: Partition::BlockBegin, which divides
  const int64_t delta_;
  const int64_t block_max_;  // the widest block
  int64_t updates_ = 0;
  std::vector<double> weights_;               // [width]
  std::vector<std::vector<int64_t>> writes_;  // by stage: its updates, rising; old ones are dropped
  std::vector<double> replaced_;              // [delta, block_max]: by update modulo delta
};

// The samples for update k of RPD.
struct RandomDraw {
  std::vector<int64_t> delays;  // by stage
  int32_t stage = 0;
  int64_t minibatch = 0;
};

struct RandomDescentOptions {
  double learning_rate = 0.1;
  Partition partition;
  int64_t minibatches = 60;
  int64_t delta = 0;
  uint64_t seed = 0;
  CurvePlan plan;
  // By tick: block updates done after that many ticks, up to the plan's budget.
  absl::Span<const int64_t> updates_by_tick;
};

// Into `draw`, whose space is used again.
void DrawUpdate(const RandomDescentOptions& options, int64_t k, RandomDraw& draw);

// Starts at zero.
DescentResult RandomDescent(const Problem& problem, const RandomDescentOptions& options,
                            const GradientNoise& noise = {}, const UpdateObserver& observer = {});

// The clock that gives RPD as many updates in every tick as `sequence` has backwards.
std::vector<int64_t> UpdatesByTick(const TickSequence& sequence);

}  // namespace penstock
