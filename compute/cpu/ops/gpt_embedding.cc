// Token and position embedding: output = dropout(wte[id] + wpe[time step]).
//
// Parameters: wte.weight [vocabulary, width], wpe.weight [context, width].
#include "base/check.h"
#include "compute/cpu/dropout.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"

namespace penstock::cpu {
namespace gpt_embedding {
namespace {

constexpr int kTokens = 0;
constexpr int kPositions = 1;

class CpuGptEmbedding : public OpKernels {
 public:
  CpuGptEmbedding(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        width_(spec.node.output.dims[1]),
        rows_(spec.input_elements()),
        time_(spec.inputs[0].dims[0]),
        dropout_(spec.attributes().number("dropout"), time_) {}

  TapeNeeds tape_needs() const override {
    TapeNeeds needs;
    needs.inputs_for_weight = kAllInputs;
    needs.grad_output_for_weight = true;
    return needs;
  }

  absl::Status Forward(const PassContext& context, const WeightView& weights,
                       const Tape& tape) override {
    const auto* ids = tape.input<int32_t>();
    cpu_.threads.ForBlocks(rows_, kBlockRows, [&](int64_t first, int64_t count, int64_t) {
      for (int64_t row = first; row < first + count; ++row) {
        const auto dropout = RowsOf(dropout_, context, row);
        cpu_.kernels.add_row(width_, weights.parameter(kTokens) + ids[row] * width_,
                             weights.parameter(kPositions) + row % time_ * width_, OrNull(dropout),
                             tape.result() + row * width_);
      }
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape&) override {
    return absl::OkStatus();  // token ids have no gradient
  }

  // One thread: rows of one id must be added in order.
  absl::Status BackwardWeight(const PassContext& context, const GradientView& gradients,
                              const Tape& tape) override {
    const auto* ids = tape.input<int32_t>();
    const auto* grad_output = tape.gradient();
    for (int64_t row = 0; row < rows_; ++row) {
      const auto dropout = RowsOf(dropout_, context, row);
      cpu_.kernels.add_row_gradient(width_, grad_output + row * width_, OrNull(dropout),
                                    gradients.parameter(kTokens) + ids[row] * width_,
                                    gradients.parameter(kPositions) + row % time_ * width_);
    }
    return absl::OkStatus();
  }

 private:
  CpuContext& cpu_;
  const int64_t width_, rows_, time_;
  const Dropout dropout_;
};

}  // namespace
}  // namespace gpt_embedding

MadeKernels MakeGptEmbedding(CpuContext& context, const KernelSpec& spec) {
  return std::make_unique<gpt_embedding::CpuGptEmbedding>(context, spec);
}

}  // namespace penstock::cpu
