#include "data/mixture.h"

#include <numeric>

#include "absl/strings/str_cat.h"

namespace penstock {

absl::StatusOr<Mixture> Mixture::Create(absl::Span<const double> weights) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  Mixture mixture;
  mixture.per_period_.assign(weights.size(), 0);
  for (int64_t sample = 0; sample < kPeriod; ++sample) {
    int most_missing = 0;
    double most = 0.0;
    for (size_t source = 0; source < weights.size(); ++source) {
      const double due = weights[source] / all * static_cast<double>(sample + 1);
      const double missing = due - static_cast<double>(mixture.per_period_[source]);
      if (missing <= most) continue;
      most = missing;
      most_missing = static_cast<int>(source);
    }
    mixture.places_.push_back({most_missing, mixture.per_period_[most_missing]++});
  }
  for (size_t source = 0; source < weights.size(); ++source) {
    if (weights[source] > 0.0 && mixture.per_period_[source] > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("weight ", source + 1, " is ", weights[source], " of ", all,
                     " together; expected at least a sample of ", kPeriod));
  }
  return mixture;
}

Mixture::Place Mixture::PlaceOf(int64_t sample) const {
  Place place = places_[sample % kPeriod];
  place.sample += sample / kPeriod * per_period_[place.source];
  return place;
}

int64_t Mixture::SamplesBelow(int64_t end, int source) const {
  int64_t samples = end / kPeriod * per_period_[source];
  for (int64_t sample = 0; sample < end % kPeriod; ++sample) {
    if (places_[sample].source == source) ++samples;
  }
  return samples;
}

}  // namespace penstock
