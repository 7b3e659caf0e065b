// TwoPools: the CPU back-end as if host and device had memory of their own, for what must be right where
// they do. Copies begin late and leave wild numbers where nothing may be read yet.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "compute/backend.h"

namespace penstock {

class TwoPools : public Backend {
 public:
  TwoPools() : cpu_(*MakeCpuBackend(1)) {}

  absl::string_view name() const override { return "a device of its own"; }
  std::string arithmetic() const override { return cpu_->arithmetic(); }
  int64_t memory_bytes(int processes) const override { return cpu_->memory_bytes(processes); }
  BufferPool& pool() override { return cpu_->pool(); }
  BufferPool& host_pool() override { return host_pool_; }

  absl::Status CheckPrecision(Precision precision) const override {
    return cpu_->CheckPrecision(precision);
  }
  absl::StatusOr<std::unique_ptr<OpKernels>> MakeKernels(KernelSpec spec,
                                                         Precision precision) override {
    return cpu_->MakeKernels(std::move(spec), precision);
  }
  ScratchBytes TakeScratchNeeds() override { return cpu_->TakeScratchNeeds(); }
  int64_t scratch_bytes() const override { return cpu_->scratch_bytes(); }
  absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
      const OptimizerConfig& config, absl::Span<const ParameterSlice> slices) override {
    return cpu_->MakeOptimizer(config, slices);
  }
  absl::StatusOr<std::unique_ptr<SliceNorms>> MakeSliceNorms(
      absl::Span<const ParameterSlice> slices) override {
    return cpu_->MakeSliceNorms(slices);
  }

  // The copy is made when it is waited for, so that a source that changed meanwhile shows.
  absl::StatusOr<Outgoing> StartToHost(const Tensor& tensor) override;
  absl::StatusOr<Tensor> FinishToHost(Outgoing outgoing) override;
  absl::StatusOr<Tensor> ToDevice(const Tensor& host) override;
  absl::StatusOr<bool> Poll(int64_t /*ticket*/) override { return true; }
  DeviceShare* share() override { return nullptr; }
  DeviceGroups* groups() override { return nullptr; }
  absl::StatusOr<Incoming> StartToDevice(const Tensor& host) override;
  absl::StatusOr<Tensor> FinishToDevice(Incoming incoming) override;

  void CopyToDevice(void* device, const void* host, int64_t size_bytes) override {
    cpu_->CopyToDevice(device, host, size_bytes);
  }
  void CopyToHost(void* host, const void* device, int64_t size_bytes) override {
    cpu_->CopyToHost(host, device, size_bytes);
  }
  void CopyOnDevice(void* to, const void* from, int64_t size_bytes) override {
    cpu_->CopyOnDevice(to, from, size_bytes);
  }
  void ConvertToBf16(uint16_t* to, const float* from, int64_t count) override {
    cpu_->ConvertToBf16(to, from, count);
  }
  void ConvertFromBf16(float* to, const uint16_t* from, int64_t count) override {
    cpu_->ConvertFromBf16(to, from, count);
  }
  void RoundToBf16(float* values, int64_t count) override { cpu_->RoundToBf16(values, count); }
  void ConvertToBf16(uint16_t* to, const float* from, int64_t count,
                     const StochasticRounding& rounding) override {
    cpu_->ConvertToBf16(to, from, count, rounding);
  }
  void Fill(float* device, float value, int64_t count) override {
    cpu_->Fill(device, value, count);
  }
  void AddInto(float* a, const float* b, int64_t count) override { cpu_->AddInto(a, b, count); }
  void Scale(float* a, float factor, int64_t count) override { cpu_->Scale(a, factor, count); }
  void LinearCombination(float* to, float a, const float* x, float b, const float* y,
                         int64_t count) override {
    cpu_->LinearCombination(to, a, x, b, y, count);
  }
  void CompensateDelay(float* gradients, float strength, const float* now, const float* read,
                       int64_t count) override {
    cpu_->CompensateDelay(gradients, strength, now, read, count);
  }
  void CompensateDelay(float* gradients, float* mean_squares,
                       const MeanSquareCompensation& compensation, const float* now,
                       const float* read, int64_t count) override {
    cpu_->CompensateDelay(gradients, mean_squares, compensation, now, read, count);
  }
  absl::Status Synchronize() override { return cpu_->Synchronize(); }
  absl::StatusOr<std::unique_ptr<DeviceMarks>> MakeMarks(int count) override {
    return cpu_->MakeMarks(count);
  }

  int copies_to_host = 0;
  int copies_to_device = 0;

 private:
  std::unique_ptr<Backend> cpu_;
  BufferPool host_pool_{HostMemory()};
};

}  // namespace penstock
