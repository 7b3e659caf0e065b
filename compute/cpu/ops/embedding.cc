// A row of a table for each id. Parameter: weight [vocabulary, width].
#include <cstring>

#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"

namespace penstock::cpu {
namespace embedding {
namespace {

constexpr int64_t kBlockColumns = 256;

class CpuEmbedding : public OpKernels {
 public:
  CpuEmbedding(CpuContext& context, const KernelSpec& spec)
      : cpu_(context), width_(spec.node.output.dims.back()), rows_(spec.input_elements()) {}

  TapeNeeds tape_needs() const override {
    TapeNeeds needs;
    needs.inputs_for_weight = kAllInputs;
    needs.grad_output_for_weight = true;
    return needs;
  }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    const auto* ids = tape.input<int32_t>();
    cpu_.threads.ForBlocks(rows_, kBlockRows, [&](int64_t first, int64_t count, int64_t) {
      for (int64_t row = first; row < first + count; ++row) {
        std::memcpy(tape.result() + row * width_, weights.parameter(0) + ids[row] * width_,
                    width_ * sizeof(float));
      }
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape&) override {
    return absl::OkStatus();  // ids have no gradient
  }

  // Threads share columns, because rows of one id must be added in order.
  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    const auto* ids = tape.input<int32_t>();
    cpu_.threads.ForBlocks(width_, kBlockColumns, [&](int64_t first, int64_t count, int64_t) {
      for (int64_t row = 0; row < rows_; ++row) {
        cpu_.kernels.add_into(count, tape.gradient() + row * width_ + first,
                              gradients.parameter(0) + ids[row] * width_ + first);
      }
    });
    return absl::OkStatus();
  }

 private:
  CpuContext& cpu_;
  const int64_t width_, rows_;
};

}  // namespace
}  // namespace embedding

MadeKernels MakeEmbedding(CpuContext& context, const KernelSpec& spec) {
  return std::make_unique<embedding::CpuEmbedding>(context, spec);
}

}  // namespace penstock::cpu
