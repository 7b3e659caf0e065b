// y = x W + b over rows. In bf16, F keeps a rounded copy of x and I one of y's gradient, which is all that W reads.
//
// Parameters: weight, and a bias if there is one. I sums the bias's gradient, while it reads what that is made of.
#include "compute/cpu/linear.h"

#include <type_traits>

#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"

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

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    if constexpr (!kFloat) ToBf16(shape_.rows * shape_.inputs, tape.input(), input_.in(tape.kept));
    products_.ForwardOfRows(weights, Input(tape), tape.result());
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
      ToBf16(shape_.rows * shape_.outputs, tape.gradient(), gradient_.in(tape.weight_stash));
    }
    if (tape.grad_input() != nullptr) {
      products_.BackwardInputOfRows(weights, Gradient(tape), tape.grad_input());
    }
    return absl::OkStatus();
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    products_.BackwardWeight(gradients, Input(tape), Gradient(tape));
    if (has_bias_) {
      cpu_.kernels.add_into(shape_.outputs, bias_sums_.in(tape.weight_stash),
                            gradients.parameter(kBias));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr bool kFloat = std::is_same_v<Number, float>;

  CpuLinear(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        shape_{spec.rows(), ChunkOf(spec.rows()), spec.width(), spec.node.output.dims.back(),
               spec.attributes().word("layout") == "outputs_first"},
        has_bias_(spec.attributes().flag("bias")) {
    BlockLayout kept, weight_stash;
    input_ = kept.Add<Number>(kFloat ? 0 : shape_.rows * shape_.inputs);
    gradient_ = weight_stash.Add<Number>(kFloat ? 0 : shape_.rows * shape_.outputs);
    bias_sums_ = weight_stash.Add<float>(has_bias_ ? shape_.outputs : 0);
    needs_.kept_bytes = kept.size_bytes();
    needs_.weight_stash_bytes = weight_stash.size_bytes();
    needs_.inputs_for_weight = kFloat ? kAllInputs : kNoInputs;
    needs_.grad_output_for_weight = kFloat;
  }

  int64_t PlaceScratch() {  // bytes
    BlockLayout scratch;
    block_sums_ = scratch.Add<float>(has_bias_ ? BlocksOf(shape_.rows) * shape_.outputs : 0);
    return scratch.size_bytes();
  }

  // What the products read.
  const Number* Input(const Tape& tape) const {
    if constexpr (kFloat) {
      return tape.input();
    } else {
      return input_.in(tape.kept);
    }
  }
  const Number* Gradient(const Tape& tape) const {
    if constexpr (kFloat) {
      return tape.gradient();
    } else {
      return gradient_.in(tape.weight_stash);
    }
  }

  void ToBf16(int64_t count, const float* from, Bf16* to) const {
    ForFlat(cpu_, count, [&](int64_t first, int64_t size) {
      cpu_.kernels.to_bf16(size, from + first, to + first);
    });
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
                                               gradient_.in(tape.weight_stash) + first * width,
                                               sums);
          }
        });
    float* sums = bias_sums_.in(tape.weight_stash);
    cpu_.kernels.fill(width, 0.0f, sums);
    AddBlockSums(cpu_, shape_.rows, width, block_sums, sums);
  }

  CpuContext& cpu_;
  const LinearShape shape_;
  const bool has_bias_;
  Linear<Number> products_;
  TapeNeeds needs_;
  Place<Number> input_;      // kept, unless float
  Place<Number> gradient_;   // weight stash, unless float
  Place<float> bias_sums_;   // weight stash
  Place<float> block_sums_;  // scratch
};

}  // namespace
}  // namespace linear

MadeKernels MakeLinear(CpuContext& context, const KernelSpec& spec) {
  return spec.bf16 ? linear::CpuLinear<Bf16>::Create(context, spec)
                   : linear::CpuLinear<float>::Create(context, spec);
}

}  // namespace penstock::cpu
