// A row of a table for each id. Rows of one id are added in ascending order, which a sort by id finds.
//
// Parameter: weight [vocabulary, width].
#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/error.h"
#include "compute/cuda/kernels/values.h"
#include "compute/cuda/ops.h"
#include "compute/dropout.h"

namespace penstock::cuda {
namespace embedding {
namespace {

class CudaEmbedding : public OpKernels {
 public:
  CudaEmbedding(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        vocabulary_(spec.attributes().integer("vocabulary")),
        width_(spec.node.output.dims.back()),
        rows_(spec.input_elements()),
        row_drop_(spec.attributes().number("row_drop"), vocabulary_) {
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
    LookUp(cuda_.stream(), rows_, width_, tape.input<int32_t>(), weights.parameter(0),
           cuda_.MaskOf(row_drop_, context), tape.result());
    return cuda_.Check("forward of a table");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape&) override {
    return absl::OkStatus();  // ids have no gradient
  }

  absl::Status BackwardWeight(const PassContext& context, const GradientView& gradients,
                              const Tape& tape) override {
    void* scratch = cuda_.layer_scratch().data();
    int32_t* order = order_.in(scratch);
    PENSTOCK_RETURN_IF_ERROR(
        ToStatus(SortRows(cuda_.stream(), rows_, vocabulary_, tape.input<int32_t>(), order,
                          workspace_.in(scratch), workspace_bytes_),
                 "sorting ids"));
    LookUpBackward(cuda_.stream(), rows_, width_, order, tape.gradient(),
                   cuda_.MaskOf(row_drop_, context), gradients.parameter(0));
    return cuda_.Check("backward of a table");
  }

 private:
  CudaContext& cuda_;
  const int64_t vocabulary_, width_, rows_;
  const Dropout row_drop_;  // of a matrix [vocabulary, 1]
  Place<int32_t> order_;    // scratch
  Place<char> workspace_;   // scratch, of the sort
  int64_t workspace_bytes_ = 0;
  int64_t scratch_bytes_ = 0;
};

}  // namespace
}  // namespace embedding

MadeKernels MakeEmbedding(CudaContext& context, const KernelSpec& spec) {
  auto kernels = std::make_unique<embedding::CudaEmbedding>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(kernels->scratch_bytes()));
  return kernels;
}

}  // namespace penstock::cuda
