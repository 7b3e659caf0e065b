// Images as numbers around 0.
#include "compute/cpu/ops.h"

namespace penstock::cpu {
namespace image {
namespace {

class CpuImage : public OpKernels {
 public:
  CpuImage(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        has_bytes_(spec.inputs[0].dtype == DType::kU8),
        channels_(spec.width()),
        rows_(spec.samples * spec.inputs[0].dims[0]),
        row_elements_(spec.inputs[0].dims[1] * channels_) {
    const std::vector<double>& means = spec.attributes().numbers("mean");
    const std::vector<double>& deviations = spec.attributes().numbers("deviation");
    for (int64_t c = 0; c < channels_; ++c) {
      const double deviation = deviations[deviations.size() == 1 ? 0 : c];
      factors_.push_back(spec.attributes().number("scale") / deviation);
      offsets_.push_back(means[means.size() == 1 ? 0 : c] / deviation);
    }
    if (!has_bytes_ || channels_ > kTableChannelsMax) return;
    for (int value = 0; value < kByteValues; ++value) {
      for (int64_t c = 0; c < channels_; ++c) of_bytes_.push_back(Normal(value, c));
    }
  }

  TapeNeeds tape_needs() const override { return {}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    cpu_.threads.For(rows_, [&](int64_t row, int) {
      const int64_t first = row * row_elements_;
      float* to = tape.result() + first;
      for (int64_t i = 0; i < row_elements_; i += channels_) {
        for (int64_t c = 0; c < channels_; ++c) {
          to[i + c] = has_bytes_ ? OfByte(tape.input<uint8_t>()[first + i + c], c)
                                 : Normal(tape.input()[first + i + c], c);
        }
      }
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    cpu_.threads.For(rows_, [&](int64_t row, int) {
      const int64_t first = row * row_elements_;
      for (int64_t i = first; i < first + row_elements_; i += channels_) {
        for (int64_t c = 0; c < channels_; ++c) {
          tape.grad_input()[i + c] = static_cast<float>(tape.gradient()[i + c] * factors_[c]);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  static constexpr int kByteValues = 256;
  // A table is then 1 MiB. It is the host's memory, which no prediction counts, so it must not grow with the model.
  static constexpr int64_t kTableChannelsMax = 1024;

  float Normal(double value, int64_t channel) const {
    return static_cast<float>(value * factors_[channel] - offsets_[channel]);
  }

  // From the table or not, the same bits.
  float OfByte(uint8_t value, int64_t channel) const {
    return of_bytes_.empty() ? Normal(value, channel) : of_bytes_[value * channels_ + channel];
  }

  CpuContext& cpu_;
  const bool has_bytes_;
  const int64_t channels_, rows_, row_elements_;
  std::vector<double> factors_, offsets_;  // by channel
  std::vector<float> of_bytes_;            // [byte, channel]; empty: too many channels, or no bytes
};

}  // namespace
}  // namespace image

MadeKernels MakeImage(CpuContext& context, const KernelSpec& spec) {
  return std::make_unique<image::CpuImage>(context, spec);
}

}  // namespace penstock::cpu
