// RecordsData: records as samples. A model's port is filled with the tensor of the same name.
//
// Training samples are numbered over the whole job and come in the order that the job says (data/sample_order.h), images
// among them changed at random (data/augmentation.h). Validation samples are spread evenly over their records, in order;
// to evaluate a model, they are all the records of a part.
//
// Records are read from where they lie when they are asked for, and of them what the asked port needs.
//
// Thread safety: immutable once open.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "data/augmentation.h"
#include "data/record_files.h"
#include "data/sample_order.h"
#include "model/graph.h"
#include "worker/data_source.h"

namespace penstock {

struct RecordsOptions {
  OrderKind order = OrderKind::kShuffled;
  Augmentation augmentation;
  double validation_fraction = 0.0;  // of the training directory, its last records
  int64_t validation_samples = 0;  // in a validation, unless a part is evaluated; 0: there is none
  std::optional<DataPart> evaluated = std::nullopt;
  int64_t batch = 1;  // samples of a step, for messages
  uint64_t seed = 0;
  std::vector<AttachedFile> attached = {};
};

class RecordsData : public DataSource {
 public:
  // `validation`: null if the last part of `training` is for validation.
  // Errors: InvalidArgument (a port without a tensor of its name, type and shape; too few records; an augmentation for
  // a model without images).
  static absl::StatusOr<std::unique_ptr<RecordsData>> Open(std::unique_ptr<RecordFiles> training,
                                                           std::unique_ptr<RecordFiles> validation,
                                                           absl::Span<const Port> ports,
                                                           const RecordsOptions& options);

  absl::Status Read(Split split, int64_t first_sample, int port,
                    absl::Span<std::byte> values) const override;
  int64_t validation_samples() const override { return validation_samples_; }
  absl::Span<const AttachedFile> attached_files() const override { return options_.attached; }

  // Of those that a sample of training may be.
  int64_t training_records() const { return training_records_; }
  // The record of its directory that a sample is.
  int64_t ValidationRecord(int64_t sample) const;

 private:
  struct PortTensor {
    int training = -1;  // the tensor's number in each directory
    int validation = -1;
    int64_t sample_bytes = 0;
    ImageShape image;  // of ports that are augmented; else without pixels
  };

  RecordsData(std::unique_ptr<RecordFiles> training, std::unique_ptr<RecordFiles> validation,
              const RecordsOptions& options);
  absl::Status FindTensors(absl::Span<const Port> ports);
  absl::Status CheckValidation() const;
  const RecordFiles& validation() const {
    return validation_ && options_.evaluated != DataPart::kTraining ? *validation_ : *training_;
  }

  const std::unique_ptr<RecordFiles> training_;
  const std::unique_ptr<RecordFiles> validation_;
  const RecordsOptions options_;
  const int64_t training_records_;
  const int64_t validation_first_;  // in its directory
  const int64_t validation_records_;
  const int64_t validation_samples_;
  std::vector<PortTensor> tensors_;  // by port
};

}  // namespace penstock
