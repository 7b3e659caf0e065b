#include <algorithm>

#include "compute/cpu/ops.h"

namespace penstock::cpu {
namespace subsample {
namespace {

class CpuSubsample : public OpKernels {
 public:
  CpuSubsample(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        stride_(spec.attributes().integer("stride")),
        in_(spec.inputs[0].dims),
        out_(spec.node.output.dims),
        samples_(spec.samples) {}

  TapeNeeds tape_needs() const override { return {}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    ForRows([&](int64_t sample, int64_t row) {
      const float* from = tape.input() + (sample * in_[0] + row * stride_) * in_[1] * in_[2];
      float* to = tape.result() + (sample * out_[0] + row) * out_[1] * out_[2];
      for (int64_t column = 0; column < out_[1]; ++column) {
        float* pixel = to + column * out_[2];
        std::copy_n(from + column * stride_ * in_[2], in_[2], pixel);
        std::fill(pixel + in_[2], pixel + out_[2], 0.0f);
      }
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    // What is not kept has no gradient: each thread clears the rows down to the next that is kept.
    ForRows([&](int64_t sample, int64_t row) {
      const float* from = tape.gradient() + (sample * out_[0] + row) * out_[1] * out_[2];
      const int64_t first = row * stride_;
      const int64_t end = std::min(first + stride_, in_[0]);
      float* to = tape.grad_input() + (sample * in_[0] + first) * in_[1] * in_[2];
      std::fill(to, to + (end - first) * in_[1] * in_[2], 0.0f);
      for (int64_t column = 0; column < out_[1]; ++column) {
        std::copy_n(from + column * out_[2], in_[2], to + column * stride_ * in_[2]);
      }
    });
    return absl::OkStatus();
  }

 private:
  // body(sample, row of the output).
  template <typename Body>
  void ForRows(Body body) const {
    cpu_.threads.For(samples_ * out_[0],
                     [&](int64_t task, int) { body(task / out_[0], task % out_[0]); });
  }

  const CpuContext& cpu_;
  const int64_t stride_;
  const std::vector<int64_t> in_, out_;  // [height, width, channels]
  const int64_t samples_;
};

}  // namespace
}  // namespace subsample

MadeKernels MakeSubsample(CpuContext& context, const KernelSpec& spec) {
  return std::make_unique<subsample::CpuSubsample>(context, spec);
}

}  // namespace penstock::cpu
