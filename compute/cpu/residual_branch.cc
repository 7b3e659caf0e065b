#include "compute/cpu/residual_branch.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "base/status.h"

namespace penstock {
namespace {

enum Parameter { kGain, kBias, kExpansion, kExpansionBias, kProjection, kProjectionBias };

}  // namespace

template <typename Number>
absl::StatusOr<std::unique_ptr<OpKernels>> ResidualBranch<Number>::Create(
    CpuContext& context, const BranchShape& shape, const Dropout& dropout,
    std::unique_ptr<Middle<Number>> middle) {
  std::unique_ptr<ResidualBranch> branch(
      new ResidualBranch(context, shape, dropout, std::move(middle)));
  PENSTOCK_ASSIGN_OR_RETURN(branch->expansion_,
                            Linear<Number>::Create(context, shape.expansion_map(), kExpansion));
  PENSTOCK_ASSIGN_OR_RETURN(branch->projection_,
                            Linear<Number>::Create(context, shape.projection_map(), kProjection));
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch.Reserve(branch->PlaceScratch()));
  return std::unique_ptr<OpKernels>(std::move(branch));
}

template <typename Number>
ResidualBranch<Number>::ResidualBranch(CpuContext& context, const BranchShape& shape,
                                       const Dropout& dropout,
                                       std::unique_ptr<Middle<Number>> middle)
    : cpu_(context),
      shape_(shape),
      dropout_(dropout),
      copies_gradient_(dropout.active() || !std::is_same_v<Number, float>),
      middle_(std::move(middle)) {
  PlaceTape();
}

template <typename Number>
void ResidualBranch<Number>::PlaceTape() {
  BlockLayout stash;
  statistics_.AddTo(stash, shape_.rows);
  middle_stash_ = stash.Add<char>(middle_->stash_bytes());
  needs_.stash_bytes = stash.size_bytes();

  BlockLayout kept;
  normal_ = kept.Add<Number>(shape_.rows * shape_.width);
  hidden_ = kept.Add<Number>(shape_.rows * shape_.projected);
  needs_.kept_bytes = kept.size_bytes();

  BlockLayout weight_stash;
  masked_gradient_ = weight_stash.Add<Number>(copies_gradient_ ? shape_.rows * shape_.width : 0);
  expansion_gradient_ = weight_stash.Add<Number>(shape_.rows * shape_.expanded);
  gain_sums_ = weight_stash.Add<float>(shape_.width);
  bias_sums_ = weight_stash.Add<float>(shape_.width);
  expansion_sums_ = weight_stash.Add<float>(shape_.expanded);
  projection_sums_ = weight_stash.Add<float>(shape_.width);
  needs_.weight_stash_bytes = weight_stash.size_bytes();
  needs_.inputs_for_input = kAllInputs;
  needs_.grad_output_for_weight = !copies_gradient_;
}

template <typename Number>
int64_t ResidualBranch<Number>::PlaceScratch() {
  BlockLayout scratch;
  row_scratch_ = scratch.Add<float>(shape_.chunk * shape_.width);
  block_scratch_ =
      scratch.Add<float>(BlocksOf(shape_.chunk) * std::max(2 * shape_.width, shape_.expanded));
  middle_scratch_ = scratch.Add<char>(middle_->scratch_bytes());
  expansion_memory_ = scratch.Add<char>(expansion_.chunks_bytes());
  projection_memory_ = scratch.Add<char>(projection_.chunks_bytes());
  return scratch.size_bytes();
}

template <typename Number>
absl::Status ResidualBranch<Number>::Forward(const PassContext& context, const WeightView& weights,
                                             const Tape& tape) {
  void* scratch = cpu_.layer_scratch.data();
  void* stash = tape.stash;
  void* middle_stash = middle_stash_.in(stash);
  void* middle_scratch = middle_scratch_.in(scratch);
  float* projected = row_scratch_.in(scratch);
  const auto expand = expansion_.ForwardChunks(weights, expansion_memory_.in(scratch));
  const auto project = projection_.ForwardChunks(weights, projection_memory_.in(scratch));
  for (int64_t first = 0; first < shape_.rows; first += shape_.chunk) {
    const RowRange range{first, shape_.chunk};
    const int64_t at = first * shape_.width;
    const float* input = tape.input() + at;
    Number* normal = normal_.in(tape.kept) + at;
    Number* hidden = hidden_.in(tape.kept) + first * shape_.projected;

    Normalise(cpu_, statistics_, weights, range, shape_.width, input, normal, stash);
    float* expansion = middle_->ExpansionTarget(range, middle_stash, middle_scratch);
    expand.Run(normal, expansion);
    middle_->Forward(range, expansion, weights.parameter(kExpansionBias), hidden, middle_stash,
                     middle_scratch);
    project.Run(hidden, projected);
    cpu_.threads.ForBlocks(shape_.chunk, kBlockRows, [&](int64_t row, int64_t count, int64_t) {
      const auto dropout = RowsOf(dropout_, context, first + row);
      const int64_t block = row * shape_.width;
      cpu_.kernels.residual({count, shape_.width, input + block, projected + block,
                             weights.parameter(kProjectionBias), OrNull(dropout),
                             tape.result() + at + block});
    });
  }
  return absl::OkStatus();
}

