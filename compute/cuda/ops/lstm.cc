// LSTM: an own loop over time around matrix products.
//
// The products of the input are made for all time steps at once, those of the state step by step. F keeps how open the
// gates are and the cells, and the states that the recurrent products read, each at the step that read it. I runs the loop
// backward and leaves the gradients of the gates' sums for W, which is two large products. Sequences are [samples, time,
// ...] as they come; what products of one step read is copied together, where it is aligned.
//
// A carried state stands before the first step as the one of any step does before the next. No gradient goes into it.
//
// I sums the gradient of the biases, which is one and the same.
#include "compute/ops/lstm.h"

#include <algorithm>

#include "base/status.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/kernels/sequences.h"
#include "compute/cuda/kernels/values.h"
#include "compute/cuda/linear.h"
#include "compute/cuda/ops.h"

namespace penstock::cuda {
namespace lstm {
namespace {

using penstock::lstm::DirectionLayout;
using penstock::lstm::Parameter;
using penstock::lstm::Sizes;
using penstock::lstm::State;
using enum penstock::lstm::State;
using enum penstock::lstm::Parameter;

template <typename NumberOfProducts>
class Direction {
 public:
  using Context = CudaContext;
  using Number = NumberOfProducts;

  static absl::StatusOr<Direction> Create(CudaContext& context, const Sizes& sizes, int64_t number,
                                          TapeLayout& layout) {
    Direction direction(context, sizes, number, layout);
    PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(direction.PlaceScratch()));
    PENSTOCK_RETURN_IF_ERROR(direction.MakeProducts(/*adds_to_input=*/number > 0));
    return direction;
  }

  static void Round(CudaContext& context, int64_t count, const float* from, Bf16* to) {
    ConvertToBf16(context.stream(), count, from, to);
  }

  absl::Status Forward(const PassContext& context, const WeightView& weights, const Number* input,
                       const int32_t* lengths, const Tape& tape) const {
    PENSTOCK_RETURN_IF_ERROR(
        input_forward_.Run({.left = input,
                            .right = ParameterOf<Number>(weights, layout_.IndexOf(kInputMatrix)),
                            .result = layout_.gates.in(tape.stash)}));
    const Number* const recurrent = RecurrentMatrix(context, weights);
    Begin(tape);
    for (int64_t n = 0; n < s_.time; ++n) {
      if (HasStateBefore(n)) {
        PENSTOCK_RETURN_IF_ERROR(recurrent_forward_.Run(
            {.left = In(state_), .right = recurrent, .result = In(recurrent_)}));
      }
      LstmForward(stream(), ForwardStep(weights, lengths, tape, n));
    }
    if (tape.next_states[kHiddenState] != nullptr) PutNextStates(tape);
    return cuda_->Check("forward of an LSTM");
  }

  absl::Status BackwardInput(const PassContext& context, const WeightView& weights,
                             const Tape& tape) const {
    const Number* const recurrent = RecurrentMatrix(context, weights);
    Fill(stream(), s_.samples * s_.hidden, 0.0f, In(state_gradients_));
    Fill(stream(), s_.samples * s_.hidden, 0.0f, In(cell_gradients_));
    Fill(stream(), s_.samples * s_.gates(), 0.0f, In(sample_sums_));
    for (int64_t n = s_.time - 1; n >= 0; --n) {
      LstmBackward(stream(), BackwardStep(tape, n));
      if (n > 0) {
        PENSTOCK_RETURN_IF_ERROR(recurrent_backward_.Run(
            {.left = In(step_gradients_), .right = recurrent, .result = In(state_gradients_)}));
      }
    }
    ColumnSums(stream(), s_.samples, s_.gates(), In(sample_sums_),
               layout_.bias_sums.in(tape.weight_stash), In(sums_workspace_));
    if (tape.grad_input() != nullptr) {
      PENSTOCK_RETURN_IF_ERROR(
          input_backward_.Run({.left = layout_.gate_gradients.in(tape.weight_stash),
                               .right = ParameterOf<Number>(weights, layout_.IndexOf(kInputMatrix)),
                               .result = tape.grad_input()}));
    }
    return cuda_->Check("backward of an LSTM's input");
  }

  absl::Status BackwardWeight(const PassContext& context, const GradientView& gradients,
                              const Number* input, const Tape& tape) const {
    const Number* const of_gates = layout_.gate_gradients.in(tape.weight_stash);
    PENSTOCK_RETURN_IF_ERROR(input_weight_.Add(gradients, input, of_gates));
    PENSTOCK_RETURN_IF_ERROR(
        AddRecurrentGradient(context, gradients, of_gates, layout_.states.in(tape.kept)));
    for (const Parameter bias : {kInputBias, kRecurrentBias}) {
      AddInto(stream(), s_.gates(), layout_.bias_sums.in(tape.weight_stash),
              gradients.parameter(layout_.IndexOf(bias)));
    }
    return cuda_->Check("backward of an LSTM's weights");
  }

