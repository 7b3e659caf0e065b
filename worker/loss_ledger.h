// LossLedger: the losses of microbatches, added up by step, or over a validation. Losses are weighted (ValidTargets)
// before they come here; who takes a sum divides it by the weights.
//
// Where the last place has replicas, each has the losses of its own microbatches alone. They are
// kept one by one until the replicas bring them together (Collectives::GatherLosses), and added up
// in the order of the microbatches.
//
// Thread-compatible. Allocates nothing once it has seen a step.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "schedule/microbatch_table.h"
#include "worker/evaluation.h"

namespace penstock {

class LossLedger {
 public:
  void BeginEvaluation() { evaluation_ = {}; }

  void Add(int64_t step, double loss) { sums_.Insert(step) += loss; }
  void AddEvaluated(const EvaluationSums& sums) { evaluation_ += sums; }
  // Keeps what a microbatch that goes through this replica adds: its loss, or those of a validation.
  void Keep(double loss) { own_.push_back(loss); }
  void KeepEvaluated(const EvaluationSums& sums) {
    const auto numbers = sums.Numbers();
    own_.insert(own_.end(), numbers.begin(), numbers.end());
  }
  // Returns the numbers kept so far, with room for those of all replicas, which AddAll takes: empty but
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
    constexpr size_t kNumbers = EvaluationSums::kNumbers;
    for (size_t at = 0; at < all_.size(); at += kNumbers) {
      AddEvaluated(EvaluationSums::FromNumbers(absl::MakeConstSpan(all_).subspan(at, kNumbers)));
    }
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
  const EvaluationSums& evaluation() const { return evaluation_; }

 private:
  MicrobatchTable<double> sums_;  // by step, over the microbatches so far
  EvaluationSums evaluation_;
  std::vector<double> own_;
  std::vector<double> all_;
};

}  // namespace penstock
