// Token and position embedding: output = dropout(wte[id] + wpe[time step]).
//
// Rows of one id are added in ascending order, which a sort by id finds: no atomic sums.
//
// Parameters: wte.weight [vocabulary, width], wpe.weight [context, width].
#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/error.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/ops.h"
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
        vocabulary_(spec.attributes().integer("vocabulary")),
        width_(spec.node.output.dims[1]),
        rows_(spec.input_elements()),
        time_(spec.inputs[0].dims[0]),
        dropout_(spec.attributes().number("dropout"), time_) {
    BlockLayout scratch;
    order_ = scratch.Add<int32_t>(2 * rows_);
    workspace_bytes_ = SortRowsWorkspaceBytes(rows_);
    workspace_ = scratch.Add<char>(workspace_bytes_);
    scratch_bytes_ = scratch.size_bytes();
  }

  int64_t scratch_bytes() const { return scratch_bytes_; }

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
    void* scratch = cuda_.layer_scratch().data();
    int32_t* order = order_.in(scratch);
    PENSTOCK_RETURN_IF_ERROR(
        ToStatus(SortRows(cuda_.stream(), rows_, vocabulary_, tape.input<int32_t>(), order,
                          workspace_.in(scratch), workspace_bytes_),
                 "sorting tokens"));
    EmbeddingBackward(cuda_.stream(), rows_, time_, width_, order, tape.gradient(),
                      cuda_.MaskOf(dropout_, context), gradients.parameter(kTokens),
                      gradients.parameter(kPositions));
    return cuda_.Check("backward of the embedding");
  }

 private:
  CudaContext& cuda_;
  const int64_t vocabulary_, width_, rows_, time_;
  const Dropout dropout_;
  Place<int32_t> order_;   // scratch
  Place<char> workspace_;  // scratch, of the sort
  int64_t workspace_bytes_ = 0;
  int64_t scratch_bytes_ = 0;
};

}  // namespace
}  // namespace gpt_embedding

MadeKernels MakeGptEmbedding(CudaContext& context, const KernelSpec& spec) {
  auto kernels = std::make_unique<gpt_embedding::CudaGptEmbedding>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(kernels->scratch_bytes()));
  return kernels;
}

}  // namespace penstock::cuda
