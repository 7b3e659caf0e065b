#include "worker/evaluation.h"

#include <algorithm>

#include "base/check.h"

namespace penstock {

void WriteMetrics(const std::vector<MetricValue>& metrics,
                  google::protobuf::RepeatedPtrField<v1::MetricValue>& messages) {
  for (const MetricValue& metric : metrics) {
    v1::MetricValue& message = *messages.Add();
    message.set_name(metric.name);
    message.set_value(metric.value);
  }
}

EvaluationSums EvaluationSums::Of(double mean_loss, double weight,
                                  absl::Span<const int32_t> ranks) {
  EvaluationSums sums = {.loss = mean_loss * weight, .weight = weight};
  const absl::Span<const Metric* const> metrics = AllMetrics();
  for (const int32_t rank : ranks) {
    if (rank < 0) continue;
    sums.judged += 1.0;
    for (size_t i = 0; i < metrics.size(); ++i) {
      if (metrics[i]->is_right(rank)) sums.right[i] += 1.0;
    }
  }
  return sums;
}

std::array<double, EvaluationSums::kNumbers> EvaluationSums::Numbers() const {
  std::array<double, kNumbers> numbers = {loss, weight, judged};
  std::copy(right.begin(), right.end(), numbers.begin() + 3);
  return numbers;
}

EvaluationSums EvaluationSums::FromNumbers(absl::Span<const double> numbers) {
  PENSTOCK_CHECK(numbers.size() == kNumbers);
  EvaluationSums sums = {.loss = numbers[0], .weight = numbers[1], .judged = numbers[2]};
  std::copy(numbers.begin() + 3, numbers.end(), sums.right.begin());
  return sums;
}

EvaluationSums& EvaluationSums::operator+=(const EvaluationSums& other) {
  loss += other.loss;
  weight += other.weight;
  judged += other.judged;
  for (size_t i = 0; i < right.size(); ++i) right[i] += other.right[i];
  return *this;
}

Evaluation EvaluationSums::Result(const ModelGraph& model) const {
  const auto part = [](double sum, double of) { return of == 0.0 ? 0.0 : sum / of; };
  Evaluation evaluation = {.loss = part(loss, weight)};
  const absl::Span<const Metric* const> all = AllMetrics();
  for (const Metric* metric : MetricsOf(model)) {
    const auto place = std::find(all.begin(), all.end(), metric) - all.begin();
    evaluation.metrics.push_back({std::string(metric->name), part(right[place], judged)});
  }
  return evaluation;
}

}  // namespace penstock
