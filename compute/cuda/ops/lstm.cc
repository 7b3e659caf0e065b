// LSTM: an own loop over time around matrix products.
//
// The products of the input are made for all time steps at once, those of the state step by step. F keeps how open the
// gates are and the cells, and the states that the recurrent products read, each at the step that read it. I runs the loop
// backward and leaves the gradients of the gates' sums for W, which is two large products. Sequences are [samples, time,
// ...] as they come; what products of one step read is copied together, where it is aligned.
//
// A carried state stands before the first step as the one of any step does before the next. No gradient goes into it.
//
// Parameters of each direction: input matrix, recurrent matrix, two biases. I sums the gradient of the biases, which is
// one and the same.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/kernels/sequences.h"
#include "compute/cuda/kernels/values.h"
#include "compute/cuda/linear.h"
#include "compute/cuda/ops.h"
#include "compute/dropout.h"

namespace penstock::cuda {
namespace lstm {
namespace {

enum State : int { kHiddenState, kCellState };
enum Parameter : int { kInputMatrix, kRecurrentMatrix, kInputBias, kRecurrentBias, kParameters };

struct Sizes {
  int64_t samples, time, inputs, hidden;
  int64_t directions;
  float forget_bias;
  bool is_carried;

  int64_t gates() const { return 4 * hidden; }
  int64_t rows() const { return samples * time; }
  int64_t outputs() const { return directions * hidden; }
};

// What passes leave for one another.
struct Blocks {
  BlockLayout stash, kept, weight_stash;
};

template <typename Number>
class Direction {
 public:
  // `number`: of the direction. Places what it leaves in `blocks`.
  static absl::StatusOr<Direction> Create(CudaContext& context, const Sizes& sizes,
                                          const Dropout& weight_drop, int number, bool reverse,
                                          Blocks& blocks) {
    Direction direction(context, sizes, weight_drop, number, reverse);
    direction.PlaceBlocks(blocks);
    PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(direction.PlaceScratch()));
    PENSTOCK_RETURN_IF_ERROR(direction.MakeProducts());
    return direction;
  }

  absl::Status Forward(const PassContext& context, const WeightView& weights, const Number* input,
                       const int32_t* lengths, const Tape& tape) const {
    PENSTOCK_RETURN_IF_ERROR(
        input_forward_.Run({.left = input,
                            .right = ParameterOf<Number>(weights, Index(kInputMatrix)),
                            .result = gates_.in(tape.stash)}));
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
    return absl::OkStatus();
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
    ColumnSums(stream(), s_.samples, s_.gates(), In(sample_sums_), bias_sums_.in(tape.weight_stash),
               In(sums_workspace_));
    if (tape.grad_input() == nullptr) return absl::OkStatus();
    return input_backward_.Run({.left = gradients_.in(tape.weight_stash),
                                .right = ParameterOf<Number>(weights, Index(kInputMatrix)),
                                .result = tape.grad_input()});
  }

  absl::Status BackwardWeight(const PassContext& context, const GradientView& gradients,
                              const Number* input, const Tape& tape) const {
    const Number* const of_gates = gradients_.in(tape.weight_stash);
    PENSTOCK_RETURN_IF_ERROR(input_weight_.Add(gradients, input, of_gates));
    PENSTOCK_RETURN_IF_ERROR(
        AddRecurrentGradient(context, gradients, of_gates, states_.in(tape.kept)));
    for (const Parameter bias : {kInputBias, kRecurrentBias}) {
      AddInto(stream(), s_.gates(), bias_sums_.in(tape.weight_stash),
              gradients.parameter(Index(bias)));
    }
    return absl::OkStatus();
  }

 private:
  Direction(CudaContext& context, const Sizes& sizes, const Dropout& weight_drop, int number,
            bool reverse)
      : cuda_(&context), s_(sizes), weight_drop_(weight_drop), number_(number), reverse_(reverse) {}

