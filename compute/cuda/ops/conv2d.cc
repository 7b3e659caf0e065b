// Convolution of images. Parameters: weight [outputs, inputs / groups, height, width], bias [outputs] if there is one.
#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/affine_operands.h"
#include "compute/cuda/convolution.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/number.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace conv2d {
namespace {

constexpr int kWeight = 0;
constexpr int kBias = 1;

template <typename Number>
class CudaConv2d : public OpKernels {
 public:
  static MadeKernels Create(CudaContext& context, const KernelSpec& spec) {
    PENSTOCK_ASSIGN_OR_RETURN(const Window window, WindowOf(spec.attributes(), spec.inputs[0]));
    const ConvolutionShape shape = {.samples = spec.samples,
                                    .inputs = spec.width(),
                                    .outputs = spec.node.output.dims.back(),
                                    .groups = spec.attributes().integer("groups"),
                                    .window = window,
                                    .bf16 = !kIsFloat<Number>};
    PENSTOCK_ASSIGN_OR_RETURN(const Convolution* convolution, context.ConvolutionFor(shape));
    auto kernels =
        std::make_unique<CudaConv2d>(context, shape, *convolution, spec.attributes().flag("bias"));
    PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(kernels->scratch_.size_bytes()));
    return kernels;
  }

  CudaConv2d(CudaContext& context, const ConvolutionShape& shape, const Convolution& convolution,
             bool has_bias)
      : cuda_(context),
        shape_(shape),
        convolution_(convolution),
        has_bias_(has_bias),
        products_(scratch_.Add<char>(convolution.scratch_bytes())),
        operands_(context,
                  {shape.input_elements(), shape.samples * shape.window.outputs(), shape.outputs,
                   has_bias},
                  scratch_) {}

  TapeNeeds tape_needs() const override { return operands_.needs(); }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    operands_.TakeInput(tape);
    PENSTOCK_RETURN_IF_ERROR(convolution_.Forward(
        cuda_.dnn(), cuda_.stream(), operands_.Input(tape), ParameterOf<Number>(weights, kWeight),
        has_bias_ ? weights.parameter(kBias) : nullptr, tape.result(), Products()));
    return cuda_.Check("forward of a convolution");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    operands_.TakeGradient(tape);
    if (tape.grad_input() != nullptr) {
      PENSTOCK_RETURN_IF_ERROR(convolution_.BackwardInput(
          cuda_.dnn(), cuda_.stream(), operands_.Gradient(tape),
          ParameterOf<Number>(weights, kWeight), tape.grad_input(), Products()));
    }
    return cuda_.Check("backward of a convolution's input");
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    PENSTOCK_RETURN_IF_ERROR(convolution_.BackwardWeight(
        cuda_.dnn(), cuda_.stream(), operands_.Input(tape), operands_.Gradient(tape),
        gradients.parameter(kWeight), Products()));
    operands_.AddBiasGradient(gradients, kBias, tape);
    return cuda_.Check("backward of a convolution's weights");
  }

 private:
  void* Products() const { return products_.in(cuda_.layer_scratch().data()); }

  CudaContext& cuda_;
  const ConvolutionShape shape_;
  const Convolution& convolution_;
  const bool has_bias_;
  BlockLayout scratch_;
  const Place<char> products_;  // scratch
  const AffineOperands<Number> operands_;
};

}  // namespace
}  // namespace conv2d

MadeKernels MakeConv2d(CudaContext& context, const KernelSpec& spec) {
  return spec.bf16 ? conv2d::CudaConv2d<Bf16>::Create(context, spec)
                   : conv2d::CudaConv2d<float>::Create(context, spec);
}

}  // namespace penstock::cuda
