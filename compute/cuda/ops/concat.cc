// Values side by side along the last dimension.
#include <vector>

#include "base/status.h"
#include "compute/cuda/kernels/values.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace concat {
namespace {

class CudaConcat : public OpKernels {
 public:
  CudaConcat(CudaContext& context, const KernelSpec& spec)
      : cuda_(context), rows_(spec.rows()), width_(spec.node.output.dims.back()) {
    for (size_t i = 0; i < spec.inputs.size(); ++i) {
      widths_.push_back(spec.width(static_cast<int>(i)));
    }
  }

  TapeNeeds tape_needs() const override { return {}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    ForParts([&](int input, const Columns& part, const Columns& whole) {
      CopyColumns(cuda_.stream(), rows_, part.stride, tape.input(input), part, tape.result(),
                  whole);
    });
    return cuda_.Check("forward of a concatenation");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    ForParts([&](int input, const Columns& part, const Columns& whole) {
      if (tape.grad_input(input) == nullptr) return;
      CopyColumns(cuda_.stream(), rows_, part.stride, tape.gradient(), whole,
                  tape.grad_input(input), part);
    });
    return cuda_.Check("backward of a concatenation");
  }

 private:
  // body(input, its columns, those of the output that they are).
  template <typename Body>
  void ForParts(Body body) const {
    int64_t first = 0;
    for (size_t i = 0; i < widths_.size(); ++i) {
      body(static_cast<int>(i), Columns{.stride = widths_[i], .first = 0},
           Columns{.stride = width_, .first = first});
      first += widths_[i];
    }
  }

  CudaContext& cuda_;
  const int64_t rows_, width_;
  std::vector<int64_t> widths_;  // by input
};

}  // namespace
}  // namespace concat

MadeKernels MakeConcat(CudaContext& context, const KernelSpec& spec) {
  return std::make_unique<concat::CudaConcat>(context, spec);
}

}  // namespace penstock::cuda