  void PlaceBlocks(Blocks& blocks) {
    gates_ = blocks.stash.Add<float>(s_.rows() * s_.gates());
    cells_ = blocks.stash.Add<float>(s_.rows() * s_.hidden);
    first_cells_ = blocks.stash.Add<float>(s_.is_carried ? s_.samples * s_.hidden : 0);
    states_ = blocks.kept.Add<Number>(s_.rows() * s_.hidden);
    gradients_ = blocks.weight_stash.Add<Number>(s_.rows() * s_.gates());
    bias_sums_ = blocks.weight_stash.Add<float>(s_.gates());
  }

  // What no pass leaves to another: the directions' scratch memory is the same. In bytes.
  int64_t PlaceScratch() {
    const int64_t matrix = weight_drop_.active() ? s_.gates() * s_.hidden : 0;
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

  absl::Status MakeProducts() {
    const auto make = [this](const ProductShape& shape, MatrixProduct& product) -> absl::Status {
      PENSTOCK_ASSIGN_OR_RETURN(product, MatrixProduct::Create(*cuda_, shape));
      return absl::OkStatus();
    };
    const LinearShape input = {s_.rows(), s_.inputs, s_.gates(), /*outputs_first=*/true};
    PENSTOCK_RETURN_IF_ERROR(make(ForwardShape<Number>(input, CUDA_R_32F), input_forward_));
    ProductShape to_input = BackwardInputShape<Number>(input, CUDA_R_32F);
    to_input.accumulate = number_ > 0;
    PENSTOCK_RETURN_IF_ERROR(make(to_input, input_backward_));
    PENSTOCK_ASSIGN_OR_RETURN(input_weight_,
                              WeightGradient<Number>::Create(*cuda_, input, Index(kInputMatrix)));

    const LinearShape step = {s_.samples, s_.hidden, s_.gates(), /*outputs_first=*/true};
    PENSTOCK_RETURN_IF_ERROR(make(ForwardShape<Number>(step, CUDA_R_32F), recurrent_forward_));
    PENSTOCK_RETURN_IF_ERROR(
        make(BackwardInputShape<Number>(step, CUDA_R_32F), recurrent_backward_));
    const LinearShape all = {s_.rows(), s_.hidden, s_.gates(), /*outputs_first=*/true};
    PENSTOCK_ASSIGN_OR_RETURN(recurrent_weight_,
                              WeightGradient<Number>::Create(*cuda_, all, Index(kRecurrentMatrix)));
    return absl::OkStatus();
  }

  cudaStream_t stream() const { return cuda_->stream(); }
  int Index(Parameter parameter) const { return number_ * kParameters + parameter; }
  // The time step that is the n-th to be read.
  int64_t StepAt(int64_t n) const { return reverse_ ? s_.time - 1 - n : n; }
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
    if (n == 0) return {first_cells_.in(stash), s_.hidden};
    const float* const cells = cells_.in(stash);
    return Steps(cells, s_.hidden, n - 1);
  }
  // Of the output or its gradient: the part of this direction.
  template <typename T>
  StepRows<T> OutputSteps(T* output, int64_t n) const {
    return Steps(output + number_ * s_.hidden, s_.outputs(), n);
  }

  void Begin(const Tape& tape) const {
    LstmBegin(stream(), s_.samples, s_.hidden, tape.states[kHiddenState], In(state_),
              Steps(states_.in(tape.kept), s_.hidden, 0));
    if (!s_.is_carried) return;
    const Columns rows = {.stride = s_.hidden, .first = 0};
    CopyColumns(stream(), s_.samples, s_.hidden, tape.states[kCellState], rows,
                first_cells_.in(tape.stash), rows);
  }

  // The output of the last step, and its cells.
  void PutNextStates(const Tape& tape) const {
    const auto put = [&](State state, const StepRows<const float>& from) {
      CopyColumns(stream(), s_.samples, s_.hidden, from.first, {.stride = from.stride, .first = 0},
                  tape.next_states[state], {.stride = s_.hidden, .first = 0});
    };
    const float* const output = tape.result();
    const float* const cells = cells_.in(tape.stash);
    put(kHiddenState, OutputSteps(output, s_.time - 1));
    put(kCellState, Steps(cells, s_.hidden, s_.time - 1));
  }