 private:
  Direction(CudaContext& context, const Sizes& sizes, int64_t number, TapeLayout& layout)
      : cuda_(&context), s_(sizes), layout_(sizes, number, layout) {}

  // What no pass leaves to another: the directions' scratch memory is the same. In bytes.
  int64_t PlaceScratch() {
    const int64_t matrix = s_.weight_drop.active() ? s_.gates() * s_.hidden : 0;
    BlockLayout forward;
    masked_ = forward.Add<Number>(matrix);
    BlockLayout backward = forward;
    state_ = forward.Add<Number>(s_.samples * s_.hidden);
    recurrent_ = forward.Add<float>(s_.samples * s_.gates());
    step_gradients_ = backward.Add<Number>(s_.samples * s_.gates());
    state_gradients_ = backward.Add<float>(s_.samples * s_.hidden);
    cell_gradients_ = backward.Add<float>(s_.samples * s_.hidden);
    sample_sums_ = backward.Add<float>(s_.samples * s_.gates());
    sums_workspace_ = backward.Add<float>(ColumnSumsWorkspaceFloats(s_.samples, s_.gates()));
    BlockLayout weight;
    masked_gradient_ = weight.Add<float>(matrix);
    return std::max({forward.size_bytes(), backward.size_bytes(), weight.size_bytes()});
  }

  absl::Status MakeProducts(bool adds_to_input) {
    const auto make = [this](const ProductShape& shape, MatrixProduct& product) -> absl::Status {
      PENSTOCK_ASSIGN_OR_RETURN(product, MatrixProduct::Create(*cuda_, shape));
      return absl::OkStatus();
    };
    const LinearShape input = {s_.rows(), s_.inputs, s_.gates(), /*outputs_first=*/true};
    PENSTOCK_RETURN_IF_ERROR(make(ForwardShape<Number>(input, CUDA_R_32F), input_forward_));
    ProductShape to_input = BackwardInputShape<Number>(input, CUDA_R_32F);
    to_input.accumulate = adds_to_input;
    PENSTOCK_RETURN_IF_ERROR(make(to_input, input_backward_));
    PENSTOCK_ASSIGN_OR_RETURN(input_weight_, WeightGradient<Number>::Create(
                                                 *cuda_, input, layout_.IndexOf(kInputMatrix)));

    const LinearShape step = {s_.samples, s_.hidden, s_.gates(), /*outputs_first=*/true};
    PENSTOCK_RETURN_IF_ERROR(make(ForwardShape<Number>(step, CUDA_R_32F), recurrent_forward_));
    PENSTOCK_RETURN_IF_ERROR(
        make(BackwardInputShape<Number>(step, CUDA_R_32F), recurrent_backward_));
    const LinearShape all = {s_.rows(), s_.hidden, s_.gates(), /*outputs_first=*/true};
    PENSTOCK_ASSIGN_OR_RETURN(
        recurrent_weight_,
        WeightGradient<Number>::Create(*cuda_, all, layout_.IndexOf(kRecurrentMatrix)));
    return absl::OkStatus();
  }

  cudaStream_t stream() const { return cuda_->stream(); }
  // The time step that is the n-th to be read.
  int64_t StepAt(int64_t n) const { return layout_.is_reverse ? s_.time - 1 - n : n; }
  template <typename T>
  T* In(const Place<T>& place) const {
    return place.in(cuda_->layer_scratch().data());
  }

  // The step that is the n-th to be read, of [samples, time, width].
  template <typename T>
  StepRows<T> Steps(T* sequences, int64_t width, int64_t n) const {
    return {sequences + StepAt(n) * width, s_.time * width};
  }
  // Says whether the state before the n-th step is another than zero.
  bool HasStateBefore(int64_t n) const { return n > 0 || s_.is_carried; }
  StepRows<const float> CellsBefore(void* stash, int64_t n) const {
    if (!HasStateBefore(n)) return {};
    if (n == 0) return {layout_.first_cells.in(stash), s_.hidden};
    const float* const cells = layout_.cells.in(stash);
    return Steps(cells, s_.hidden, n - 1);
  }
  // Of the output or its gradient: the part of this direction.
  template <typename T>
  StepRows<T> OutputSteps(T* output, int64_t n) const {
    return Steps(output + layout_.first_column, s_.outputs(), n);
  }

  void Begin(const Tape& tape) const {
    LstmBegin(stream(), s_.samples, s_.hidden, tape.states[kHiddenState], In(state_),
              Steps(layout_.states.in(tape.kept), s_.hidden, 0));
    if (!s_.is_carried) return;
    const Columns rows = {.stride = s_.hidden, .first = 0};
    CopyColumns(stream(), s_.samples, s_.hidden, tape.states[kCellState], rows,
                layout_.first_cells.in(tape.stash), rows);
  }

