// ResidualBranch: what the attention and the MLP of a block have in common,
//
//     output = input + dropout(projection(middle(expansion(LayerNorm(input)))))
//
// where expansion and projection are linear maps with biases. The middle (causal attention, GELU) is all
// that differs. Rows go through F and I in chunks that stay in cache from one step to the next.
//
// Parameters in order: norm gain, norm bias, expansion weight and bias, projection weight and bias.
// Gradients of gains and biases are small; I computes them while their data is in cache and W adds
// them, so that W reads nothing but what its two matrix products need.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "compute/cpu/dropout.h"
#include "compute/cpu/linear.h"
#include "compute/cpu/norm.h"
#include "compute/op_kernels.h"

namespace penstock {

struct BranchShape {
  int64_t rows = 0;   // of the microbatch
  int64_t chunk = 0;  // rows that go through together
  int64_t width = 0;
  int64_t expanded = 0;        // outputs of the expansion
  int64_t projected = 0;       // inputs of the projection
  bool outputs_first = false;  // both weights are [outputs, inputs]
  bool fp8 = false;            // as of LinearShape, which it is part of

  LinearShape expansion_map() const { return Map(width, expanded); }
  LinearShape projection_map() const { return Map(projected, width); }

 private:
  LinearShape Map(int64_t inputs, int64_t outputs) const {
    return {.rows = rows,
            .chunk = chunk,
            .inputs = inputs,
            .outputs = outputs,
            .outputs_first = outputs_first,
            .in_chunks = true,
            .fp8 = fp8};
  }
};

// The part between the two linear maps. `Number` is what the matrix products read.
template <typename Number>
class Middle {
 public:
  virtual ~Middle() = default;

  // Bytes that a microbatch keeps from F to I, and that one pass over a chunk uses.
  virtual int64_t stash_bytes() const = 0;
  virtual int64_t scratch_bytes() const = 0;

  // Where the expansion of these rows [range.count, expanded] is to be written for Forward.
  virtual float* ExpansionTarget(RowRange range, void* stash, void* scratch) = 0;
  // `expansion`: what was written there, without the bias. Writes output [range.count, projected].
  virtual void Forward(RowRange range, float* expansion, const float* bias, Number* output,
                       void* stash, void* scratch) = 0;

  // Where the gradient of the output is to be written for Backward. `gradient`: where Backward will
  // write, in case it can work in place.
  virtual float* IncomingTarget(Number* gradient, void* scratch) = 0;
  // Writes `gradient` [range.count, expanded], of the expansion, and its column sums by block
  // [blocks, expanded].
  virtual void Backward(RowRange range, float* incoming, Number* gradient, float* block_sums,
                        void* stash, void* scratch) = 0;
};

template <typename Number>
class ResidualBranch : public OpKernels {
 public:
  // Errors: as MatrixProduct::Create.
  static absl::StatusOr<std::unique_ptr<OpKernels>> Create(CpuContext& context,
                                                           const BranchShape& shape,
                                                           const Dropout& dropout,
                                                           std::unique_ptr<Middle<Number>> middle);

  TapeNeeds tape_needs() const override { return needs_; }
  absl::Status Forward(const PassContext& context, const WeightView& weights,
                       const Tape& tape) override;
  absl::Status BackwardInput(const PassContext& context, const WeightView& weights,
                             const Tape& tape) override;
  absl::Status BackwardWeight(const PassContext& context, const GradientView& gradients,
                              const Tape& tape) override;

 private:
  ResidualBranch(CpuContext& context, const BranchShape& shape, const Dropout& dropout,
                 std::unique_ptr<Middle<Number>> middle);
  void PlaceTape();
  int64_t PlaceScratch();  // bytes

  // The gradient of the projection's output, as the products read it: where masks or bf16 need a copy,
  // the copy in the weight stash.
  const Number* ProjectedGradient(const Tape& tape) const;
  void StartGradient(const PassContext& context, const Tape& tape, RowRange range);

  CpuContext& cpu_;
  const BranchShape shape_;
  const Dropout dropout_;
  const bool copies_gradient_;
  const std::unique_ptr<Middle<Number>> middle_;
  Linear<Number> expansion_, projection_;

  TapeNeeds needs_;
  // stash
  NormStatistics statistics_;
  Place<char> middle_stash_;
  // kept
  Place<Number> normal_;  // [rows, width]
  Place<Number> hidden_;  // [rows, projected]
  // weight stash
  Place<Number> masked_gradient_;     // [rows, width], if copies_gradient_
  Place<Number> expansion_gradient_;  // [rows, expanded]
  Place<float> gain_sums_, bias_sums_, expansion_sums_, projection_sums_;
  // scratch
  Place<float> row_scratch_;    // [chunk, width]
  Place<float> block_scratch_;  // column sums by block
  Place<char> middle_scratch_;
  Place<char> expansion_memory_, projection_memory_;  // of Linear::Chunks
};

extern template class ResidualBranch<float>;
extern template class ResidualBranch<Bf16>;

}  // namespace penstock
