#include "tests/compute/device_memory.h"

#include "base/check.h"

namespace penstock {

Buffer DeviceMemory::PoisonedBlock(int64_t size_bytes) {
  if (size_bytes == 0) {
    return Buffer();
  }
  Buffer block = backend_.pool().Acquire(size_bytes);
  const std::vector<uint8_t> poison(size_bytes, 0xFF);  // NaN as f32 and bf16, -1 as i32
  backend_.CopyToDevice(block.data(), poison.data(), size_bytes);
  return block;
}

Tensor DeviceMemory::Poisoned(DType dtype, const Shape& shape) {
  return {PoisonedBlock(shape.elements() * SizeOf(dtype)), dtype, shape};
}

Tensor DeviceMemory::ToDevice(const std::vector<float>& values, const Shape& shape) {
  PENSTOCK_CHECK(shape.elements() == static_cast<int64_t>(values.size()));
  Tensor tensor = Poisoned(DType::kF32, shape);
  backend_.CopyToDevice(tensor.buffer.data(), values.data(), tensor.size_bytes());
  return tensor;
}

Tensor DeviceMemory::ToDevice(const std::vector<int32_t>& values, const Shape& shape) {
  PENSTOCK_CHECK(shape.elements() == static_cast<int64_t>(values.size()));
  Tensor tensor = Poisoned(DType::kI32, shape);
  backend_.CopyToDevice(tensor.buffer.data(), values.data(), tensor.size_bytes());
  return tensor;
}

std::vector<float> DeviceMemory::ToHost(const float* device, int64_t count) {
  std::vector<float> values(count);
  backend_.CopyToHost(values.data(), device, count * SizeOf(DType::kF32));
  return values;
}

std::vector<float> DeviceMemory::ToHost(const Tensor& tensor) {
  return ToHost(tensor.data<float>(), tensor.shape.elements());
}

}  // namespace penstock
