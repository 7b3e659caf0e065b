// MixedData: samples of several sources, each with its share (data/mixture.h).
//
// Thread safety: immutable once made.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "data/mixture.h"
#include "worker/data_source.h"

namespace penstock {

class MixedData : public DataSource {
 public:
  enum class Validation : uint8_t {
    kMixed,      // windows are mixed as samples of training are
    kAllOfEach,  // all of the first source, then all of the next: to evaluate a model
  };

  // `sample_bytes`: of a sample of a port, the same of all ports. REQUIRES: `mixture` has as many sources as there are, whose
  // samples all start afresh; where validation is mixed, each source has its share of `validation_samples`.
  MixedData(std::vector<std::unique_ptr<DataSource>> sources, Mixture mixture, int64_t sample_bytes,
            Validation validation, int64_t validation_samples)
      : sources_(std::move(sources)),
        mixture_(std::move(mixture)),
        sample_bytes_(sample_bytes),
        validation_(validation),
        validation_samples_(validation_samples) {}

  absl::Status Read(Split split, int64_t first_sample, int port,
                    absl::Span<std::byte> values) const override;
  int64_t validation_samples() const override;
  // Of the first source.
  absl::Span<const AttachedFile> attached_files() const override {
    return sources_.front()->attached_files();
  }

 private:
  Mixture::Place PlaceOf(Split split, int64_t sample) const;

  const std::vector<std::unique_ptr<DataSource>> sources_;
  const Mixture mixture_;
  const int64_t sample_bytes_;
  const Validation validation_;
  const int64_t validation_samples_;
};

}  // namespace penstock
