// ResidualBranch: what the attention and the MLP of a block have in common,
//
//     output = input + dropout(projection(middle(LayerNorm(input))))
//
// where projection is a linear map with a bias, and the middle is another linear map, the expansion, and
// what is particular to the layer (causal attention, GELU). The middle has the expansion's product and the
// gradient's product through the projection, because libraries fuse its own work into these.
//
// Parameters in order: norm gain, norm bias, expansion weight and bias, projection weight and bias.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compute/block_layout.h"
#include "compute/cuda/context.h"
#include "compute/cuda/linear.h"
#include "compute/dropout.h"
#include "compute/op_kernels.h"

namespace penstock::cuda {

namespace branch_parameter {
enum : int { kGain, kBias, kExpansion, kExpansionBias, kProjection, kProjectionBias };
}

struct BranchShape {
  int64_t rows = 0;  // of the microbatch
  int64_t width = 0;
  int64_t expanded = 0;        // outputs of the expansion
  int64_t projected = 0;       // inputs of the projection
  bool outputs_first = false;  // both weights are [outputs, inputs]
  bool fp8 = false;            // as of LinearShape

  LinearShape expansion() const { return Map(width, expanded); }
  LinearShape projection() const { return Map(projected, width); }

 private:
  LinearShape Map(int64_t inputs, int64_t outputs) const {
    return {.rows = rows,
            .inputs = inputs,
            .outputs = outputs,
            .outputs_first = outputs_first,
            .fp8 = fp8};
  }
};

template <typename Number>
class Middle {
 public:
  virtual ~Middle() = default;

  // Bytes that a microbatch keeps from F to I, and that one pass uses.
  virtual int64_t stash_bytes() const = 0;
  virtual int64_t scratch_bytes() const = 0;
  // As of OpKernels.
  virtual absl::string_view fallback() const { return {}; }

  // hidden [rows, projected] from normal [rows, width].
  virtual absl::Status Forward(const WeightView& weights, const Number* normal, Number* hidden,
                               void* stash, void* scratch) = 0;
  // gradient [rows, expanded], of the expansion's output, from that of the projection's output, `incoming`
  // [rows, width].
  virtual absl::Status Backward(const WeightView& weights, const Number* incoming,
                                const Number* hidden, Number* gradient, void* stash,
                                void* scratch) = 0;
};

template <typename Number>
class ResidualBranch : public OpKernels {
 public:
  static absl::StatusOr<std::unique_ptr<OpKernels>> Create(CudaContext& context,
                                                           const BranchShape& shape,
                                                           const Dropout& dropout,
                                                           std::unique_ptr<Middle<Number>> middle);

  TapeNeeds tape_needs() const override { return needs_; }
  absl::string_view fallback() const override { return middle_->fallback(); }
  absl::Status Forward(const PassContext& context, const WeightView& weights,
                       const Tape& tape) override;
  absl::Status BackwardInput(const PassContext& context, const WeightView& weights,
                             const Tape& tape) override;
  absl::Status BackwardWeight(const PassContext& context, const GradientView& gradients,
                              const Tape& tape) override;

 private:
  ResidualBranch(CudaContext& context, const BranchShape& shape, const Dropout& dropout,
                 std::unique_ptr<Middle<Number>> middle);
  absl::Status MakeProducts();
  // The projection, its bias and the residual in one product, where no mask comes between them.
  absl::Status MakeResidualProduct();
  bool ProjectsOntoResidual(const Tape& tape) const;
  // The gradient of the projection's output, as the products read it: where masks or bf16 need a copy,
  // the copy in the weight stash.
  const Number* ProjectedGradient(const Tape& tape) const;

  CudaContext& cuda_;
  const BranchShape shape_;
  const Dropout dropout_;
  const bool copies_gradient_;
  const std::unique_ptr<Middle<Number>> middle_;
  MatrixProduct projection_, expansion_backward_;
  std::optional<MatrixProduct> residual_projection_;  // none: projection_ and a kernel of our own
  WeightGradient<Number> projection_weight_, expansion_weight_;

  TapeNeeds needs_;
  // stash
  Place<float> mean_, inverse_deviation_;  // [rows]
  Place<char> middle_stash_;
  // kept
  Place<Number> normal_;  // [rows, width]
  Place<Number> hidden_;  // [rows, projected]
  // weight stash
  Place<Number> masked_gradient_;     // [rows, width], if copies_gradient_
  Place<Number> expansion_gradient_;  // [rows, expanded]
  Place<float> gain_sums_, bias_sums_;
  // scratch
  Place<float> row_scratch_;     // [rows, width]
  Place<float> sums_;            // of columns, before they are added
  Place<float> sums_workspace_;  // their partial sums
  Place<char> middle_scratch_;
};

extern template class ResidualBranch<float>;
extern template class ResidualBranch<Bf16>;

}  // namespace penstock::cuda