  LstmForwardStep<Number> ForwardStep(const WeightView& weights, const int32_t* lengths,
                                      const Tape& tape, int64_t n) const {
    return {.samples = s_.samples,
            .hidden = s_.hidden,
            .gates = Steps(gates_.in(tape.stash), s_.gates(), n),
            .recurrent = HasStateBefore(n) ? In(recurrent_) : nullptr,
            .input_bias = weights.parameter(Index(kInputBias)),
            .recurrent_bias = weights.parameter(Index(kRecurrentBias)),
            .forget_bias = s_.forget_bias,
            .lengths = lengths,
            .step = StepAt(n),
            .cells_before = CellsBefore(tape.stash, n),
            .cells = Steps(cells_.in(tape.stash), s_.hidden, n),
            .output = OutputSteps(tape.result(), n),
            .state = In(state_),
            .next_state = n + 1 < s_.time ? Steps(states_.in(tape.kept), s_.hidden, n + 1)
                                          : StepRows<Number>{}};
  }

  LstmBackwardStep<Number> BackwardStep(const Tape& tape, int64_t n) const {
    const float* const gates = gates_.in(tape.stash);
    const float* const cells = cells_.in(tape.stash);
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
            .gradients = Steps(gradients_.in(tape.weight_stash), s_.gates(), n)};
  }

  // All directions' recurrent matrices lie one below the other in a mask that is that of the microbatch's first sample.
  template <typename To>
  void MaskMatrix(const DeviceMask& mask, const float* from, To* to) const {
    Mask(stream(), s_.gates(), s_.hidden, from, mask, number_ * s_.gates(), to);
  }

  // As the products read it.
  const Number* RecurrentMatrix(const PassContext& context, const WeightView& weights) const {
    const int parameter = Index(kRecurrentMatrix);
    const DeviceMask mask = cuda_->MaskOf(weight_drop_, context);
    if (mask.drop_below == 0) return ParameterOf<Number>(weights, parameter);
    MaskMatrix(mask, weights.parameter(parameter), In(masked_));
    return In(masked_);
  }

  // What was dropped gets no gradient.
  absl::Status AddRecurrentGradient(const PassContext& context, const GradientView& gradients,
                                    const Number* of_gates, const Number* states) const {
    const DeviceMask mask = cuda_->MaskOf(weight_drop_, context);
    if (mask.drop_below == 0) return recurrent_weight_.Add(gradients, states, of_gates);
    const int64_t count = s_.gates() * s_.hidden;
    float* const masked = In(masked_gradient_);
    Fill(stream(), count, 0.0f, masked);
    PENSTOCK_RETURN_IF_ERROR(recurrent_weight_.AddTo(masked, states, of_gates));
    MaskMatrix(mask, masked, masked);
    AddInto(stream(), count, masked, gradients.parameter(Index(kRecurrentMatrix)));
    return absl::OkStatus();
  }

