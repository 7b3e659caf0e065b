// One part of each row of a value, columns of the last dimension or time steps of each sample, and the reverse: a value
// as a part of a larger one of zeros.
#include "compute/ops/slice.h"

#include <cstring>

#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"

namespace penstock::cpu {
namespace slice {
namespace {

using penstock::slice::Part;

class CpuPart : public OpKernels {
 public:
  CpuPart(CpuContext& context, const Part& part) : cpu_(context), part_(part) {}

  TapeNeeds tape_needs() const override { return {}; }

 protected:
  void Take(const float* whole, float* part) const {
    ForRows([&](int64_t row) {
      std::memcpy(part + row * part_.taken, whole + row * part_.width + part_.from,
                  part_.taken * sizeof(float));
    });
  }

  // The part in its place, among zeros.
  void Place(const float* part, float* whole) const {
    ForRows([&](int64_t row) {
      float* to = whole + row * part_.width;
      const int64_t end = part_.from + part_.taken;
      cpu_.kernels.fill(part_.from, 0.0f, to);
      std::memcpy(to + part_.from, part + row * part_.taken, part_.taken * sizeof(float));
      cpu_.kernels.fill(part_.width - end, 0.0f, to + end);
    });
  }

 private:
  template <typename Body>
  void ForRows(Body body) const {
    cpu_.threads.ForBlocks(part_.rows, kBlockRows, [&](int64_t first, int64_t count, int64_t) {
      for (int64_t row = first; row < first + count; ++row) body(row);
    });
  }

  CpuContext& cpu_;
  const Part part_;
};

class CpuSlice : public CpuPart {
 public:
  using CpuPart::CpuPart;

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    Take(tape.input(), tape.result());
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    Place(tape.gradient(), tape.grad_input());
    return absl::OkStatus();
  }
};

class CpuPad : public CpuPart {
 public:
  using CpuPart::CpuPart;

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    Place(tape.input(), tape.result());
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    Take(tape.gradient(), tape.grad_input());
    return absl::OkStatus();
  }
};

}  // namespace
}  // namespace slice

MadeKernels MakeSlice(CpuContext& context, const KernelSpec& spec) {
  return std::make_unique<slice::CpuSlice>(context, penstock::slice::PartOfSlice(spec));
}
MadeKernels MakePad(CpuContext& context, const KernelSpec& spec) {
  return std::make_unique<slice::CpuPad>(context, penstock::slice::PartOfPad(spec));
}
MadeKernels MakeSelect(CpuContext& context, const KernelSpec& spec) {
  return std::make_unique<slice::CpuSlice>(context, penstock::slice::PartOfSelect(spec));
}

}  // namespace penstock::cpu