template <typename Number>
const Number* ResidualBranch<Number>::ProjectedGradient(const Tape& tape) const {
  if constexpr (std::is_same_v<Number, float>) {
    if (!copies_gradient_) {
      return tape.gradient();
    }
  }
  return masked_gradient_.in(tape.weight_stash);
}

// Masks (and rounds) the gradient of the projection's output if needed, and sums it for the bias.
template <typename Number>
void ResidualBranch<Number>::StartGradient(const PassContext& context, const Tape& tape,
                                           RowRange range) {
  const int64_t width = shape_.width;
  float* block_sums = block_scratch_.in(cpu_.layer_scratch.data());
  const float* incoming = tape.gradient();
  Number* masked = masked_gradient_.in(tape.weight_stash);
  cpu_.threads.ForBlocks(range.count, kBlockRows, [&](int64_t row, int64_t count, int64_t block) {
    const int64_t at = (range.first + row) * width;
    float* sums = block_sums + block * width;
    if (copies_gradient_) {
      const auto dropout = RowsOf(dropout_, context, range.first + row);
      cpu_.kernels.of<Number>().mask_column_sums(count, width, incoming + at, OrNull(dropout),
                                                 masked + at, sums);
    } else {
      cpu_.kernels.column_sums(count, width, incoming + at, sums);
    }
  });
  AddBlockSums(cpu_, range.count, width, block_sums, projection_sums_.in(tape.weight_stash));
}

template <typename Number>
absl::Status ResidualBranch<Number>::BackwardInput(const PassContext& context,
                                                   const WeightView& weights, const Tape& tape) {
  void* scratch = cpu_.layer_scratch.data();
  void* stash = tape.stash;
  void* weight_stash = tape.weight_stash;
  void* middle_stash = middle_stash_.in(stash);
  void* middle_scratch = middle_scratch_.in(scratch);
  float* normal_gradient = row_scratch_.in(scratch);
  float* block_sums = block_scratch_.in(scratch);
  const auto expand = expansion_.BackwardInputChunks(weights, expansion_memory_.in(scratch));
  const auto project = projection_.BackwardInputChunks(weights, projection_memory_.in(scratch));
  cpu_.kernels.fill(shape_.width, 0.0f, gain_sums_.in(weight_stash));
  cpu_.kernels.fill(shape_.width, 0.0f, bias_sums_.in(weight_stash));
  cpu_.kernels.fill(shape_.expanded, 0.0f, expansion_sums_.in(weight_stash));
  cpu_.kernels.fill(shape_.width, 0.0f, projection_sums_.in(weight_stash));
  for (int64_t first = 0; first < shape_.rows; first += shape_.chunk) {
    const RowRange range{first, shape_.chunk};
    const int64_t at = first * shape_.width;
    Number* expansion_gradient = expansion_gradient_.in(weight_stash) + first * shape_.expanded;

    StartGradient(context, tape, range);
    float* incoming = middle_->IncomingTarget(expansion_gradient, middle_scratch);
    project.Run(ProjectedGradient(tape) + at, incoming);
    middle_->Backward(range, incoming, expansion_gradient, block_sums, middle_stash,
                      middle_scratch);
    AddBlockSums(cpu_, shape_.chunk, shape_.expanded, block_sums, expansion_sums_.in(weight_stash));
    expand.Run(expansion_gradient, normal_gradient);
    NormaliseGradient(cpu_, statistics_, weights, range, shape_.width,
                      {tape.input() + at, normal_gradient, tape.gradient() + at,
                       tape.grad_input() == nullptr ? nullptr : tape.grad_input() + at, block_sums,
                       gain_sums_.in(weight_stash), bias_sums_.in(weight_stash)},
                      stash);
  }
  return absl::OkStatus();
}

template <typename Number>
absl::Status ResidualBranch<Number>::BackwardWeight(const PassContext&,
                                                    const GradientView& gradients,
                                                    const Tape& tape) {
  void* kept = tape.kept;
  void* weight_stash = tape.weight_stash;
  projection_.BackwardWeight(gradients, hidden_.in(kept), ProjectedGradient(tape));
  expansion_.BackwardWeight(gradients, normal_.in(kept), expansion_gradient_.in(weight_stash));
  const auto add = [&](Place<float> sums, int64_t count, int parameter) {
    cpu_.kernels.add_into(count, sums.in(weight_stash), gradients.parameter(parameter));
  };
  add(gain_sums_, shape_.width, kGain);
  add(bias_sums_, shape_.width, kBias);
  add(expansion_sums_, shape_.expanded, kExpansionBias);
  add(projection_sums_, shape_.width, kProjectionBias);
  return absl::OkStatus();
}

template class ResidualBranch<float>;
template class ResidualBranch<Bf16>;

}  // namespace penstock
