// A row of a table for each id. Parameter: weight [vocabulary, width].
#include <cstring>

#include "compute/cpu/dropout.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"

namespace penstock::cpu {
namespace embedding {
namespace {

constexpr int64_t kBlockColumns = 256;

class CpuEmbedding : public OpKernels {
 public:
  CpuEmbedding(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        width_(spec.node.output.dims.back()),
        rows_(spec.input_elements()),
        row_drop_(spec.attributes().number("row_drop"), spec.attributes().integer("vocabulary")) {}

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
        float* const to = tape.result() + row * width_;
        std::memcpy(to, weights.parameter(0) + ids[row] * width_, width_ * sizeof(float));
        if (const float factor = FactorOf(context, ids[row]); factor != 1.0f) {
          cpu_.kernels.linear_combination(width_, factor, to, 0.0f, to, to);
        }
      }
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape&) override {
    return absl::OkStatus();  // ids have no gradient
  }

  // Threads share columns, because rows of one id must be added in order.
  absl::Status BackwardWeight(const PassContext& context, const GradientView& gradients,
                              const Tape& tape) override {
    const auto* ids = tape.input<int32_t>();
    cpu_.threads.ForBlocks(width_, kBlockColumns, [&](int64_t first, int64_t count, int64_t) {
      for (int64_t row = 0; row < rows_; ++row) {
        const float* const from = tape.gradient() + row * width_ + first;
        float* const to = gradients.parameter(0) + ids[row] * width_ + first;
        if (const float factor = FactorOf(context, ids[row]); factor != 1.0f) {
          cpu_.kernels.linear_combination(count, factor, from, 1.0f, to, to);
        } else {
          cpu_.kernels.add_into(count, from, to);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  // Of a row of the table in the whole microbatch: its mask is that of the first sample.
  float FactorOf(const PassContext& context, int32_t id) const {
    const auto row = RowsOf(row_drop_, context, id);
    float factor = 1.0f;
    if (row) cpu_.kernels.mask_rows(1, 1, &factor, OrNull(row), &factor);
    return factor;
  }

  CpuContext& cpu_;
  const int64_t width_, rows_;
  const Dropout row_drop_;  // of a matrix [vocabulary, 1]
};

}  // namespace
}  // namespace embedding

MadeKernels MakeEmbedding(CpuContext& context, const KernelSpec& spec) {
  return std::make_unique<embedding::CpuEmbedding>(context, spec);
}

}  // namespace penstock::cpu
