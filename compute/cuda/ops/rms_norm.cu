// RMSNorm: Zhang and Sennrich, arXiv 1910.07467. Parameter: gain [width], whose gradient comes from I.
#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/kernels/channels.cuh"
#include "compute/cuda/kernels/images.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace rms_norm {
namespace {

constexpr int kRowsPerBlock = kBlock / kWarp;  // a warp works on a row

// output = input / root of (mean square + epsilon) * gain, of each row. inverse_root [rows]: for the backward pass.
__global__ void ForwardKernel(int64_t rows, int64_t width, float epsilon, const float* input,
                              const float* gain, float* inverse_root, float* output) {
  const int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarp;
  if (row >= rows) return;
  const int lane = threadIdx.x % kWarp;
  const float* x = input + row * width;
  float squares = 0.0f;
  for (int64_t c = lane; c < width; c += kWarp) squares += x[c] * x[c];
  const float inverse = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(width) + epsilon);
  if (lane == 0) inverse_root[row] = inverse;
  for (int64_t c = lane; c < width; c += kWarp) output[row * width + c] = x[c] * inverse * gain[c];
}

// With n = input / root and g = grad_output * gain: grad_input = (g - n mean(g n)) / root.
__global__ void InputKernel(int64_t rows, int64_t width, const float* input, const float* gain,
                            const float* inverse_root, const float* grad_output,
                            float* grad_input) {
  const int64_t row = int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarp;
  if (row >= rows) return;
  const int lane = threadIdx.x % kWarp;
  const int64_t at = row * width;
  const float inverse = inverse_root[row];
  float dot = 0.0f;
  for (int64_t c = lane; c < width; c += kWarp) {
    dot += grad_output[at + c] * gain[c] * input[at + c] * inverse;
  }
  dot = WarpSum(dot) / static_cast<float>(width);
  for (int64_t c = lane; c < width; c += kWarp) {
    const float normal = input[at + c] * inverse;
    grad_input[at + c] = (grad_output[at + c] * gain[c] - normal * dot) * inverse;
  }
}

// gain_sums [width] = the sums over the rows of grad_output * n. workspace: ChannelSumsWorkspaceFloats.
void SumGains(cudaStream_t stream, int64_t rows, int64_t width, const float* input,
              const float* inverse_root, const float* grad_output, float* gain_sums,
              float* workspace) {
  SumChannels(
      stream, rows, width, workspace,
      [=] __device__(int64_t row, int64_t c) {
        return grad_output[row * width + c] * input[row * width + c] * inverse_root[row];
      },
      [=] __device__(int64_t c, double sum) { gain_sums[c] = static_cast<float>(sum); });
}

class CudaRmsNorm : public OpKernels {
 public:
  CudaRmsNorm(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        width_(spec.width()),
        rows_(spec.rows()),
        epsilon_(static_cast<float>(spec.attributes().number("epsilon"))) {
    BlockLayout stash, weight_stash;
    inverse_root_ = stash.Add<float>(rows_);
    gain_sums_ = weight_stash.Add<float>(width_);
    needs_ = {.stash_bytes = stash.size_bytes(),
              .weight_stash_bytes = weight_stash.size_bytes(),
              .inputs_for_input = kAllInputs};
  }

  absl::Status ReserveScratch() {
    return cuda_.layer_scratch().Reserve(ChannelSumsWorkspaceFloats(rows_, width_) *
                                         static_cast<int64_t>(sizeof(float)));
  }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    ForwardKernel<<<CeilDiv(rows_, kRowsPerBlock), kBlock, 0, cuda_.stream()>>>(
        rows_, width_, epsilon_, tape.input(), weights.parameter(0), inverse_root_.in(tape.stash),
        tape.result());
    return cuda_.Check("forward of an RMS norm");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    const float* inverse_root = inverse_root_.in(tape.stash);
    if (tape.grad_input() != nullptr) {
      InputKernel<<<CeilDiv(rows_, kRowsPerBlock), kBlock, 0, cuda_.stream()>>>(
          rows_, width_, tape.input(), weights.parameter(0), inverse_root, tape.gradient(),
          tape.grad_input());
    }
    SumGains(cuda_.stream(), rows_, width_, tape.input(), inverse_root, tape.gradient(),
             gain_sums_.in(tape.weight_stash), static_cast<float*>(cuda_.layer_scratch().data()));
    return cuda_.Check("backward of an RMS norm's input");
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    AddInto(cuda_.stream(), width_, gain_sums_.in(tape.weight_stash), gradients.parameter(0));
    return cuda_.Check("backward of an RMS norm's weight");
  }

 private:
  CudaContext& cuda_;
  const int64_t width_, rows_;
  const float epsilon_;
  TapeNeeds needs_;
  Place<float> inverse_root_;  // stash [rows]
  Place<float> gain_sums_;     // weight stash [width]
};

}  // namespace
}  // namespace rms_norm

MadeKernels MakeRmsNorm(CudaContext& context, const KernelSpec& spec) {
  auto norm = std::make_unique<rms_norm::CudaRmsNorm>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(norm->ReserveScratch());
  return norm;
}

}  // namespace penstock::cuda
