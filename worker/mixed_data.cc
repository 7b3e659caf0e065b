#include "worker/mixed_data.h"

#include "base/check.h"
#include "base/status.h"

namespace penstock {

absl::Status MixedData::Read(Split split, int64_t first_sample, int port,
                             absl::Span<std::byte> values) const {
  const auto samples = static_cast<int64_t>(values.size()) / sample_bytes_;
  PENSTOCK_CHECK(samples * sample_bytes_ == static_cast<int64_t>(values.size()));
  for (int64_t i = 0; i < samples; ++i) {
    const Mixture::Place place = PlaceOf(split, first_sample + i);
    PENSTOCK_RETURN_IF_ERROR(sources_[place.source]->Read(
        split, place.sample, port, values.subspan(i * sample_bytes_, sample_bytes_)));
  }
  return absl::OkStatus();
}

int64_t MixedData::validation_samples() const {
  if (validation_ == Validation::kMixed) return validation_samples_;
  int64_t samples = 0;
  for (const auto& source : sources_) samples += source->validation_samples();
  return samples;
}

Mixture::Place MixedData::PlaceOf(Split split, int64_t sample) const {
  if (split == Split::kTraining || validation_ == Validation::kMixed) {
    return mixture_.PlaceOf(sample);
  }
  Mixture::Place place = {0, sample};
  while (place.sample >= sources_[place.source]->validation_samples()) {
    place.sample -= sources_[place.source]->validation_samples();
    ++place.source;
  }
  return place;
}

}  // namespace penstock
