// The mean of each window.
#include <algorithm>
#include <utility>

#include "base/status.h"
#include "compute/cpu/ops.h"
#include "model/window.h"

namespace penstock::cpu {
namespace avg_pool {
namespace {

// What an output sees along one axis, and what it divides by, which counts padding.
struct Stretch {
  int64_t first, end, size;
};

std::vector<Stretch> StretchesOf(const Window::Axis& axis) {
  std::vector<Stretch> stretches;
  for (int64_t i = 0; i < axis.outputs; ++i) {
    const int64_t first = i * axis.stride - axis.before;
    stretches.push_back(
        {std::max<int64_t>(first, 0), std::min(first + axis.kernel, axis.inputs), axis.kernel});
  }
  return stretches;
}

// From the largest whole input at or before i / outputs of the way to the smallest at or behind (i + 1) / outputs.
std::vector<Stretch> AdaptiveStretches(int64_t inputs, int64_t outputs) {
  std::vector<Stretch> stretches;
  for (int64_t i = 0; i < outputs; ++i) {
    const int64_t first = i * inputs / outputs;
    const int64_t end = ((i + 1) * inputs + outputs - 1) / outputs;
    stretches.push_back({first, end, end - first});
  }
  return stretches;
}

class CpuAvgPool : public OpKernels {
 public:
  CpuAvgPool(CpuContext& context, const KernelSpec& spec, std::vector<Stretch> rows,
             std::vector<Stretch> columns)
      : cpu_(context),
        samples_(spec.samples),
        height_(spec.inputs[0].dims[0]),
        width_(spec.inputs[0].dims[1]),
        channels_(spec.width()),
        rows_(std::move(rows)),
        columns_(std::move(columns)) {}

  TapeNeeds tape_needs() const override { return {}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    const auto rows = static_cast<int64_t>(rows_.size());
    cpu_.threads.For(samples_ * rows, [&](int64_t row, int) {
      const int64_t elements = static_cast<int64_t>(columns_.size()) * channels_;
      cpu_.kernels.fill(elements, 0.0f, tape.result() + row * elements);
      ForWindows(row / rows, row % rows, [&](int64_t output, int64_t input, float share) {
        cpu_.kernels.linear_combination(channels_, share, tape.input() + input, 1.0f,
                                        tape.result() + output, tape.result() + output);
      });
    });
    return absl::OkStatus();
  }

  // Windows of one sample may overlap, so that one thread takes it.
  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    const int64_t image = height_ * width_ * channels_;
    cpu_.threads.For(samples_, [&](int64_t sample, int) {
      cpu_.kernels.fill(image, 0.0f, tape.grad_input() + sample * image);
      for (int64_t row = 0; row < static_cast<int64_t>(rows_.size()); ++row) {
        ForWindows(sample, row, [&](int64_t output, int64_t input, float share) {
          cpu_.kernels.linear_combination(channels_, share, tape.gradient() + output, 1.0f,
                                          tape.grad_input() + input, tape.grad_input() + input);
        });
      }
    });
    return absl::OkStatus();
  }

 private:
  // visit(output, input, share) for each output of a row and each input that it sees; places are of the first channel.
  template <typename Visit>
  void ForWindows(int64_t sample, int64_t row, Visit visit) const {
    const auto columns = static_cast<int64_t>(columns_.size());
    const Stretch& down = rows_[row];
    for (int64_t column = 0; column < columns; ++column) {
      const Stretch& across = columns_[column];
      const float share = 1.0f / static_cast<float>(down.size * across.size);
      const int64_t output =
          ((sample * static_cast<int64_t>(rows_.size()) + row) * columns + column) * channels_;
      for (int64_t y = down.first; y < down.end; ++y) {
        for (int64_t x = across.first; x < across.end; ++x) {
          visit(output, ((sample * height_ + y) * width_ + x) * channels_, share);
        }
      }
    }
  }

  CpuContext& cpu_;
  const int64_t samples_, height_, width_, channels_;
  const std::vector<Stretch> rows_, columns_;
};

}  // namespace
}  // namespace avg_pool

MadeKernels MakeAvgPool(CpuContext& context, const KernelSpec& spec) {
  PENSTOCK_ASSIGN_OR_RETURN(const AveragedWindows windows, AveragedWindowsOf(spec.attributes()));
  if (windows == AveragedWindows::kOfKernel) {
    PENSTOCK_ASSIGN_OR_RETURN(const Window window, WindowOf(spec.attributes(), spec.inputs[0]));
    return std::make_unique<avg_pool::CpuAvgPool>(
        context, spec, avg_pool::StretchesOf(window.height), avg_pool::StretchesOf(window.width));
  }
  const std::vector<int64_t>& inputs = spec.inputs[0].dims;
  const std::vector<int64_t>& outputs = spec.node.output.dims;
  return std::make_unique<avg_pool::CpuAvgPool>(context, spec,
                                                avg_pool::AdaptiveStretches(inputs[0], outputs[0]),
                                                avg_pool::AdaptiveStretches(inputs[1], outputs[1]));
}

}  // namespace penstock::cpu
