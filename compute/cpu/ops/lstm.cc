// LSTM: an own loop over time around matrix products.
//
// The products of the input are made for all time steps at once, those of the state step by step, with the recurrent
// matrix packed once for a pass. F keeps open gates and cells, and the states that the recurrent products read, each at
// the step that read it. I runs the loop backward and leaves the gradients of the gates' sums for W, which is two large
// products. Sequences are [samples, time, ...] as they come; what products of one step read is copied together.
//
// With lengths a pass ends with the longest sample: later steps give zeros and take part in no step's product. They would
// add zeros to the large products, so that no bit depends on it.
//
// A carried state stands before the first step as the one of any step does before the next: windows that follow each
// other give the bits of one sequence. No gradient goes into it.
//
// I sums the gradient of the biases, which is one and the same.
#include "compute/ops/lstm.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "base/status.h"
#include "compute/cpu/dropout.h"
#include "compute/cpu/flat_blocks.h"
#include "compute/cpu/linear.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"

namespace penstock::cpu {
namespace lstm {
namespace {

using penstock::lstm::DirectionLayout;
using penstock::lstm::Parameter;
using penstock::lstm::Sizes;
using enum penstock::lstm::State;
using enum penstock::lstm::Parameter;

constexpr int64_t kStepRows = 8;  // samples that one thread takes through a step

template <typename NumberOfProducts>
class Direction {
 public:
  using Context = CpuContext;
  using Number = NumberOfProducts;

  static absl::StatusOr<Direction> Create(CpuContext& context, const Sizes& sizes, int64_t number,
                                          TapeLayout& layout) {
    Direction direction(context, sizes, number, layout);
    PENSTOCK_RETURN_IF_ERROR(direction.MakeProducts(/*adds_to_input=*/number > 0));
    PENSTOCK_RETURN_IF_ERROR(context.layer_scratch.Reserve(direction.PlaceScratch()));
    return direction;
  }

  static void Round(CpuContext& context, int64_t count, const float* from, Bf16* to) {
    ToBf16(context, count, from, to);
  }

  absl::Status Forward(const PassContext& context, const WeightView& weights, const Number* input,
                       const int32_t* lengths, const Tape& tape) {
    float* const gates = layout_.gates.in(tape.stash);
    input_products_.Forward(weights, input, gates);
    SumBiases(weights);
    recurrent_forward_.Pack(RecurrentMatrix(context, weights), In(packed_));
    const int64_t steps = StepsOf(lengths);
    *steps_.in(tape.stash) = steps;
    Begin(steps, tape);
    for (int64_t n = 0; n < steps; ++n) {
      const int64_t t = StepAt(n, steps);
      if (n > 0 || s_.is_carried) {
        recurrent_forward_.Run(In(state_), In(packed_), In(recurrent_));
      }
      ForSamples([&](int64_t first, int64_t count) {
        const Strided<Number> next = n + 1 < steps ? Steps(layout_.states.in(tape.kept), s_.hidden,
                                                           first, StepAt(n + 1, steps))
                                                   : Strided<Number>();
        cpu_->kernels.of<Number>().lstm_forward(
            {StepRows(n, steps, first, count, tape.stash), In(bias_),
             In(recurrent_) + first * s_.gates(), lengths == nullptr ? nullptr : lengths + first, t,
             Steps(tape.result() + layout_.first_column, s_.outputs(), first, t)},
            In(state_) + first * s_.hidden, next);
      });
    }
    ZeroFrom(steps, s_.hidden, s_.hidden, layout_.states.in(tape.kept));
    ZeroFrom(steps, s_.outputs(), s_.hidden, tape.result() + layout_.first_column);
    if (tape.next_states[kHiddenState] != nullptr) PutNextStates(tape);
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext& context, const WeightView& weights,
                             const Tape& tape) {
    recurrent_backward_.Pack(RecurrentMatrix(context, weights), In(packed_));
    if (!s_.is_carried) Fill(s_.hidden, In(zeros_));
    Fill(s_.samples * s_.hidden, In(state_gradients_));
    Fill(s_.samples * s_.hidden, In(cell_gradients_));
    Fill(s_.samples * s_.gates(), In(sample_sums_));
    Number* const gradients = layout_.gate_gradients.in(tape.weight_stash);
    const int64_t steps = *steps_.in(tape.stash);
    for (int64_t n = steps - 1; n >= 0; --n) {
      const int64_t t = StepAt(n, steps);
      ForSamples([&](int64_t first, int64_t count) {
        cpu_->kernels.of<Number>().lstm_gradient(
            {StepRows(n, steps, first, count, tape.stash),
             Steps(tape.gradient() + layout_.first_column, s_.outputs(), first, t),
             In(state_gradients_) + first * s_.hidden, In(cell_gradients_) + first * s_.hidden,
             In(sample_sums_) + first * s_.gates()},
            In(step_gradients_) + first * s_.gates(), Steps(gradients, s_.gates(), first, t));
      });
      if (n > 0) {
        recurrent_backward_.Run(In(step_gradients_), In(packed_), In(state_gradients_));
      }
    }
    ZeroFrom(steps, s_.gates(), s_.gates(), gradients);
    cpu_->kernels.column_sums(s_.samples, s_.gates(), In(sample_sums_),
                              layout_.bias_sums.in(tape.weight_stash));
    if (tape.grad_input() != nullptr) {
      input_products_.BackwardInput(weights, gradients, tape.grad_input());
    }
    return absl::OkStatus();
  }

