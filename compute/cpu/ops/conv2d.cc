// Convolution of images.
//
// Parameters: weight [outputs, inputs / groups, height, width], bias [outputs] if there is one.
#include <type_traits>

#include "base/status.h"
#include "compute/cpu/convolution.h"
#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"
#include "compute/ops/affine.h"

namespace penstock::cpu {
namespace conv2d {
namespace {

template <typename Number>
class CpuConv2d : public OpKernels {
 public:
  static MadeKernels Create(CpuContext& context, const KernelSpec& spec) {
    PENSTOCK_ASSIGN_OR_RETURN(const Window window, WindowOf(spec.attributes(), spec.inputs[0]));
    std::unique_ptr<CpuConv2d> op(new CpuConv2d(context, spec));
    const ConvolutionShape shape = {.samples = spec.samples,
                                    .inputs = spec.width(),
                                    .outputs = op->outputs_,
                                    .groups = spec.attributes().integer("groups"),
                                    .window = window,
                                    .bias = op->bias_};
    PENSTOCK_ASSIGN_OR_RETURN(
        op->convolution_,
        Convolution::Create(context, shape,
                            kFloat ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16));
    PENSTOCK_RETURN_IF_ERROR(context.layer_scratch.Reserve(op->PlaceScratch()));
    return std::unique_ptr<OpKernels>(std::move(op));
  }

  TapeNeeds tape_needs() const override { return layout_.needs(); }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    layout_.input().Copy(tape, [this](int64_t count, const float* from, auto* to) {
      ToBf16(cpu_, count, from, to);
    });
    convolution_.Forward(layout_.input().In(tape), Weight(weights),
                         bias_ ? weights.parameter(1) : nullptr, Scratch(packed_), tape.result());
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    if constexpr (!kFloat) {
      ToBf16(cpu_, layout_.gradient_elements(), tape.gradient(), layout_.GradientCopy(tape));
    }
    if (bias_) SumBiasGradient(tape);
    if (tape.grad_input() != nullptr) {
      convolution_.BackwardInput(layout_.Gradient(tape), Weight(weights), Scratch(packed_),
                                 tape.grad_input());
    }
    return absl::OkStatus();
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    convolution_.BackwardWeight(layout_.input().In(tape), layout_.Gradient(tape), Scratch(packed_),
                                gradients.parameter(0));
    if (bias_) {
      cpu_.kernels.add_into(outputs_, layout_.BiasSums(tape), gradients.parameter(1));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr bool kFloat = std::is_same_v<Number, float>;

  CpuConv2d(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        bias_(spec.attributes().flag("bias")),
        outputs_(spec.node.output.dims.back()),
        rows_(spec.output_elements() / outputs_),
        layout_({spec.input_elements(), rows_, outputs_, bias_}) {}

  int64_t PlaceScratch() {  // bytes
    BlockLayout scratch;
    packed_ = scratch.Add<char>(convolution_.packed_bytes());
    block_sums_ = scratch.Add<float>(bias_ ? BlocksOf(rows_) * outputs_ : 0);
    return scratch.size_bytes();
  }
  template <typename T>
  T* Scratch(Place<T> place) const {
    return place.in(cpu_.layer_scratch.data());
  }

  void SumBiasGradient(const Tape& tape) const {
    float* sums = Scratch(block_sums_);
    cpu_.threads.ForBlocks(rows_, kBlockRows, [&](int64_t first, int64_t count, int64_t block) {
      cpu_.kernels.column_sums(count, outputs_, tape.gradient() + first * outputs_,
                               sums + block * outputs_);
    });
    float* total = layout_.BiasSums(tape);
    cpu_.kernels.fill(outputs_, 0.0f, total);
    AddBlockSums(cpu_, rows_, outputs_, sums, total);
  }

  static const void* Weight(const WeightView& weights) {
    if constexpr (kFloat) {
      return weights.parameter(0);
    } else {
      return weights.bf16_parameter(0);
    }
  }

  CpuContext& cpu_;
  const bool bias_;
  const int64_t outputs_, rows_;
  const AffineLayout<Number> layout_;
  Convolution convolution_;
  Place<char> packed_;       // scratch
  Place<float> block_sums_;  // scratch
};

}  // namespace
}  // namespace conv2d

MadeKernels MakeConv2d(CpuContext& context, const KernelSpec& spec) {
  return spec.bf16 ? conv2d::CpuConv2d<Bf16>::Create(context, spec)
                   : conv2d::CpuConv2d<float>::Create(context, spec);
}

}  // namespace penstock::cpu
