#include "compute/cpu/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/host_memory.h"
#include "compute/cpu/context.h"
#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/kernels/best.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/optimizers.h"
#include "compute/cpu/shared_memory.h"

namespace penstock {
namespace {

constexpr int kThreadsMax = 1024;

struct Maker {
  const Op* op;
  cpu::MadeKernels (*make)(CpuContext&, const KernelSpec&);
};
constexpr Maker kMakers[] = {
#define PENSTOCK_CPU_MAKER(Name) {&ops::k##Name, cpu::Make##Name},
    PENSTOCK_OPS(PENSTOCK_CPU_MAKER) PENSTOCK_EVALUATION_OPS(PENSTOCK_CPU_MAKER)
#undef PENSTOCK_CPU_MAKER
};

class CpuBackend : public Backend {
 public:
  CpuBackend(int threads, const Kernels& kernels)
      : cpu_(threads, kernels),
        pool_(HostMemory()),
        share_(MakeSharedMemory(pool_)),
        name_(Describe(cpu_)) {}

  absl::string_view name() const override { return name_; }
  std::string arithmetic() const override { return name_; }
  int64_t memory_bytes(int /*processes*/) const override { return HostMemoryBytes(); }
  BufferPool& pool() override { return pool_; }
  BufferPool& host_pool() override { return pool_; }

  absl::Status CheckPrecision(Precision precision) const override {
    if (precision != Precision::kFp8) return absl::OkStatus();
    return absl::UnimplementedError(kFp8Devices);
  }
  absl::StatusOr<std::unique_ptr<OpKernels>> MakeKernels(KernelSpec spec,
                                                         Precision precision) override {
    spec.bf16 = HasMirror(precision) && cpu_.has_bf16_products;
    spec.fp8 = precision == Precision::kFp8;
    if (spec.fp8 && !spec.bf16) {
      return absl::UnimplementedError(absl::StrCat(
          name_, " computes fp8 by products of bf16, which it lacks; use a CPU that has them"));
    }
    for (const Maker& maker : kMakers) {
      if (*maker.op == *spec.node.op) return maker.make(cpu_, spec);
    }
    return absl::UnimplementedError(
        absl::StrCat("the CPU has no kernels for ", spec.node.op->name));
  }

  ScratchBytes TakeScratchNeeds() override {
    return {.of_pass = cpu_.layer_scratch.TakeNeeds(),
            .of_library = cpu_.product_scratch.TakeNeeds()};
  }
  int64_t scratch_bytes() const override {
    return cpu_.layer_scratch.size_bytes() + cpu_.product_scratch.size_bytes();
  }
  absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
      const OptimizerConfig& config, absl::Span<const ParameterSlice> slices) override {
    return MakeCpuOptimizer(cpu_, config, slices);
  }
  absl::StatusOr<std::unique_ptr<SliceNorms>> MakeSliceNorms(
      absl::Span<const ParameterSlice> slices) override {
    return MakeCpuSliceNorms(cpu_, slices);
  }

  // The host is the device.
  absl::StatusOr<Outgoing> StartToHost(const Tensor& tensor) override {
    return Outgoing{.host = tensor};
  }
  absl::StatusOr<bool> Poll(int64_t /*ticket*/) override { return true; }
  absl::StatusOr<Tensor> FinishToHost(Outgoing outgoing) override {
    return std::move(outgoing.host);
  }
  absl::StatusOr<Tensor> ToDevice(const Tensor& host) override { return host; }
  absl::StatusOr<Incoming> StartToDevice(const Tensor& host) override {
    return Incoming{.device = host};
  }
  absl::StatusOr<Tensor> FinishToDevice(Incoming incoming) override {
    return std::move(incoming.device);
  }

  DeviceShare* share() override { return share_.get(); }
  DeviceGroups* groups() override { return nullptr; }

  void CopyToDevice(void* device, const void* host, int64_t size_bytes) override {
    std::memcpy(device, host, size_bytes);
  }
  void CopyToHost(void* host, const void* device, int64_t size_bytes) override {
    std::memcpy(host, device, size_bytes);
  }
  void CopyOnDevice(void* to, const void* from, int64_t size_bytes) override {
    std::memcpy(to, from, size_bytes);
  }

