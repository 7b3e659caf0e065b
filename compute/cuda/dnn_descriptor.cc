#include "compute/cuda/dnn_descriptor.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock::cuda {

absl::Status ToStatus(cudnnStatus_t status, absl::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  std::array<char, 1024> words = {};
  cudnnGetLastErrorString(words.data(), words.size() - 1);
  const std::string message = absl::StrCat(what, ": ", cudnnGetErrorString(status),
                                           words[0] == '\0' ? "" : ": ", words.data());
  if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED) {
    return absl::UnimplementedError(message);
  }
  if (status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED ||
      status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::InternalError(message);
}

absl::StatusOr<Descriptor> EmptyDescriptor(cudnnBackendDescriptorType_t type,
                                           absl::string_view what) {
  cudnnBackendDescriptor_t made = nullptr;
  PENSTOCK_RETURN_IF_ERROR(ToStatus(cudnnBackendCreateDescriptor(type, &made), what));
  return Descriptor(made);
}

DescriptorWriter::DescriptorWriter(cudnnBackendDescriptorType_t type, absl::string_view what)
    : what_(what) {
  absl::StatusOr<Descriptor> made = EmptyDescriptor(type, what);
  status_ = made.status();
  if (made.ok()) descriptor_ = *std::move(made);
}

DescriptorWriter& DescriptorWriter::SetArray(cudnnBackendAttributeName_t name,
                                             cudnnBackendAttributeType_t type, int64_t count,
                                             const void* values) {
  if (status_.ok()) {
    status_ =
        ToStatus(cudnnBackendSetAttribute(descriptor_.get(), name, type, count, values), what_);
  }
  return *this;
}

absl::StatusOr<Descriptor> DescriptorWriter::Finish() {
  if (status_.ok()) status_ = ToStatus(cudnnBackendFinalize(descriptor_.get()), what_);
  if (!status_.ok()) return status_;
  return std::move(descriptor_);
}

}  // namespace penstock::cuda
