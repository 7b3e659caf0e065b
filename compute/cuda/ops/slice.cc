// One part of each row of a value, columns of the last dimension or time steps of each sample, and the reverse: a value
// as a part of a larger one of zeros.
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

class CudaPart : public OpKernels {
 public:
  CudaPart(CudaContext& context, const Part& part) : cuda_(context), part_(part) {}

  TapeNeeds tape_needs() const override { return {}; }

 protected:
  absl::Status Take(const float* from, float* to) const {
    CopyColumns(cuda_.stream(), part_.rows, part_.taken, from, whole(), to,
                {.stride = part_.taken, .first = 0});
    return cuda_.Check("taking a part");
  }

  // The part in its place, among zeros.
  absl::Status Place(const float* from, float* to) const {
    PadColumns(cuda_.stream(), part_.rows, part_.taken, from, to, whole());
    return cuda_.Check("placing a part");
  }

 private:
  Columns whole() const { return {.stride = part_.width, .first = part_.from}; }

  CudaContext& cuda_;
  const Part part_;
};

class CudaSlice : public CudaPart {
 public:
  using CudaPart::CudaPart;

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    return Take(tape.input(), tape.result());
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    return Place(tape.gradient(), tape.grad_input());
  }
};

class CudaPad : public CudaPart {
 public:
  using CudaPart::CudaPart;

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    return Place(tape.input(), tape.result());
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    return Take(tape.gradient(), tape.grad_input());
  }
};

}  // namespace
}  // namespace slice

MadeKernels MakeSlice(CudaContext& context, const KernelSpec& spec) {
  const ValueType& input = spec.inputs[0];
  const bool is_first = spec.attributes().word("dimension") == "first";
  // What is taken together: a whole time step, or one element.
  const int64_t unit = is_first ? input.elements() / input.dims.front() : 1;
  const int64_t width = is_first ? input.elements() : spec.width();
  const int64_t from = spec.attributes().integer("from");
  const int64_t to = spec.attributes().integer("to");
  return std::make_unique<slice::CudaSlice>(
      context, slice::Part{spec.input_elements() / width, width, from * unit, (to - from) * unit});
}

MadeKernels MakePad(CudaContext& context, const KernelSpec& spec) {
  const ValueType& input = spec.inputs[0];
  const int64_t before =
      spec.attributes().integer("before") * (input.elements() / input.dims.front());
  return std::make_unique<slice::CudaPad>(
      context, slice::Part{spec.samples, spec.node.output.elements(), before, input.elements()});
}

MadeKernels MakeSelect(CudaContext& context, const KernelSpec& spec) {
  const int64_t time = spec.inputs[0].dims[0];
  const int64_t step = spec.node.output.elements();
  const int64_t index = spec.attributes().integer("index");
  return std::make_unique<slice::CudaSlice>(
      context, slice::Part{spec.samples, time * step, (index < 0 ? time - 1 : index) * step, step});
}

}  // namespace penstock::cuda
