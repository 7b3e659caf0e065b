// Images as numbers around 0, from bytes or floats.
#include <vector>

#include "base/status.h"
#include "compute/cuda/error.h"
#include "compute/cuda/kernels/images.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace image {
namespace {

class CudaImage : public OpKernels {
 public:
  // `table`: of NormalizeImages.
  CudaImage(CudaContext& context, const KernelSpec& spec, Buffer table)
      : cuda_(context),
        has_bytes_(spec.inputs[0].dtype == DType::kU8),
        count_(spec.output_elements()),
        channels_(spec.width()),
        table_(std::move(table)) {}

  TapeNeeds tape_needs() const override { return {}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    if (has_bytes_) {
      NormalizeImages(cuda_.stream(), count_, channels_, tape.input<uint8_t>(), table(),
                      tape.result());
    } else {
      NormalizeImages(cuda_.stream(), count_, channels_, tape.input(), table(), tape.result());
    }
    return cuda_.Check("forward of images");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    NormalizeImagesBackward(cuda_.stream(), count_, channels_, tape.gradient(), table(),
                            tape.grad_input());
    return cuda_.Check("backward of images");
  }

 private:
  const double* table() const { return static_cast<const double*>(table_.data()); }

  CudaContext& cuda_;
  const bool has_bytes_;
  const int64_t count_, channels_;
  const Buffer table_;
};

// By channel: factors, then offsets.
std::vector<double> TableOf(const KernelSpec& spec) {
  const std::vector<double>& means = spec.attributes().numbers("mean");
  const std::vector<double>& deviations = spec.attributes().numbers("deviation");
  const auto channels = static_cast<size_t>(spec.width());
  std::vector<double> table(2 * channels);
  for (size_t c = 0; c < channels; ++c) {
    const double deviation = deviations[deviations.size() == 1 ? 0 : c];
    table[c] = spec.attributes().number("scale") / deviation;
    table[channels + c] = means[means.size() == 1 ? 0 : c] / deviation;
  }
  return table;
}

}  // namespace
}  // namespace image

MadeKernels MakeImage(CudaContext& context, const KernelSpec& spec) {
  const std::vector<double> table = image::TableOf(spec);
  const size_t size_bytes = table.size() * sizeof(double);
  Buffer buffer = context.pool().Acquire(static_cast<int64_t>(size_bytes));
  if (!buffer) return absl::ResourceExhaustedError("no memory for the means of images");
  // From memory that is not page-locked: the driver copies it before the call returns.
  PENSTOCK_RETURN_IF_ERROR(ToStatus(cudaMemcpyAsync(buffer.data(), table.data(), size_bytes,
                                                    cudaMemcpyHostToDevice, context.stream()),
                                    "copying the means of images"));
  return std::make_unique<image::CudaImage>(context, spec, std::move(buffer));
}

}  // namespace penstock::cuda
