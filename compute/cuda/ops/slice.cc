// One part of each row of a value: columns of the last dimension, or a time step of each sample.
#include "base/status.h"
#include "compute/cuda/kernels/values.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace slice {
namespace {

// Of each of `rows` rows of `width`, the columns from `from` on, `taken` of them.
struct Part {
  int64_t rows, width, from, taken;
};

class CudaSlice : public OpKernels {
 public:
  CudaSlice(CudaContext& context, const Part& part) : cuda_(context), part_(part) {}

  TapeNeeds tape_needs() const override { return {}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    CopyColumns(cuda_.stream(), part_.rows, part_.taken, tape.input(), whole(), tape.result(),
                {.stride = part_.taken, .first = 0});
    return cuda_.Check("forward of a slice");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    PadColumns(cuda_.stream(), part_.rows, part_.taken, tape.gradient(), tape.grad_input(),
               whole());
    return cuda_.Check("backward of a slice");
  }

 private:
  Columns whole() const { return {.stride = part_.width, .first = part_.from}; }

  CudaContext& cuda_;
  const Part part_;
};

}  // namespace
}  // namespace slice

MadeKernels MakeSlice(CudaContext& context, const KernelSpec& spec) {
  const int64_t from = spec.attributes().integer("from");
  return std::make_unique<slice::CudaSlice>(
      context,
      slice::Part{spec.rows(), spec.width(), from, spec.attributes().integer("to") - from});
}

MadeKernels MakeSelect(CudaContext& context, const KernelSpec& spec) {
  const int64_t time = spec.inputs[0].dims[0];
  const int64_t step = spec.node.output.elements();
  const int64_t index = spec.attributes().integer("index");
  return std::make_unique<slice::CudaSlice>(
      context, slice::Part{spec.samples, time * step, (index < 0 ? time - 1 : index) * step, step});
}

}  // namespace penstock::cuda
