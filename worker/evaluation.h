// Evaluation: what a model makes of validation data, and the sums that it is the quotient of.
//
// Plain values; thread-compatible.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "model/graph.h"
#include "model/metric.h"
#include "model/metrics/list.h"
#include "penstock/v1/cluster.pb.h"

namespace penstock {

struct Evaluation {
  double loss = 0.0;                 // mean over the valid targets; 0 if there is none
  std::vector<MetricValue> metrics;  // of a model over classes
  friend bool operator==(const Evaluation&, const Evaluation&) = default;
};

void WriteMetrics(const std::vector<MetricValue>& metrics,
                  google::protobuf::RepeatedPtrField<v1::MetricValue>& messages);

// Of microbatches. Counts are doubles, so that the sums of replicas travel as numbers of one kind.
struct EvaluationSums {
  static constexpr int kNumbers = 3 + kMetricCount;

  double loss = 0.0;    // mean losses times their weights
  double weight = 0.0;  // as of ValidTargets
  double judged = 0.0;  // valid targets whose ranks were told
  std::array<double, kMetricCount> right = {};

  // Of one microbatch. `ranks`: as of Stage::Evaluated.
  static EvaluationSums Of(double mean_loss, double weight, absl::Span<const int32_t> ranks);
  // To and from kNumbers numbers.
  std::array<double, kNumbers> Numbers() const;
  static EvaluationSums FromNumbers(absl::Span<const double> numbers);

  EvaluationSums& operator+=(const EvaluationSums& other);
  Evaluation Result(const ModelGraph& model) const;
};

}  // namespace penstock
