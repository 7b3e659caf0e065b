// A row of a table for each id.
//
// Parameter: weight [vocabulary, width].
#include "base/status.h"
#include "compute/cuda/kernels/values.h"
#include "compute/cuda/ops.h"
#include "compute/cuda/row_order.h"
#include "compute/dropout.h"

namespace penstock::cuda {
namespace embedding {
namespace {

class CudaEmbedding : public OpKernels {
 public:
  CudaEmbedding(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        width_(spec.node.output.dims.back()),
        rows_(spec.input_elements()),
        row_drop_(spec.attributes().number("row_drop"), VocabularyOf(spec)),
        order_(rows_, VocabularyOf(spec), width_) {}

  int64_t scratch_bytes() const { return order_.scratch_bytes(); }

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
    PENSTOCK_ASSIGN_OR_RETURN(const int32_t* const order,
                              order_.Sort(cuda_, tape.input<int32_t>()));
    LookUpBackward(cuda_.stream(), rows_, width_, order, tape.gradient(),
                   cuda_.MaskOf(row_drop_, context), gradients.parameter(0), order_.sums(cuda_));
    return cuda_.Check("backward of a table");
  }

 private:
  static int64_t VocabularyOf(const KernelSpec& spec) {
    return spec.attributes().integer("vocabulary");
  }

  CudaContext& cuda_;
  const int64_t width_, rows_;
  const Dropout row_drop_;  // of a matrix [vocabulary, 1]
  const RowOrder order_;
};

}  // namespace
}  // namespace embedding

MadeKernels MakeEmbedding(CudaContext& context, const KernelSpec& spec) {
  auto kernels = std::make_unique<embedding::CudaEmbedding>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(kernels->scratch_bytes()));
  return kernels;
}

}  // namespace penstock::cuda
