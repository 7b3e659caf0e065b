// One part of each row of a value: columns of the last dimension, or a time step of each sample.
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

class CpuSlice : public OpKernels {
 public:
  CpuSlice(CpuContext& context, const Part& part) : cpu_(context), part_(part) {}

  TapeNeeds tape_needs() const override { return {}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    ForRows([&](int64_t row) {
      std::memcpy(tape.result() + row * part_.taken, tape.input() + row * part_.width + part_.from,
                  part_.taken * sizeof(float));
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    ForRows([&](int64_t row) {
      float* to = tape.grad_input() + row * part_.width;
      const int64_t end = part_.from + part_.taken;
      cpu_.kernels.fill(part_.from, 0.0f, to);
      std::memcpy(to + part_.from, tape.gradient() + row * part_.taken,
                  part_.taken * sizeof(float));
      cpu_.kernels.fill(part_.width - end, 0.0f, to + end);
    });
    return absl::OkStatus();
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

}  // namespace
}  // namespace slice

MadeKernels MakeSlice(CpuContext& context, const KernelSpec& spec) {
  const int64_t from = spec.attributes().integer("from");
  return std::make_unique<slice::CpuSlice>(
      context,
      slice::Part{spec.rows(), spec.width(), from, spec.attributes().integer("to") - from});
}

MadeKernels MakeSelect(CpuContext& context, const KernelSpec& spec) {
  const int64_t time = spec.inputs[0].dims[0];
  const int64_t step = spec.node.output.elements();
  const int64_t index = spec.attributes().integer("index");
  return std::make_unique<slice::CpuSlice>(
      context, slice::Part{spec.samples, time * step, (index < 0 ? time - 1 : index) * step, step});
}

}  // namespace penstock::cpu
