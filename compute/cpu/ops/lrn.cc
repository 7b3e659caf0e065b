// Local response normalisation. I computes the divisors again: that costs less than to keep them.
#include "base/status.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"

namespace penstock::cpu {
namespace lrn {
namespace {

class CpuLrn : public OpKernels {
 public:
  CpuLrn(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        width_(spec.width()),
        rows_(spec.rows()),
        size_(spec.attributes().integer("size")),
        alpha_(static_cast<float>(spec.attributes().number("alpha") / static_cast<double>(size_))),
        beta_(static_cast<float>(spec.attributes().number("beta"))),
        k_(static_cast<float>(spec.attributes().number("k"))) {}

  absl::Status ReserveScratch() {
    return cpu_.layer_scratch.Reserve(workspace() * cpu_.threads.count() *
                                      static_cast<int64_t>(sizeof(float)));
  }

  TapeNeeds tape_needs() const override { return {.inputs_for_input = kAllInputs}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    ForBlocks(tape, [&](const ResponseRows& rows, int64_t at, float* workspace) {
      cpu_.kernels.response_normal(rows, workspace, tape.result() + at);
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    ForBlocks(tape, [&](const ResponseRows& rows, int64_t at, float* workspace) {
      cpu_.kernels.response_gradient(rows, tape.gradient() + at, workspace, tape.grad_input() + at);
    });
    return absl::OkStatus();
  }

 private:
  int64_t workspace() const { return cpu_.kernels.response_workspace(width_, size_); }

  template <typename Body>
  void ForBlocks(const Tape& tape, Body body) const {
    cpu_.threads.For(BlocksOf(rows_), [&](int64_t block, int thread) {
      const int64_t first = block * kBlockRows;
      const ResponseRows rows = {std::min(kBlockRows, rows_ - first),
                                 width_,
                                 size_ / 2,
                                 (size_ - 1) / 2,
                                 alpha_,
                                 beta_,
                                 k_,
                                 tape.input() + first * width_};
      body(rows, first * width_,
           static_cast<float*>(cpu_.layer_scratch.data()) + thread * workspace());
    });
  }

  CpuContext& cpu_;
  const int64_t width_, rows_, size_;
  const float alpha_, beta_, k_;
};

}  // namespace
}  // namespace lrn

MadeKernels MakeLrn(CpuContext& context, const KernelSpec& spec) {
  auto op = std::make_unique<lrn::CpuLrn>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(op->ReserveScratch());
  return op;
}

}  // namespace penstock::cpu