  void ConvertToBf16(uint16_t* to, const float* from, int64_t count) override {
    ForFlat(cpu_, count, [&](int64_t first, int64_t size) {
      cpu_.kernels.to_bf16(size, from + first, to + first);
    });
  }
  void ConvertFromBf16(float* to, const uint16_t* from, int64_t count) override {
    ForFlat(cpu_, count, [&](int64_t first, int64_t size) {
      cpu_.kernels.widen_bf16(size, from + first, to + first);
    });
  }
  void RoundToBf16(float* values, int64_t count) override {
    ForFlat(cpu_, count, [&](int64_t first, int64_t size) {
      cpu_.kernels.round_to_nearest(size, values + first);
    });
  }
  void ConvertToBf16(uint16_t* to, const float* from, int64_t count,
                     const StochasticRounding& rounding) override {
    RoundParameter(cpu_, rounding, count, from, to);
  }
  void Fill(float* device, float value, int64_t count) override {
    ForFlat(cpu_, count,
            [&](int64_t first, int64_t size) { cpu_.kernels.fill(size, value, device + first); });
  }
  void AddInto(float* a, const float* b, int64_t count) override {
    ForFlat(cpu_, count, [&](int64_t first, int64_t size) {
      cpu_.kernels.add_into(size, b + first, a + first);
    });
  }
  void Scale(float* a, float factor, int64_t count) override {
    ForFlat(cpu_, count, [&](int64_t first, int64_t size) {
      for (int64_t i = first; i < first + size; ++i) a[i] *= factor;
    });
  }
  void LinearCombination(float* to, float a, const float* x, float b, const float* y,
                         int64_t count) override {
    ForFlat(cpu_, count, [&](int64_t first, int64_t size) {
      cpu_.kernels.linear_combination(size, a, x + first, b, y + first, to + first);
    });
  }
  void CompensateDelay(float* gradients, float strength, const float* now, const float* read,
                       int64_t count) override {
    ForFlat(cpu_, count, [&](int64_t first, int64_t size) {
      cpu_.kernels.compensate_delay(size, strength, now + first, read + first, gradients + first);
    });
  }
  void CompensateDelay(float* gradients, float* mean_squares,
                       const MeanSquareCompensation& compensation, const float* now,
                       const float* read, int64_t count) override {
    ForFlat(cpu_, count, [&](int64_t first, int64_t size) {
      cpu_.kernels.compensate_by_mean_square(size, compensation, now + first, read + first,
                                             mean_squares + first, gradients + first);
    });
  }

  absl::Status Synchronize() override { return absl::OkStatus(); }  // kernels return when done
  absl::StatusOr<std::unique_ptr<DeviceMarks>> MakeMarks(int /*count*/) override { return nullptr; }

 private:
  static std::string Describe(const CpuContext& cpu) {
    const dnnl_version_t* version = dnnl::version();
    const char* const products = cpu.has_bf16_tiles      ? " with bf16 tiles"
                                 : cpu.has_bf16_products ? " with bf16"
                                                         : "";
    return absl::StrFormat("cpu (oneDNN %d.%d.%d, %s%s, %d thread%s)", version->major,
                           version->minor, version->patch, cpu.kernels.instruction_set, products,
                           cpu.threads.count(), cpu.threads.count() == 1 ? "" : "s");
  }

  CpuContext cpu_;
  BufferPool pool_;
  const std::unique_ptr<DeviceShare> share_;
  std::string name_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(int threads) {
  return MakeCpuBackend(threads, *SupportedKernels().front());
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCpuBackend(int threads, const Kernels& kernels) {
  if (threads < 1 || threads > kThreadsMax) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%d threads for the CPU; expected 1 to %d", threads, kThreadsMax));
  }
  try {
    return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(threads, kernels));
  } catch (const dnnl::error& error) {
    return absl::InternalError(absl::StrFormat("oneDNN does not start: %s", error.message));
  }
}

}  // namespace penstock
