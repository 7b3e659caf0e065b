// The CUDA back-end: the parts of this folder put together.
#include <cudnn.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "compute/backend.h"
#include "compute/cuda/context.h"
#include "compute/cuda/copies.h"
#include "compute/cuda/error.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/layers.h"
#include "compute/cuda/plugin.h"
#include "compute/cuda/slices.h"

namespace penstock::cuda {
namespace {

class CudaBackend : public Backend {
 public:
  explicit CudaBackend(std::unique_ptr<CudaContext> context)
      : context_(std::move(context)), copies_(*context_), name_(Describe(*context_)) {}

  absl::string_view name() const override { return name_; }
  BufferPool& pool() override { return context_->pool(); }
  BufferPool& host_pool() override { return context_->host_pool(); }

  absl::StatusOr<std::unique_ptr<Layer>> MakeLayer(const LayerSpec& spec, BatchShape shape,
                                                   Precision precision) override {
    return std::visit(Maker{*context_, shape, precision == Precision::kBf16}, spec.config);
  }
  absl::StatusOr<std::unique_ptr<Optimizer>> MakeOptimizer(
      const OptimizerConfig& config, absl::Span<const ParameterSlice> slices) override {
    return cuda::MakeOptimizer(*context_, config, slices);
  }
  absl::StatusOr<std::unique_ptr<SliceNorms>> MakeSliceNorms(
      absl::Span<const ParameterSlice> slices) override {
    return cuda::MakeSliceNorms(*context_, slices);
  }

  absl::StatusOr<Outgoing> StartToHost(const Tensor& tensor) override {
    return copies_.StartToHost(tensor);
  }
  absl::StatusOr<Tensor> FinishToHost(Outgoing outgoing) override {
    return copies_.FinishToHost(std::move(outgoing));
  }
  absl::StatusOr<Tensor> ToDevice(const Tensor& host) override { return copies_.ToDevice(host); }

  // From memory that is not page-locked: the driver copies it before the call returns.
  void CopyToDevice(void* device, const void* host, int64_t size_bytes) override {
    Note(cudaMemcpyAsync(device, host, size_bytes, cudaMemcpyHostToDevice, context_->stream()),
         "copying to the device");
  }
  void CopyToHost(void* host, const void* device, int64_t size_bytes) override {
    Note(cudaMemcpyAsync(host, device, size_bytes, cudaMemcpyDeviceToHost, context_->stream()),
         "copying to the host");
    context_->Note(context_->WaitForStream("a copy to the host"));
  }
  void ConvertToBf16(uint16_t* to, const float* from, int64_t count) override {
    cuda::ConvertToBf16(context_->stream(), count, from, to);
  }
  void Fill(float* device, float value, int64_t count) override {
    cuda::Fill(context_->stream(), count, value, device);
  }
  void AddInto(float* a, const float* b, int64_t count) override {
    cuda::AddInto(context_->stream(), count, b, a);
  }

  absl::Status Synchronize() override {
    context_->Note(context_->WaitForStream("what was queued"));
    return context_->Check("waiting for the GPU");
  }

 private:
  struct Maker {
    CudaContext& cuda;
    BatchShape shape;
    bool bf16;

    using Result = absl::StatusOr<std::unique_ptr<Layer>>;
    Result operator()(const EmbeddingLayer& c) const { return MakeEmbedding(cuda, c, shape); }
    Result operator()(const AttentionLayer& c) const { return MakeAttention(cuda, c, shape, bf16); }
    Result operator()(const MlpLayer& c) const { return MakeMlp(cuda, c, shape, bf16); }
    Result operator()(const NormLayer& c) const { return MakeNorm(cuda, c, shape); }
    Result operator()(const HeadLayer& c) const { return MakeHead(cuda, c, shape, bf16); }
  };

  static std::string Describe(const CudaContext& context) {
    const cudaDeviceProp& properties = context.properties();
    const auto cudnn = static_cast<int>(cudnnGetVersion());
    return absl::StrFormat("cuda:%d (%s, sm_%d%d, cuBLASLt %d, cuDNN %d.%d.%d)", context.device(),
                           properties.name, properties.major, properties.minor,
                           static_cast<int>(cublasLtGetVersion()), cudnn / 10000, cudnn / 100 % 100,
                           cudnn % 100);
  }

  void Note(cudaError_t error, absl::string_view what) { context_->Note(ToStatus(error, what)); }

  const std::unique_ptr<CudaContext> context_;
  Copies copies_;
  const std::string name_;
};

}  // namespace
}  // namespace penstock::cuda

extern "C" __attribute__((visibility("default"))) const char PenstockCudaVersion[];
const char PenstockCudaVersion[] = PENSTOCK_VERSION " " __VERSION__;

extern "C" __attribute__((visibility("default")))
penstock::cuda::MakeBackendFunction PenstockMakeCudaBackend;

absl::StatusOr<std::unique_ptr<penstock::Backend>> PenstockMakeCudaBackend(int device) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<penstock::cuda::CudaContext> context,
                            penstock::cuda::CudaContext::Create(device));
  return std::make_unique<penstock::cuda::CudaBackend>(std::move(context));
}
