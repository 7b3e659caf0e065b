// Token and position embedding: output = dropout(wte[id] + wpe[time step]).
//
// Parameters: wte.weight [vocabulary, width], wpe.weight [context, width].
#include "base/status.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/ops.h"
#include "compute/cuda/row_order.h"
#include "compute/dropout.h"

namespace penstock::cuda {
namespace gpt_embedding {
namespace {

constexpr int kTokens = 0;
constexpr int kPositions = 1;

class CudaGptEmbedding : public OpKernels {
 public:
  CudaGptEmbedding(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        width_(spec.node.output.dims[1]),
        rows_(spec.input_elements()),
        time_(spec.inputs[0].dims[0]),
        dropout_(spec.attributes().number("dropout"), time_),
        order_(rows_, spec.attributes().integer("vocabulary"), width_) {}

  int64_t scratch_bytes() const { return order_.scratch_bytes(); }

  TapeNeeds tape_needs() const override {
    return {.inputs_for_weight = kAllInputs, .grad_output_for_weight = true};
  }

  absl::Status Forward(const PassContext& context, const WeightView& weights,
                       const Tape& tape) override {
    EmbeddingForward(cuda_.stream(), rows_, time_, width_, tape.input<int32_t>(),
                     weights.parameter(kTokens), weights.parameter(kPositions),
                     cuda_.MaskOf(dropout_, context), tape.result());
    return cuda_.Check("forward of the embedding");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape&) override {
    return absl::OkStatus();  // token ids have no gradient
  }

  absl::Status BackwardWeight(const PassContext& context, const GradientView& gradients,
                              const Tape& tape) override {
    PENSTOCK_ASSIGN_OR_RETURN(const int32_t* const order,
                              order_.Sort(cuda_, tape.input<int32_t>()));
    EmbeddingBackward(cuda_.stream(), rows_, time_, width_, order, tape.gradient(),
                      cuda_.MaskOf(dropout_, context), gradients.parameter(kTokens),
                      gradients.parameter(kPositions), order_.sums(cuda_));
    return cuda_.Check("backward of the embedding");
  }

 private:
  CudaContext& cuda_;
  const int64_t width_, rows_, time_;
  const Dropout dropout_;
  const RowOrder order_;
};

}  // namespace
}  // namespace gpt_embedding

MadeKernels MakeGptEmbedding(CudaContext& context, const KernelSpec& spec) {
  auto kernels = std::make_unique<gpt_embedding::CudaGptEmbedding>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(kernels->scratch_bytes()));
  return kernels;
}

}  // namespace penstock::cuda
