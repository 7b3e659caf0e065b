// DeviceMemory: memory of a back-end, as tests fill and read it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compute/backend.h"

namespace penstock {

// A back-end to test.
struct BackendCase {
  std::string name;
  // Unavailable: the tests are skipped.
  std::function<absl::StatusOr<std::unique_ptr<Backend>>()> make;
};

class DeviceMemory {
 public:
  // REQUIRES: `backend` outlives it.
  explicit DeviceMemory(Backend& backend) : backend_(backend) {}

  // `count` elements, filled with what no test expects (NaN, or wild ids).
  Tensor Poisoned(DType dtype, const Shape& shape);
  Buffer PoisonedBlock(int64_t size_bytes);
  Tensor ToDevice(const std::vector<float>& values, const Shape& shape);
  Tensor ToDevice(const std::vector<int32_t>& values, const Shape& shape);
  std::vector<float> ToHost(const Tensor& tensor);
  std::vector<float> ToHost(const float* device, int64_t count);

 private:
  Backend& backend_;
};

}  // namespace penstock
