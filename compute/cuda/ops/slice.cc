// One part of each row of a value, columns of the last dimension or time steps of each sample, and the reverse: a value
// as a part of a larger one of zeros.
#include "compute/ops/slice.h"

#include "base/status.h"
#include "compute/cuda/kernels/values.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace slice {
namespace {

using penstock::slice::Part;

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
  return std::make_unique<slice::CudaSlice>(context, penstock::slice::PartOfSlice(spec));
}
MadeKernels MakePad(CudaContext& context, const KernelSpec& spec) {
  return std::make_unique<slice::CudaPad>(context, penstock::slice::PartOfPad(spec));
}
MadeKernels MakeSelect(CudaContext& context, const KernelSpec& spec) {
  return std::make_unique<slice::CudaSlice>(context, penstock::slice::PartOfSelect(spec));
}

}  // namespace penstock::cuda
