// Batch normalisation. Buffers: running mean [width], running variance [width].
#include "absl/status/status.h"
#include "base/status.h"
#include "compute/cpu/channel_norm.h"
#include "compute/cpu/ops.h"

namespace penstock::cpu {
namespace batch_norm {
namespace {

class CpuBatchNorm : public ChannelNorm {
 public:
  CpuBatchNorm(CpuContext& context, const KernelSpec& spec)
      : ChannelNorm(context, {.rows = spec.rows(),
                              .width = spec.width(),
                              .epsilon = spec.attributes().number("epsilon")}),
        momentum_(spec.attributes().number("momentum")) {}

  absl::Status Forward(const PassContext& context, const WeightView& weights,
                       const Tape& tape) override {
    if (!context.training) {
      UseStatistics(tape.buffers[0], tape.buffers[1], tape);
      Normalise(weights, tape);
      return absl::OkStatus();
    }
    if (shape().rows < 2) {
      return absl::InvalidArgumentError(
          "a microbatch has a single value of each channel, whose variance is nothing to learn "
          "from; "
          "use larger microbatches or images");
    }
    PENSTOCK_RETURN_IF_ERROR(ChannelNorm::Forward(context, weights, tape));
    if (context.updates_buffers) UpdateBuffers(tape);
    return absl::OkStatus();
  }

 private:
  // As PyTorch: the running variance follows the unbiased one.
  void UpdateBuffers(const Tape& tape) const {
    const auto rows = static_cast<double>(shape().rows);
    const auto follow = [&](float* running, const double* values, double factor) {
      for (int64_t c = 0; c < shape().width; ++c) {
        running[c] =
            static_cast<float>((1.0 - momentum_) * running[c] + momentum_ * factor * values[c]);
      }
    };
    follow(tape.buffers[0], ScratchMeans(), 1.0);
    follow(tape.buffers[1], ScratchVariances(), rows / (rows - 1.0));
  }

  const double momentum_;
};

}  // namespace
}  // namespace batch_norm

MadeKernels MakeBatchNorm(CpuContext& context, const KernelSpec& spec) {
  auto op = std::make_unique<batch_norm::CpuBatchNorm>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(op->ReserveScratch());
  return op;
}

}  // namespace penstock::cpu
