// LossLedger: the losses of microbatches, added up by step, or over a validation.
//
// Where the last place has replicas, each has the losses of its own microbatches alone. They are
// kept one by one until the replicas bring them together (Collectives::GatherLosses), and added up
// in the order of the microbatches.
//
// Thread-compatible. Allocates nothing once it has seen a step.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/microbatch_table.h"

namespace penstock {

class LossLedger {
 public:
  void BeginEvaluation() {
    evaluation_sum_ = 0.0;
    evaluation_count_ = 0;
  }

  void Add(int64_t step, double loss) { sums_.Insert(step) += loss; }
  void AddEvaluated(double loss) {
    evaluation_sum_ += loss;
    ++evaluation_count_;
  }
  // Keeps the loss of a microbatch that goes through this replica.
  void Keep(double loss) { own_.push_back(loss); }
  // Returns those kept so far, with room for those of all replicas, which AddAll takes: empty but
  // on the first replica.
  const std::vector<double>& own() const { return own_; }
  std::vector<double>& all() { return all_; }
  void AddAll(int64_t step) {
    own_.clear();
    if (all_.empty()) return;
    double& sum = sums_.Insert(step);
    for (const double loss : all_) sum += loss;
  }
  void AddAllEvaluated() {
    own_.clear();
    for (const double loss : all_) AddEvaluated(loss);
  }

  // The sum of a step so far, which is then forgotten. REQUIRES: a loss of it was added.
  double Take(int64_t step) {
    const double sum = *sums_.Find(step);
    sums_.Erase(step);
    return sum;
  }
  // Goes on with `before`, what others have added up before the losses that are here.
  void GoOn(int64_t step, double before) {
    double& here = sums_.Insert(step);
    here = before + here;
  }
  // 0 if there was none.
  double evaluation_mean() const {
    return evaluation_count_ == 0 ? 0.0 : evaluation_sum_ / static_cast<double>(evaluation_count_);
  }

 private:
  MicrobatchTable<double> sums_;  // by step, over the microbatches so far
  double evaluation_sum_ = 0.0;
  int64_t evaluation_count_ = 0;
  std::vector<double> own_;
  std::vector<double> all_;
};

}  // namespace penstock