  CudaContext* cuda_;
  Sizes s_;
  Dropout weight_drop_;
  int number_;
  bool reverse_;
  MatrixProduct input_forward_, input_backward_;
  WeightGradient<Number> input_weight_;
  MatrixProduct recurrent_forward_, recurrent_backward_;  // of one step
  WeightGradient<Number> recurrent_weight_;               // of all steps
  // Each is [samples, time, ...].
  Place<float> gates_, cells_;  // stash
  Place<float> first_cells_;    // stash [samples, hidden], carried
  Place<Number> states_;        // kept: those that each step reads
  Place<Number> gradients_;     // weight stash: of the gates' sums
  Place<float> bias_sums_;      // weight stash
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

template <typename Number>
class CudaLstm : public OpKernels {
 public:
  static MadeKernels Create(CudaContext& context, const KernelSpec& spec) {
    std::unique_ptr<CudaLstm> lstm(new CudaLstm(context, spec));
    PENSTOCK_RETURN_IF_ERROR(lstm->MakeDirections());
    return std::unique_ptr<OpKernels>(std::move(lstm));
  }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext& context, const WeightView& weights,
                       const Tape& tape) override {
    if constexpr (!kIsFloat<Number>) {
      ConvertToBf16(cuda_.stream(), s_.rows() * s_.inputs, tape.input(), input_.in(tape.kept));
    }
    const int32_t* lengths = has_lengths_ ? tape.input<int32_t>(1) : nullptr;
    for (const auto& direction : directions_) {
      PENSTOCK_RETURN_IF_ERROR(direction.Forward(context, weights, Input(tape), lengths, tape));
    }
    return cuda_.Check("forward of an LSTM");
  }

  absl::Status BackwardInput(const PassContext& context, const WeightView& weights,
                             const Tape& tape) override {
    for (const auto& direction : directions_) {
      PENSTOCK_RETURN_IF_ERROR(direction.BackwardInput(context, weights, tape));
    }
    return cuda_.Check("backward of an LSTM's input");
  }

  absl::Status BackwardWeight(const PassContext& context, const GradientView& gradients,
                              const Tape& tape) override {
    for (const auto& direction : directions_) {
      PENSTOCK_RETURN_IF_ERROR(direction.BackwardWeight(context, gradients, Input(tape), tape));
    }
    return cuda_.Check("backward of an LSTM's weights");
  }

 private:
  CudaLstm(CudaContext& context, const KernelSpec& spec)
      : cuda_(context),
        s_{.samples = spec.samples,
           .time = spec.inputs[0].dims[0],
           .inputs = spec.width(),
           .hidden = spec.attributes().integer("hidden"),
           .directions = spec.attributes().flag("bidirectional") ? 2 : 1,
           .forget_bias = static_cast<float>(spec.attributes().number("forget_bias")),
           .is_carried = spec.attributes().flag("carried")},
        reverse_(spec.attributes().flag("reverse")),
        has_lengths_(spec.inputs.size() > 1),
        weight_drop_(spec.attributes().number("weight_drop"), s_.directions * s_.gates()) {}

  absl::Status MakeDirections() {
    Blocks blocks;
    for (int number = 0; number < s_.directions; ++number) {
      PENSTOCK_ASSIGN_OR_RETURN(auto direction,
                                Direction<Number>::Create(cuda_, s_, weight_drop_, number,
                                                          reverse_ || number > 0, blocks));
      directions_.push_back(std::move(direction));
    }
    input_ = blocks.kept.Add<Number>(kIsFloat<Number> ? 0 : s_.rows() * s_.inputs);
    needs_ = {.stash_bytes = blocks.stash.size_bytes(),
              .kept_bytes = blocks.kept.size_bytes(),
              .weight_stash_bytes = blocks.weight_stash.size_bytes(),
              .inputs_for_weight = kIsFloat<Number> ? InputSet{1} : kNoInputs};
    return absl::OkStatus();
  }

  // What the products read.
  const Number* Input(const Tape& tape) const {
    if constexpr (kIsFloat<Number>) {
      return tape.input();
    } else {
      return input_.in(tape.kept);
    }
  }

  CudaContext& cuda_;
  const Sizes s_;
  const bool reverse_, has_lengths_;
  const Dropout weight_drop_;
  std::vector<Direction<Number>> directions_;
  TapeNeeds needs_;
  Place<Number> input_;  // kept, unless float
};

}  // namespace
}  // namespace lstm

MadeKernels MakeLstm(CudaContext& context, const KernelSpec& spec) {
  return spec.bf16 ? lstm::CudaLstm<Bf16>::Create(context, spec)
                   : lstm::CudaLstm<float>::Create(context, spec);
}

}  // namespace penstock::cuda