  // The output of the last step, and its cells.
  void PutNextStates(const Tape& tape) const {
    const auto put = [&](State state, const StepRows<const float>& from) {
      CopyColumns(stream(), s_.samples, s_.hidden, from.first, {.stride = from.stride, .first = 0},
                  tape.next_states[state], {.stride = s_.hidden, .first = 0});
    };
    const float* const output = tape.result();
    const float* const cells = layout_.cells.in(tape.stash);
    put(kHiddenState, OutputSteps(output, s_.time - 1));
    put(kCellState, Steps(cells, s_.hidden, s_.time - 1));
  }

  LstmForwardStep<Number> ForwardStep(const WeightView& weights, const int32_t* lengths,
                                      const Tape& tape, int64_t n) const {
    return {.samples = s_.samples,
            .hidden = s_.hidden,
            .gates = Steps(layout_.gates.in(tape.stash), s_.gates(), n),
            .recurrent = HasStateBefore(n) ? In(recurrent_) : nullptr,
            .input_bias = weights.parameter(layout_.IndexOf(kInputBias)),
            .recurrent_bias = weights.parameter(layout_.IndexOf(kRecurrentBias)),
            .forget_bias = s_.forget_bias,
            .lengths = lengths,
            .step = StepAt(n),
            .cells_before = CellsBefore(tape.stash, n),
            .cells = Steps(layout_.cells.in(tape.stash), s_.hidden, n),
            .output = OutputSteps(tape.result(), n),
            .state = In(state_),
            .next_state = n + 1 < s_.time ? Steps(layout_.states.in(tape.kept), s_.hidden, n + 1)
                                          : StepRows<Number>{}};
  }

  LstmBackwardStep<Number> BackwardStep(const Tape& tape, int64_t n) const {
    const float* const gates = layout_.gates.in(tape.stash);
    const float* const cells = layout_.cells.in(tape.stash);
    return {.samples = s_.samples,
            .hidden = s_.hidden,
            .gates = Steps(gates, s_.gates(), n),
            .cells_before = CellsBefore(tape.stash, n),
            .cells = Steps(cells, s_.hidden, n),
            .grad_output = OutputSteps(tape.gradient(), n),
            .state_gradients = In(state_gradients_),
            .cell_gradients = In(cell_gradients_),
            .bias_sums = In(sample_sums_),
            .step_gradients = In(step_gradients_),
            .gradients = Steps(layout_.gate_gradients.in(tape.weight_stash), s_.gates(), n)};
  }

  // Of the recurrent matrix, or its gradient.
  template <typename To>
  void MaskMatrix(const DeviceMask& mask, const float* from, To* to) const {
    Mask(stream(), s_.gates(), s_.hidden, from, mask, layout_.first_mask_row, to);
  }

  // As the products read it.
  const Number* RecurrentMatrix(const PassContext& context, const WeightView& weights) const {
    const int parameter = layout_.IndexOf(kRecurrentMatrix);
    const DeviceMask mask = cuda_->MaskOf(s_.weight_drop, context);
    if (mask.drop_below == 0) return ParameterOf<Number>(weights, parameter);
    MaskMatrix(mask, weights.parameter(parameter), In(masked_));
    return In(masked_);
  }

  // What was dropped gets no gradient.
  absl::Status AddRecurrentGradient(const PassContext& context, const GradientView& gradients,
                                    const Number* of_gates, const Number* states) const {
    const DeviceMask mask = cuda_->MaskOf(s_.weight_drop, context);
    if (mask.drop_below == 0) return recurrent_weight_.Add(gradients, states, of_gates);
    const int64_t count = s_.gates() * s_.hidden;
    float* const masked = In(masked_gradient_);
    Fill(stream(), count, 0.0f, masked);
    PENSTOCK_RETURN_IF_ERROR(recurrent_weight_.AddTo(masked, states, of_gates));
    MaskMatrix(mask, masked, masked);
    AddInto(stream(), count, masked, gradients.parameter(layout_.IndexOf(kRecurrentMatrix)));
    return absl::OkStatus();
  }

  CudaContext* cuda_;
  Sizes s_;
  DirectionLayout<Number> layout_;
  MatrixProduct input_forward_, input_backward_;
  WeightGradient<Number> input_weight_;
  MatrixProduct recurrent_forward_, recurrent_backward_;  // of one step
  WeightGradient<Number> recurrent_weight_;               // of all steps
  // Scratch:
  Place<Number> masked_;          // the recurrent matrix, if weights are dropped
  Place<float> masked_gradient_;  // of W: its gradient
  // Scratch of F, of one step:
  Place<Number> state_;
  Place<float> recurrent_;
  // Scratch of I, of one step:
  Place<Number> step_gradients_;
  Place<float> state_gradients_, cell_gradients_;
  Place<float> sample_sums_;  // of the biases' gradient
  Place<float> sums_workspace_;
};

}  // namespace
}  // namespace lstm

MadeKernels MakeLstm(CudaContext& context, const KernelSpec& spec) {
  using penstock::lstm::LstmKernels;
  return spec.bf16 ? LstmKernels<lstm::Direction<Bf16>>::Create(context, spec)
                   : LstmKernels<lstm::Direction<float>>::Create(context, spec);
}

}  // namespace penstock::cuda