  absl::Status BackwardWeight(const PassContext& context, const GradientView& gradients,
                              const Number* input, const Tape& tape) {
    const Number* const of_gates = layout_.gate_gradients.in(tape.weight_stash);
    input_products_.BackwardWeight(gradients, input, of_gates);
    float* const recurrent = gradients.parameter(layout_.IndexOf(kRecurrentMatrix));
    if (MaskOf(context, 0)) {
      recurrent_weight_.Run(of_gates, layout_.states.in(tape.kept), In(masked_));
      cpu_->threads.ForBlocks(s_.gates(), kBlockRows, [&](int64_t first, int64_t count, int64_t) {
        float* const rows = In(masked_) + first * s_.hidden;
        cpu_->kernels.mask_rows(count, s_.hidden, rows, OrNull(MaskOf(context, first)), rows);
        cpu_->kernels.add_into(count * s_.hidden, rows, recurrent + first * s_.hidden);
      });
    } else {
      recurrent_weight_added_.Run(of_gates, layout_.states.in(tape.kept), recurrent);
    }
    for (const Parameter bias : {kInputBias, kRecurrentBias}) {
      cpu_->kernels.add_into(s_.gates(), layout_.bias_sums.in(tape.weight_stash),
                             gradients.parameter(layout_.IndexOf(bias)));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr bool kFloat = std::is_same_v<Number, float>;

  Direction(CpuContext& context, const Sizes& sizes, int64_t number, TapeLayout& layout)
      : cpu_(&context),
        s_(sizes),
        layout_(sizes, number, layout),
        steps_(layout.stash.Add<int64_t>(1)) {}

  absl::Status MakeProducts(bool adds_to_input) {
    const auto type = kFloat ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
    LinearShape input = {s_.rows(), ChunkOf(s_.rows()), s_.inputs, s_.gates()};
    input.outputs_first = true;
    input.adds_to_input = adds_to_input;
    PENSTOCK_ASSIGN_OR_RETURN(input_products_,
                              Linear<Number>::Create(*cpu_, input, layout_.IndexOf(kInputMatrix)));
    ProductShape forward = {s_.samples, s_.gates(), s_.hidden};
    forward.transposed_right = true;
    PENSTOCK_ASSIGN_OR_RETURN(recurrent_forward_, PackedProduct::Create(*cpu_, forward, type));
    const ProductShape backward = {s_.samples, s_.hidden, s_.gates()};
    PENSTOCK_ASSIGN_OR_RETURN(recurrent_backward_, PackedProduct::Create(*cpu_, backward, type));
    ProductShape weight = {s_.gates(), s_.hidden, s_.rows()};
    weight.transposed_left = true;
    if (s_.weight_drop.active()) {
      PENSTOCK_ASSIGN_OR_RETURN(recurrent_weight_, MatrixProduct::Create(*cpu_, weight, type));
    }
    weight.accumulate = true;
    PENSTOCK_ASSIGN_OR_RETURN(recurrent_weight_added_, MatrixProduct::Create(*cpu_, weight, type));
    return absl::OkStatus();
  }

  // What no pass leaves to another: the directions' scratch memory is the same. In bytes.
  int64_t PlaceScratch() {
    BlockLayout scratch;
    packed_ = scratch.Add<char>(
        std::max(recurrent_forward_.packed_bytes(), recurrent_backward_.packed_bytes()));
    masked_ = scratch.Add<float>(s_.weight_drop.active() ? s_.gates() * s_.hidden : 0);
    masked_numbers_ =
        scratch.Add<Number>(s_.weight_drop.active() && !kFloat ? s_.gates() * s_.hidden : 0);
    zeros_ = scratch.Add<float>(s_.hidden);
    BlockLayout forward = scratch;
    bias_ = forward.Add<float>(s_.gates());
    state_ = forward.Add<Number>(s_.samples * s_.hidden);
    recurrent_ = forward.Add<float>(s_.samples * s_.gates());
    BlockLayout backward = scratch;
    step_gradients_ = backward.Add<Number>(s_.samples * s_.gates());
    state_gradients_ = backward.Add<float>(s_.samples * s_.hidden);
    cell_gradients_ = backward.Add<float>(s_.samples * s_.hidden);
    sample_sums_ = backward.Add<float>(s_.samples * s_.gates());
    return std::max(forward.size_bytes(), backward.size_bytes());
  }

  // Those that a pass goes through: to the end of the longest sample, and at least one.
  int64_t StepsOf(const int32_t* lengths) const {
    if (lengths == nullptr) return s_.time;
    return std::max<int64_t>(*std::max_element(lengths, lengths + s_.samples), 1);
  }
  // The time step that is the n-th of `steps` to be read.
  int64_t StepAt(int64_t n, int64_t steps) const { return layout_.is_reverse ? steps - 1 - n : n; }
  template <typename T>
  T* In(const Place<T>& place) const {
    return place.in(cpu_->layer_scratch.data());
  }
  void Fill(int64_t count, float* values) const { cpu_->kernels.fill(count, 0.0f, values); }

  template <typename Body>
  void ForSamples(Body body) const {
    cpu_->threads.ForBlocks(s_.samples, kStepRows,
                            [&](int64_t first, int64_t count, int64_t) { body(first, count); });
  }

  // Step t of samples from `first` on, in [samples, time, width].
  template <typename T>
  Strided<T> Steps(T* sequences, int64_t width, int64_t first, int64_t t) const {
    return {sequences + (first * s_.time + t) * width, s_.time * width};
  }

  // Zeros in the first `columns` of [samples, time, width], from time step `step` on.
  template <typename T>
  void ZeroFrom(int64_t step, int64_t width, int64_t columns, T* sequences) const {
    for (int64_t t = step; t < s_.time; ++t) {
      const Strided<T> rows = Steps(sequences, width, 0, t);
      for (int64_t sample = 0; sample < s_.samples; ++sample) {
        std::fill_n(rows.row(sample), columns, T{0});
      }
    }
  }

  LstmStepRows StepRows(int64_t n, int64_t steps, int64_t first, int64_t count, void* stash) const {
    const float* cells = layout_.cells.in(stash);
    return {
        .rows = count,
        .hidden = s_.hidden,
        .gates = Steps(layout_.gates.in(stash), s_.gates(), first, StepAt(n, steps)),
        .cells_before =
            n > 0 ? Steps(cells, s_.hidden, first, StepAt(n - 1, steps))
            : s_.is_carried
                ? Strided<const float>{layout_.first_cells.in(stash) + first * s_.hidden, s_.hidden}
                : Strided<const float>{In(zeros_), 0},
        .cells = Steps(layout_.cells.in(stash), s_.hidden, first, StepAt(n, steps))};
  }

  // The state before the first step: what is carried, or zero.
  void Begin(int64_t steps, const Tape& tape) const {
    const Strided<Number> kept =
        Steps(layout_.states.in(tape.kept), s_.hidden, 0, StepAt(0, steps));
    if (!s_.is_carried) {
      Fill(s_.hidden, In(zeros_));
      Fill(s_.samples * s_.gates(), In(recurrent_));
      for (int64_t sample = 0; sample < s_.samples; ++sample) {
        std::fill_n(kept.row(sample), s_.hidden, Number{0});
      }
      return;
    }
    const int64_t count = s_.samples * s_.hidden;
    std::copy_n(tape.states[kCellState], count, layout_.first_cells.in(tape.stash));
    if constexpr (kFloat) {
      std::copy_n(tape.states[kHiddenState], count, In(state_));
    } else {
      cpu_->kernels.to_bf16(count, tape.states[kHiddenState], In(state_));
    }
    for (int64_t sample = 0; sample < s_.samples; ++sample) {
      std::copy_n(In(state_) + sample * s_.hidden, s_.hidden, kept.row(sample));
    }
  }

  // The output of the last step, and its cells.
  void PutNextStates(const Tape& tape) const {
    const int64_t last = StepAt(s_.time - 1, s_.time);
    const Strided<const float> outputs =
        Steps<const float>(tape.result() + layout_.first_column, s_.outputs(), 0, last);
    const Strided<const float> cells =
        Steps<const float>(layout_.cells.in(tape.stash), s_.hidden, 0, last);
    for (int64_t sample = 0; sample < s_.samples; ++sample) {
      const int64_t at = sample * s_.hidden;
      std::copy_n(outputs.row(sample), s_.hidden, tape.next_states[kHiddenState] + at);
      std::copy_n(cells.row(sample), s_.hidden, tape.next_states[kCellState] + at);
    }
  }

  void SumBiases(const WeightView& weights) const {
    float* const sum = In(bias_);
    cpu_->kernels.linear_combination(s_.gates(), 1.0f,
                                     weights.parameter(layout_.IndexOf(kInputBias)), 1.0f,
                                     weights.parameter(layout_.IndexOf(kRecurrentBias)), sum);
    std::for_each(sum + s_.hidden, sum + 2 * s_.hidden,
                  [this](float& bias) { bias += s_.forget_bias; });
  }

  // Of rows of the recurrent matrix from `first` on. All directions' matrices lie one below the other in a mask that is
  // that of the microbatch's first sample.
  std::optional<DropoutRows> MaskOf(const PassContext& context, int64_t first) const {
    return RowsOf(s_.weight_drop, context, layout_.first_mask_row + first);
  }

  const Number* RecurrentMatrix(const PassContext& context, const WeightView& weights) const {
    const int parameter = layout_.IndexOf(kRecurrentMatrix);
    if (!MaskOf(context, 0)) {
      if constexpr (kFloat) {
        return weights.parameter(parameter);
      } else {
        return weights.bf16_parameter(parameter);
      }
    }
    cpu_->threads.ForBlocks(s_.gates(), kBlockRows, [&](int64_t first, int64_t count, int64_t) {
      const int64_t at = first * s_.hidden;
      cpu_->kernels.mask_rows(count, s_.hidden, weights.parameter(parameter) + at,
                              OrNull(MaskOf(context, first)), In(masked_) + at);
      if constexpr (!kFloat) {
        cpu_->kernels.to_bf16(count * s_.hidden, In(masked_) + at, In(masked_numbers_) + at);
      }
    });
    if constexpr (kFloat) {
      return In(masked_);
    } else {
      return In(masked_numbers_);
    }
  }

  CpuContext* cpu_;
  Sizes s_;
  DirectionLayout<Number> layout_;
  Place<int64_t> steps_;  // stash: that F went through
  Linear<Number> input_products_;
  PackedProduct recurrent_forward_, recurrent_backward_;
  MatrixProduct recurrent_weight_, recurrent_weight_added_;
  // Scratch:
  Place<char> packed_;  // the recurrent matrix
  Place<float> masked_;
  Place<Number> masked_numbers_;
  Place<float> zeros_;  // [hidden]
  // Scratch of F, of one step:
  Place<float> bias_, recurrent_;
  Place<Number> state_;
  // Scratch of I, of one step:
  Place<Number> step_gradients_;
  Place<float> state_gradients_, cell_gradients_;
  Place<float> sample_sums_;  // of the biases' gradient
};

}  // namespace
}  // namespace lstm

MadeKernels MakeLstm(CpuContext& context, const KernelSpec& spec) {
  using penstock::lstm::LstmKernels;
  return spec.bf16 ? LstmKernels<lstm::Direction<Bf16>>::Create(context, spec)
                   : LstmKernels<lstm::Direction<float>>::Create(context, spec);
}

}  // namespace penstock::cpu
