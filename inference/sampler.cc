#include "inference/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace penstock {
namespace {

constexpr uint64_t kPurpose = 0x73616d706c65;  // "sample": apart from all streams of training

}  // namespace

Sampler::Sampler(const SamplerOptions& options)
    : options_(options), random_(options.seed, kPurpose) {}

int32_t Sampler::Draw(absl::Span<const float> logits) {
  PENSTOCK_CHECK(!logits.empty());
  if (options_.temperature <= 0) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const bool has_top_k = options_.top_k > 0 && options_.top_k < static_cast<int64_t>(order.size());
  const auto end = has_top_k ? order.begin() + options_.top_k : order.end();
  // Likeliest first, the smaller index among equals: the order does not depend on the sort.
  std::partial_sort(order.begin(), end, order.end(), [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  order.erase(end, order.end());
  const double top = logits[order.front()];
  std::vector<double> cumulative;
  double sum = 0;
  for (const int32_t token : order) {
    sum += std::exp((logits[token] - top) / options_.temperature);
    cumulative.push_back(sum);
  }
  if (options_.top_p < 1.0) {
    const auto last =
        std::lower_bound(cumulative.begin(), cumulative.end() - 1, options_.top_p * sum);
    sum = *last;
    cumulative.erase(last + 1, cumulative.end());
  }
  const double drawn = random_.Uniform() * sum;
  const auto it = std::upper_bound(cumulative.begin(), cumulative.end(), drawn);
  const size_t index = std::min<size_t>(it - cumulative.begin(), cumulative.size() - 1);
  return order[index];
}

}  // namespace penstock
