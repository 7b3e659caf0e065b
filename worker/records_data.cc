#include "worker/records_data.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

const char* SafetensorsName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kI32:
      return "I32";
    case DType::kU8:
      return "U8";
    case DType::kBf16:  // no input of a model is
      break;
  }
  return "";
}

std::string TensorText(const TensorType& tensor) {
  return absl::StrCat(tensor.name, " ", tensor.dtype, " [", absl::StrJoin(tensor.shape, ", "), "]");
}

// The number of the tensor for `port`.
absl::StatusOr<int> TensorFor(const RecordFiles& records, const Port& port) {
  const std::vector<TensorType>& tensors = records.index().tensors;
  const int number = records.FindTensor(port.name);
  if (number < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(records.directory(), " has no tensor ", port.name, ", ", port.type.ToString(),
                     ", for the model's input of that name; it has ",
                     absl::StrJoin(tensors, ", ", [](std::string* text, const TensorType& tensor) {
                       absl::StrAppend(text, TensorText(tensor));
                     })));
  }
  const TensorType& tensor = tensors[number];
  if (tensor.dtype == SafetensorsName(port.type.dtype) && tensor.shape == port.type.dims) {
    return number;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(records.directory(), " has the tensor ", TensorText(tensor),
                   ", but the model's input of that name is ", port.type.ToString(),
                   "; change the input, or write the records as that"));
}

// Of [height, width, channels] in a type that has a zero: what is augmented.
ImageShape ImageOf(const ValueType& type) {
  const bool is_image =
      type.dims.size() == 3 && (type.dtype == DType::kU8 || type.dtype == DType::kF32);
  if (!is_image) return {};
  return {.height = type.dims[0],
          .width = type.dims[1],
          .pixel_bytes = type.dims[2] * SizeOf(type.dtype)};
}

// Leaves at least one record.
int64_t PartOf(int64_t records, double fraction) {
  const auto part = static_cast<int64_t>(static_cast<double>(records) * fraction);
  return std::min(part, records - 1);
}

// Whether validation samples come after those of training, in their directory.
bool FollowsTraining(const RecordsOptions& options) {
  return options.evaluated.value_or(DataPart::kValidation) == DataPart::kValidation;
}

}  // namespace

RecordsData::RecordsData(std::unique_ptr<RecordFiles> training,
                         std::unique_ptr<RecordFiles> validation, const RecordsOptions& options)
    : training_(std::move(training)),
      validation_(std::move(validation)),
      options_(options),
      training_records_(training_->records() -
                        PartOf(training_->records(), options.validation_fraction)),
      validation_first_(!validation_ && FollowsTraining(options) ? training_records_ : 0),
      validation_records_((options.evaluated == DataPart::kTraining
                               ? training_records_
                               : this->validation().records()) -
                          validation_first_),
      validation_samples_(options.evaluated.has_value() ? validation_records_
                                                        : options.validation_samples) {}

absl::StatusOr<std::unique_ptr<RecordsData>> RecordsData::Open(
    std::unique_ptr<RecordFiles> training, std::unique_ptr<RecordFiles> validation,
    absl::Span<const Port> ports, const RecordsOptions& options) {
  auto data = std::unique_ptr<RecordsData>(
      new RecordsData(std::move(training), std::move(validation), options));
  PENSTOCK_RETURN_IF_ERROR(data->FindTensors(ports));
  PENSTOCK_RETURN_IF_ERROR(data->CheckValidation());
  return data;
}

absl::Status RecordsData::FindTensors(absl::Span<const Port> ports) {
  bool has_image = false;
  for (const Port& port : ports) {
    PortTensor tensor = {.sample_bytes = port.type.size_bytes()};
    PENSTOCK_ASSIGN_OR_RETURN(tensor.training, TensorFor(*training_, port));
    PENSTOCK_ASSIGN_OR_RETURN(tensor.validation, TensorFor(validation(), port));
    if (options_.augmentation.any()) tensor.image = ImageOf(port.type);
    has_image = has_image || tensor.image.pixel_bytes > 0;
    tensors_.push_back(tensor);
  }
  if (!options_.augmentation.any() || has_image) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "augment asks for changed images, but the model has no input [height, width, channels] of "
      "u8 or f32; leave augment out");
}

absl::Status RecordsData::CheckValidation() const {
  const int64_t asked = validation_samples_;
  if (asked <= validation_records_) return absl::OkStatus();
  const int64_t batches = validation_records_ / options_.batch;
  return absl::InvalidArgumentError(absl::StrCat(
      validation().directory(), " has ", validation_records_, " records for validation, but ",
      "validation.batches asks for ", asked, "; ",
      batches > 0 ? absl::StrCat("set validation.batches to at most ", batches)
                  : absl::StrCat("a batch alone has ", options_.batch, ", so give it more ",
                                 "records or make training.batch smaller")));
}

absl::Status RecordsData::Read(Split split, int64_t first_sample, int port,
                               absl::Span<std::byte> values) const {
  const PortTensor& tensor = tensors_[port];
  const auto samples = static_cast<int64_t>(values.size()) / tensor.sample_bytes;
  PENSTOCK_CHECK(samples * tensor.sample_bytes == static_cast<int64_t>(values.size()));
  SampleOrder order(options_.order, training_records_, options_.seed);
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t sample = first_sample + i;
    const absl::Span<std::byte> value =
        values.subspan(i * tensor.sample_bytes, tensor.sample_bytes);
    if (split == Split::kValidation) {
      PENSTOCK_RETURN_IF_ERROR(
          validation().Read(tensor.validation, ValidationRecord(sample), value));
      continue;
    }
    PENSTOCK_RETURN_IF_ERROR(training_->Read(tensor.training, order.RecordOf(sample), value));
    if (tensor.image.pixel_bytes == 0) continue;
    Transform(TransformationOf(options_.augmentation, options_.seed, sample), tensor.image, value);
  }
  return absl::OkStatus();
}

int64_t RecordsData::ValidationRecord(int64_t sample) const {
  PENSTOCK_CHECK(sample >= 0 && sample < validation_samples_);
  const auto place = static_cast<unsigned __int128>(sample) *
                     static_cast<uint64_t>(validation_records_) /
                     static_cast<uint64_t>(validation_samples_);
  return validation_first_ + static_cast<int64_t>(place);
}

}  // namespace penstock
