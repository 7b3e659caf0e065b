// y = x W + b over rows.
//
// Parameters: weight, and a bias if there is one. I sums the bias's gradient, while it reads what that is made of.
#include "compute/cpu/linear.h"

#include <type_traits>

#include "base/status.h"
#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"
#include "compute/ops/affine.h"

namespace penstock::cpu {
namespace linear {
namespace {

constexpr int kWeight = 0;
constexpr int kBias = 1;

template <typename Number>
class CpuLinear : public OpKernels {
 public:
  static MadeKernels Create(CpuContext& context, const KernelSpec& spec) {
    std::unique_ptr<CpuLinear> linear(new CpuLinear(context, spec));
    PENSTOCK_RETURN_IF_ERROR(context.layer_scratch.Reserve(linear->PlaceScratch()));
    PENSTOCK_ASSIGN_OR_RETURN(linear->products_,
                              Linear<Number>::Create(context, linear->shape_, kWeight));
    return std::unique_ptr<OpKernels>(std::move(linear));
  }

  TapeNeeds tape_needs() const override { return layout_.needs(); }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    layout_.input().Copy(tape, [this](int64_t count, const float* from, auto* to) {
      ToBf16(cpu_, count, from, to);
    });
    products_.Forward(weights, layout_.input().In(tape), tape.result());
    if (!has_bias_) return absl::OkStatus();
    cpu_.threads.ForBlocks(shape_.rows, kBlockRows, [&](int64_t first, int64_t count, int64_t) {
      cpu_.kernels.add_bias(count, shape_.outputs, tape.result() + first * shape_.outputs,
                            weights.parameter(kBias));
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    if (has_bias_) {
      SumBias(tape);
    } else if constexpr (!kFloat) {
      ToBf16(cpu_, layout_.gradient_elements(), tape.gradient(), layout_.GradientCopy(tape));
    }
    if (tape.grad_input() != nullptr) {
      products_.BackwardInput(weights, layout_.Gradient(tape), tape.grad_input());
    }
    return absl::OkStatus();
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    products_.BackwardWeight(gradients, layout_.input().In(tape), layout_.Gradient(tape));
    if (has_bias_) {
      cpu_.kernels.add_into(shape_.outputs, layout_.BiasSums(tape), gradients.parameter(kBias));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr bool kFloat = std::is_same_v<Number, float>;

  CpuLinear(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        shape_{.rows = spec.rows(),
               .chunk = ChunkOf(spec),
               .inputs = spec.width(),
               .outputs = spec.node.output.dims.back(),
               .outputs_first = spec.attributes().word("layout") == "outputs_first",
               .fp8 = spec.fp8},
        has_bias_(spec.attributes().flag("bias")),
        layout_({spec.input_elements(), shape_.rows, shape_.outputs, has_bias_}) {}

  int64_t PlaceScratch() {  // bytes
    BlockLayout scratch;
    block_sums_ = scratch.Add<float>(has_bias_ ? BlocksOf(shape_.rows) * shape_.outputs : 0);
    return scratch.size_bytes();
  }

  // Sums the columns of the gradient, and rounds it on the way.
  void SumBias(const Tape& tape) const {
    const int64_t width = shape_.outputs;
    float* block_sums = block_sums_.in(cpu_.layer_scratch.data());
    cpu_.threads.ForBlocks(
        shape_.rows, kBlockRows, [&](int64_t first, int64_t count, int64_t block) {
          const float* incoming = tape.gradient() + first * width;
          float* sums = block_sums + block * width;
          if constexpr (kFloat) {
            cpu_.kernels.column_sums(count, width, incoming, sums);
          } else {
            cpu_.kernels.bf16.mask_column_sums(count, width, incoming, /*dropout=*/nullptr,
                                               layout_.GradientCopy(tape) + first * width, sums);
          }
        });
    float* sums = layout_.BiasSums(tape);
    cpu_.kernels.fill(width, 0.0f, sums);
    AddBlockSums(cpu_, shape_.rows, width, block_sums, sums);
  }

  CpuContext& cpu_;
  const LinearShape shape_;
  const bool has_bias_;
  const AffineLayout<Number> layout_;
  Linear<Number> products_;
  Place<float> block_sums_;  // scratch
};

}  // namespace
}  // namespace linear

MadeKernels MakeLinear(CpuContext& context, const KernelSpec& spec) {
  return spec.bf16 ? linear::CpuLinear<Bf16>::Create(context, spec)
                   : linear::CpuLinear<float>::Create(context, spec);
}

}  // namespace penstock::cpu
