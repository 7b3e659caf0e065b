// Descriptors: the objects of the C interface of cuDNN's graph API, which are made, given their
// attributes one by one, and then finished.
//
// Thread safety: none for one object.
#pragma once

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace penstock::cuda {

// Unimplemented for what cuDNN has not (another shape, another GPU), ResourceExhausted when memory
// is out, else Internal, with `what` was tried and cuDNN's own words about the last error of this
// thread. OK for success.
absl::Status ToStatus(cudnnStatus_t status, absl::string_view what);

struct DestroyDescriptor {
  void operator()(cudnnBackendDescriptor_t descriptor) const {
    (void)cudnnBackendDestroyDescriptor(descriptor);
  }
};
using Descriptor = std::unique_ptr<void, DestroyDescriptor>;

// One that cuDNN fills. `what`: as for ToStatus.
absl::StatusOr<Descriptor> EmptyDescriptor(cudnnBackendDescriptorType_t type,
                                           absl::string_view what);

// Maps a C++ type to cuDNN's name for it. Types without a name here do not compile.
template <typename T>
inline constexpr std::nullptr_t kAttributeType = nullptr;
template <>
inline constexpr auto kAttributeType<cudnnHandle_t> = CUDNN_TYPE_HANDLE;
template <>
inline constexpr auto kAttributeType<cudnnBackendDescriptor_t> = CUDNN_TYPE_BACKEND_DESCRIPTOR;
template <>
inline constexpr auto kAttributeType<bool> = CUDNN_TYPE_BOOLEAN;
template <>
inline constexpr auto kAttributeType<int64_t> = CUDNN_TYPE_INT64;
template <>
inline constexpr auto kAttributeType<float> = CUDNN_TYPE_FLOAT;
template <>
inline constexpr auto kAttributeType<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;
template <>
inline constexpr auto kAttributeType<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <>
inline constexpr auto kAttributeType<cudnnPointwiseMode_t> = CUDNN_TYPE_POINTWISE_MODE;
template <>
inline constexpr auto kAttributeType<cudnnReduceTensorOp_t> = CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
template <>
inline constexpr auto kAttributeType<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <>
inline constexpr auto kAttributeType<cudnnBackendNumericalNote_t> = CUDNN_TYPE_NUMERICAL_NOTE;

// A descriptor while its attributes are set. Finish returns the first error; later attributes are
// ignored.
class DescriptorWriter {
 public:
  // `what`: as for ToStatus; outlives the writer.
  DescriptorWriter(cudnnBackendDescriptorType_t type, absl::string_view what);

  template <typename T>
  DescriptorWriter& Set(cudnnBackendAttributeName_t name, const T& value) {
    return SetArray(name, kAttributeType<T>, 1, &value);
  }
  template <typename Array>
  DescriptorWriter& SetAll(cudnnBackendAttributeName_t name, const Array& values) {
    return SetArray(name, kAttributeType<typename Array::value_type>,
                    static_cast<int64_t>(values.size()), values.data());
  }
  DescriptorWriter& SetArray(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                             int64_t count, const void* values);

  // Leaves the writer empty.
  absl::StatusOr<Descriptor> Finish();

 private:
  const absl::string_view what_;
  absl::Status status_;
  Descriptor descriptor_;
};

// Reads up to `limit` values of an attribute and returns how many there are.
template <typename T>
absl::StatusOr<int64_t> GetAttribute(cudnnBackendDescriptor_t descriptor,
                                     cudnnBackendAttributeName_t name, int64_t limit, T* values,
                                     absl::string_view what) {
  int64_t count = 0;
  absl::Status status = ToStatus(
      cudnnBackendGetAttribute(descriptor, name, kAttributeType<T>, limit, &count, values), what);
  if (!status.ok()) return status;
  return count;
}

}  // namespace penstock::cuda
