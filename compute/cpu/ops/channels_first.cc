// A transposition of each sample: [pixels, channels] -> [channels, pixels].
#include <algorithm>

#include "compute/cpu/ops.h"

namespace penstock::cpu {
namespace channels_first {
namespace {

// Both sides of a tile stay in cache while it is turned.
constexpr int64_t kTile = 16;

void Transpose(int64_t rows, int64_t columns, const float* from, float* to) {
  for (int64_t first_row = 0; first_row < rows; first_row += kTile) {
    const int64_t end_row = std::min(rows, first_row + kTile);
    for (int64_t column = 0; column < columns; ++column) {
      for (int64_t row = first_row; row < end_row; ++row) {
        to[column * rows + row] = from[row * columns + column];
      }
    }
  }
}

class CpuChannelsFirst : public OpKernels {
 public:
  CpuChannelsFirst(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        samples_(spec.samples),
        pixels_(spec.inputs[0].dims[0] * spec.inputs[0].dims[1]),
        channels_(spec.inputs[0].dims[2]) {}

  TapeNeeds tape_needs() const override { return {}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    ForSamples(
        [&](int64_t at) { Transpose(pixels_, channels_, tape.input() + at, tape.result() + at); });
    return absl::OkStatus();
  }
  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    ForSamples([&](int64_t at) {
      Transpose(channels_, pixels_, tape.gradient() + at, tape.grad_input() + at);
    });
    return absl::OkStatus();
  }

 private:
  // body(first element of a sample).
  template <typename Body>
  void ForSamples(Body body) const {
    cpu_.threads.For(samples_, [&](int64_t sample, int) { body(sample * pixels_ * channels_); });
  }

  const CpuContext& cpu_;
  const int64_t samples_, pixels_, channels_;
};

}  // namespace
}  // namespace channels_first

MadeKernels MakeChannelsFirst(CpuContext& context, const KernelSpec& spec) {
  return std::make_unique<channels_first::CpuChannelsFirst>(context, spec);
}

}  // namespace penstock::cpu
