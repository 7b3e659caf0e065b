// One part of each row of a value, columns of the last dimension or time steps of each sample, and the reverse: a value
// as a part of a larger one of zeros.
#include <cstring>

#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"

namespace penstock::cpu {
namespace slice {
namespace {

// Of each of `rows` rows of `width`, the columns from `from` on, `taken` of them.
struct Part {
  int64_t rows, width, from, taken;
};

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
  const ValueType& input = spec.inputs[0];
  const bool is_first = spec.attributes().word("dimension") == "first";
  // What is taken together: a whole time step, or one element.
  const int64_t unit = is_first ? input.elements() / input.dims.front() : 1;
  const int64_t width = is_first ? input.elements() : spec.width();
  const int64_t from = spec.attributes().integer("from");
  const int64_t to = spec.attributes().integer("to");
  return std::make_unique<slice::CpuSlice>(
      context, slice::Part{spec.input_elements() / width, width, from * unit, (to - from) * unit});
}

MadeKernels MakePad(CpuContext& context, const KernelSpec& spec) {
  const ValueType& input = spec.inputs[0];
  const int64_t before =
      spec.attributes().integer("before") * (input.elements() / input.dims.front());
  return std::make_unique<slice::CpuPad>(
      context, slice::Part{spec.samples, spec.node.output.elements(), before, input.elements()});
}

MadeKernels MakeSelect(CpuContext& context, const KernelSpec& spec) {
  const int64_t time = spec.inputs[0].dims[0];
  const int64_t step = spec.node.output.elements();
  const int64_t index = spec.attributes().integer("index");
  return std::make_unique<slice::CpuSlice>(
      context, slice::Part{spec.samples, time * step, (index < 0 ? time - 1 : index) * step, step});
}

}  // namespace penstock::cpu
