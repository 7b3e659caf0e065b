// Token and position embedding: output = dropout(wte[id] + wpe[time step]).
//
// Parameters: wte.weight [vocabulary, width], wpe.weight [context, width].
#include "base/check.h"
#include "compute/cpu/dropout.h"
#include "compute/cpu/layers.h"
#include "compute/cpu/row_blocks.h"

namespace penstock {
namespace {

constexpr int kTokens = 0;
constexpr int kPositions = 1;

class CpuEmbedding : public Layer {
 public:
  CpuEmbedding(CpuContext& context, const EmbeddingLayer& config, BatchShape shape)
      : cpu_(context),
        config_(config),
        rows_(shape.batch * shape.time),
        time_(shape.time),
        dropout_(config.dropout, shape.time) {}

  TapeNeeds tape_needs() const override {
    TapeNeeds needs;
    needs.input_for_weight = true;
    needs.grad_output_for_weight = true;
    return needs;
  }

  absl::Status Forward(const PassContext& context, const WeightView& weights, const Tape& tape,
                       const Tensor& output) override {
    const auto* ids = tape.input.data<int32_t>();
    cpu_.threads.ForBlocks(rows_, kBlockRows, [&](int64_t first, int64_t count, int64_t) {
      for (int64_t row = first; row < first + count; ++row) {
        const auto dropout = RowsOf(dropout_, context, row);
        cpu_.kernels.add_row(config_.width, weights.parameter(kTokens) + ids[row] * config_.width,
                             weights.parameter(kPositions) + row % time_ * config_.width,
                             OrNull(dropout), output.data<float>() + row * config_.width);
      }
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape&,
                             const Tensor&) override {
    return absl::OkStatus();  // token ids have no gradient
  }

  // One thread: rows of one id must be added in order.
  absl::Status BackwardWeight(const PassContext& context, const GradientView& gradients,
                              const Tape& tape) override {
    const auto* ids = tape.input.data<int32_t>();
    const auto* grad_output = tape.grad_output.data<float>();
    for (int64_t row = 0; row < rows_; ++row) {
      const auto dropout = RowsOf(dropout_, context, row);
      cpu_.kernels.add_row_gradient(config_.width, grad_output + row * config_.width,
                                    OrNull(dropout),
                                    gradients.parameter(kTokens) + ids[row] * config_.width,
                                    gradients.parameter(kPositions) + row % time_ * config_.width);
    }
    return absl::OkStatus();
  }

 private:
  CpuContext& cpu_;
  const EmbeddingLayer config_;
  const int64_t rows_, time_;
  const Dropout dropout_;
};

}  // namespace

std::unique_ptr<Layer> MakeCpuEmbedding(CpuContext& context, const EmbeddingLayer& config,
                                        BatchShape shape) {
  return std::make_unique<CpuEmbedding>(context, config, shape);
}

}  // namespace penstock
