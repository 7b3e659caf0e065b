// The MLP of a block: GELU between the two linear maps.
//
// F computes GELU and its derivative together, which share their exponential; I then only
// multiplies.
#include <type_traits>
#include <utility>

#include "compute/cpu/ops.h"
#include "compute/cpu/residual_branch.h"

namespace penstock::cpu {
namespace mlp_branch {
namespace {

template <typename Number>
class GeluMiddle : public Middle<Number> {
 public:
  GeluMiddle(CpuContext& context, const BranchShape& shape) : cpu_(context), shape_(shape) {}

  // The derivative, one number for each hidden unit.
  int64_t stash_bytes() const override {
    return shape_.rows * shape_.expanded * static_cast<int64_t>(sizeof(Number));
  }
  int64_t scratch_bytes() const override {
    return kInPlace ? 0 : shape_.chunk * shape_.expanded * static_cast<int64_t>(sizeof(float));
  }

  float* ExpansionTarget(RowRange range, void* stash, void* scratch) override {
    return InPlaceOr(Derivative(range, stash), scratch);
  }

  void Forward(RowRange range, float* expansion, const float* bias, Number* output, void* stash,
               void* /*scratch*/) override {
    const int64_t width = shape_.expanded;
    Number* derivative = Derivative(range, stash);
    cpu_.threads.ForBlocks(range.count, kBlockRows, [&](int64_t row, int64_t count, int64_t) {
      const int64_t at = row * width;
      cpu_.kernels.of<Number>().bias_gelu(count, width, expansion + at, bias, derivative + at,
                                          output + at);
    });
  }

  float* IncomingTarget(Number* gradient, void* scratch) override {
    return InPlaceOr(gradient, scratch);
  }

  void Backward(RowRange range, float* incoming, Number* gradient, float* block_sums, void* stash,
                void* /*scratch*/) override {
    const int64_t width = shape_.expanded;
    const Number* derivative = Derivative(range, stash);
    cpu_.threads.ForBlocks(range.count, kBlockRows, [&](int64_t row, int64_t count, int64_t block) {
      const int64_t at = row * width;
      cpu_.kernels.of<Number>().gelu_gradient(count, width, incoming + at, derivative + at,
                                              gradient + at, block_sums + block * width);
    });
  }

 private:
  // Float products can be overwritten in place; bf16 results need another place than their inputs.
  static constexpr bool kInPlace = std::is_same_v<Number, float>;

  static float* InPlaceOr(Number* place, void* scratch) {
    if constexpr (kInPlace) {
      return place;
    } else {
      return static_cast<float*>(scratch);
    }
  }

  Number* Derivative(RowRange range, void* stash) const {
    return static_cast<Number*>(stash) + range.first * shape_.expanded;
  }

  CpuContext& cpu_;
  const BranchShape shape_;
};

template <typename Number>
MadeKernels Make(CpuContext& context, const KernelSpec& spec) {
  const int64_t hidden = spec.attributes().integer("hidden");
  const BranchShape branch = {.rows = spec.rows(),
                              .chunk = ChunkOf(spec),
                              .width = spec.width(),
                              .expanded = hidden,
                              .projected = hidden,
                              .outputs_first = spec.attributes().word("layout") == "outputs_first",
                              .fp8 = spec.fp8};
  const Dropout dropout(spec.attributes().number("dropout"), spec.inputs[0].dims[0]);
  return ResidualBranch<Number>::Create(context, branch, dropout,
                                        std::make_unique<GeluMiddle<Number>>(context, branch));
}

}  // namespace
}  // namespace mlp_branch

MadeKernels MakeMlpBranch(CpuContext& context, const KernelSpec& spec) {
  return spec.bf16 ? mlp_branch::Make<Bf16>(context, spec) : mlp_branch::Make<float>(context, spec);
}

}  // namespace penstock::cpu
