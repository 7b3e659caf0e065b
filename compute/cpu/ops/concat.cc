// Values side by side along the last dimension.
#include <cstring>

#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"

namespace penstock::cpu {
namespace concat {
namespace {

class CpuConcat : public OpKernels {
 public:
  CpuConcat(CpuContext& context, const KernelSpec& spec)
      : cpu_(context), rows_(spec.rows()), width_(spec.node.output.dims.back()) {
    for (size_t i = 0; i < spec.inputs.size(); ++i) {
      widths_.push_back(spec.width(static_cast<int>(i)));
    }
  }

  TapeNeeds tape_needs() const override { return {}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    ForParts([&](int input, int64_t part, int64_t whole, size_t size_bytes) {
      std::memcpy(tape.result() + whole, tape.input(input) + part, size_bytes);
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    ForParts([&](int input, int64_t part, int64_t whole, size_t size_bytes) {
      if (tape.grad_input(input) == nullptr) return;
      std::memcpy(tape.grad_input(input) + part, tape.gradient() + whole, size_bytes);
    });
    return absl::OkStatus();
  }

 private:
  // body(input, first element there, first element of the output, bytes) for each row of each input.
  template <typename Body>
  void ForParts(Body body) const {
    cpu_.threads.ForBlocks(rows_, kBlockRows, [&](int64_t first, int64_t count, int64_t) {
      for (int64_t row = first; row < first + count; ++row) {
        int64_t whole = row * width_;
        for (size_t i = 0; i < widths_.size(); ++i) {
          body(static_cast<int>(i), row * widths_[i], whole, widths_[i] * sizeof(float));
          whole += widths_[i];
        }
      }
    });
  }

  CpuContext& cpu_;
  const int64_t rows_, width_;
  std::vector<int64_t> widths_;  // by input
};

}  // namespace
}  // namespace concat

MadeKernels MakeConcat(CpuContext& context, const KernelSpec& spec) {
  return std::make_unique<concat::CpuConcat>(context, spec);
}

}  // namespace penstock::cpu
