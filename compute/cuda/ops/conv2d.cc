// Convolution of images. With bf16, F keeps its input and I the gradient of its output as W will read them.
//
// Parameters: weight [outputs, inputs / groups, height, width], bias [outputs] if there is one. I sums the bias's
// gradient.
#include "base/status.h"
#include "compute/block_layout.h"
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
    PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(kernels->scratch_bytes_));
    return kernels;
  }

  CudaConv2d(CudaContext& context, const ConvolutionShape& shape, const Convolution& convolution,
             bool has_bias)
      : cuda_(context), shape_(shape), convolution_(convolution), has_bias_(has_bias) {
    constexpr bool kFloat = kIsFloat<Number>;
    BlockLayout kept, weight_stash, scratch;
    input_ = kept.Add<Number>(kFloat ? 0 : shape.input_elements());
    gradient_ = weight_stash.Add<Number>(kFloat ? 0 : shape.output_elements());
    bias_sums_ = weight_stash.Add<float>(has_bias ? shape.outputs : 0);
    products_ = scratch.Add<char>(convolution.scratch_bytes());
    sums_workspace_ =
        scratch.Add<float>(has_bias ? ColumnSumsWorkspaceFloats(rows(), shape.outputs) : 0);
    scratch_bytes_ = scratch.size_bytes();
    needs_ = {.kept_bytes = kept.size_bytes(),
              .weight_stash_bytes = weight_stash.size_bytes(),
              .inputs_for_weight = kFloat ? kAllInputs : kNoInputs,
              .grad_output_for_weight = kFloat};
  }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    if constexpr (!kIsFloat<Number>) {
      ConvertToBf16(cuda_.stream(), shape_.input_elements(), tape.input(), input_.in(tape.kept));
    }
    PENSTOCK_RETURN_IF_ERROR(convolution_.Forward(
        cuda_.dnn(), cuda_.stream(), Input(tape), ParameterOf<Number>(weights, kWeight),
        has_bias_ ? weights.parameter(kBias) : nullptr, tape.result(), Products()));
    return cuda_.Check("forward of a convolution");
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    if constexpr (!kIsFloat<Number>) {
      ConvertToBf16(cuda_.stream(), shape_.output_elements(), tape.gradient(),
                    gradient_.in(tape.weight_stash));
    }
    if (has_bias_) {
      ColumnSums(cuda_.stream(), rows(), shape_.outputs, tape.gradient(),
                 bias_sums_.in(tape.weight_stash),
                 sums_workspace_.in(cuda_.layer_scratch().data()));
    }
    if (tape.grad_input() != nullptr) {
      PENSTOCK_RETURN_IF_ERROR(convolution_.BackwardInput(
          cuda_.dnn(), cuda_.stream(), Gradient(tape), ParameterOf<Number>(weights, kWeight),
          tape.grad_input(), Products()));
    }
    return cuda_.Check("backward of a convolution's input");
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    PENSTOCK_RETURN_IF_ERROR(convolution_.BackwardWeight(cuda_.dnn(), cuda_.stream(), Input(tape),
                                                         Gradient(tape),
                                                         gradients.parameter(kWeight), Products()));
    if (has_bias_) {
      AddInto(cuda_.stream(), shape_.outputs, bias_sums_.in(tape.weight_stash),
              gradients.parameter(kBias));
    }
    return cuda_.Check("backward of a convolution's weights");
  }

 private:
  int64_t rows() const { return shape_.samples * shape_.window.outputs(); }
  void* Products() const { return products_.in(cuda_.layer_scratch().data()); }

  // What the products read.
  const Number* Input(const Tape& tape) const {
    if constexpr (kIsFloat<Number>) {
      return tape.input();
    } else {
      return input_.in(tape.kept);
    }
  }
  const Number* Gradient(const Tape& tape) const {
    if constexpr (kIsFloat<Number>) {
      return tape.gradient();
    } else {
      return gradient_.in(tape.weight_stash);
    }
  }

  CudaContext& cuda_;
  const ConvolutionShape shape_;
  const Convolution& convolution_;
  const bool has_bias_;
  TapeNeeds needs_;
  Place<Number> input_;          // kept, unless float
  Place<Number> gradient_;       // weight stash, unless float
  Place<float> bias_sums_;       // weight stash
  Place<char> products_;         // scratch
  Place<float> sums_workspace_;  // scratch
  int64_t scratch_bytes_ = 0;
};

}  // namespace
}  // namespace conv2d

MadeKernels MakeConv2d(CudaContext& context, const KernelSpec& spec) {
  return spec.bf16 ? conv2d::CudaConv2d<Bf16>::Create(context, spec)
                   : conv2d::CudaConv2d<float>::Create(context, spec);
}

}  // namespace penstock::cuda
