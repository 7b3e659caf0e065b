// What the kernels of an LSTM are on every back-end: sizes, parameters, what its passes leave for one another, and how those
// of a node are made of those of its directions.
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "compute/dropout.h"
#include "compute/op_kernels.h"
#include "compute/tape_layout.h"

namespace penstock::lstm {

// Buffers, if they are carried.
enum State : int { kHiddenState, kCellState };
// Those of a direction; directions come one after the other.
enum Parameter : int { kInputMatrix, kRecurrentMatrix, kInputBias, kRecurrentBias, kParameters };
// Inputs of the node.
enum Input : int { kSequences, kLengths };

struct Sizes {
  explicit Sizes(const KernelSpec& spec)
      : samples(spec.samples),
        time(spec.inputs[kSequences].dims[0]),
        inputs(spec.width(kSequences)),
        hidden(spec.attributes().integer("hidden")),
        directions(spec.attributes().flag("bidirectional") ? 2 : 1),
        forget_bias(static_cast<float>(spec.attributes().number("forget_bias"))),
        is_reverse(spec.attributes().flag("reverse")),
        is_carried(spec.attributes().flag("carried")),
        has_lengths(spec.inputs.size() > kLengths),
        weight_drop(spec.attributes().number("weight_drop"), directions * gates()) {}

  int64_t samples, time, inputs, hidden;
  int64_t directions;
  float forget_bias;
  bool is_reverse;  // of the first direction; the second one always is
  bool is_carried;
  bool has_lengths;
  // Of the recurrent matrices of all directions, one below the other. The mask is that of the microbatch's first sample.
  Dropout weight_drop;

  int64_t gates() const { return 4 * hidden; }
  int64_t rows() const { return samples * time; }
  int64_t outputs() const { return directions * hidden; }
};

// A direction: which parameters and columns are its own, and what its passes leave for one another. That is [samples,
// time, ...], where it does not say otherwise.
template <typename Number>
struct DirectionLayout {
  DirectionLayout(const Sizes& s, int64_t number, TapeLayout& layout)
      : is_reverse(s.is_reverse || number > 0),
        first_parameter(static_cast<int>(number) * kParameters),
        first_column(number * s.hidden),
        first_mask_row(number * s.gates()),
        gates(layout.stash.Add<float>(s.rows() * s.gates())),
        cells(layout.stash.Add<float>(s.rows() * s.hidden)),
        first_cells(layout.stash.Add<float>(s.is_carried ? s.samples * s.hidden : 0)),
        states(layout.kept.Add<Number>(s.rows() * s.hidden)),
        gate_gradients(layout.weight_stash.Add<Number>(s.rows() * s.gates())),
        bias_sums(layout.weight_stash.Add<float>(s.gates())) {}

  int IndexOf(Parameter parameter) const { return first_parameter + parameter; }

  bool is_reverse;
  int first_parameter;
  int64_t first_column;    // of the output
  int64_t first_mask_row;  // of its recurrent matrix

  Place<float> gates, cells;     // stash: how open the gates are, and what the cells hold
  Place<float> first_cells;      // stash [samples, hidden], if they are carried
  Place<Number> states;          // kept: those that each step reads
  Place<Number> gate_gradients;  // weight stash: of the gates' sums
  Place<float> bias_sums;        // weight stash [gates]: the gradient of both biases
};

// The kernels of a node. Direction computes one of its directions, on a back-end with a `Context`:
//   static absl::StatusOr<Direction> Create(Context&, const Sizes&, int64_t number, TapeLayout&), which places what its
//       passes leave in the layout;
//   Forward, BackwardInput and BackwardWeight, as those of OpKernels but for `input`, which the matrix products read;
//   static Round(Context&, int64_t count, const float* from, to), which makes the copy for products that read bf16.
template <typename Direction>
class LstmKernels : public OpKernels {
 public:
  using Context = typename Direction::Context;
  using Number = typename Direction::Number;

  static absl::StatusOr<std::unique_ptr<OpKernels>> Create(Context& context,
                                                           const KernelSpec& spec) {
    std::unique_ptr<LstmKernels> lstm(new LstmKernels(context, spec));
    PENSTOCK_RETURN_IF_ERROR(lstm->MakeDirections());
    return std::unique_ptr<OpKernels>(std::move(lstm));
  }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext& context, const WeightView& weights,
                       const Tape& tape) override {
    input_.Copy(tape, [this](int64_t count, const float* from, auto* to) {
      Direction::Round(context_, count, from, to);
    });
    const int32_t* const lengths = s_.has_lengths ? tape.input<int32_t>(kLengths) : nullptr;
    for (Direction& direction : directions_) {
      PENSTOCK_RETURN_IF_ERROR(direction.Forward(context, weights, input_.In(tape), lengths, tape));
    }
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext& context, const WeightView& weights,
                             const Tape& tape) override {
    for (Direction& direction : directions_) {
      PENSTOCK_RETURN_IF_ERROR(direction.BackwardInput(context, weights, tape));
    }
    return absl::OkStatus();
  }

  absl::Status BackwardWeight(const PassContext& context, const GradientView& gradients,
                              const Tape& tape) override {
    for (Direction& direction : directions_) {
      PENSTOCK_RETURN_IF_ERROR(direction.BackwardWeight(context, gradients, input_.In(tape), tape));
    }
    return absl::OkStatus();
  }

 private:
  LstmKernels(Context& context, const KernelSpec& spec) : context_(context), s_(spec) {}

  absl::Status MakeDirections() {
    TapeLayout layout;
    for (int64_t number = 0; number < s_.directions; ++number) {
      PENSTOCK_ASSIGN_OR_RETURN(Direction direction,
                                Direction::Create(context_, s_, number, layout));
      directions_.push_back(std::move(direction));
    }
    input_ = ProductInput<Number>(kSequences, s_.rows() * s_.inputs, layout);
    needs_ = layout.needs();
    needs_.inputs_for_weight = input_.for_weight();
    return absl::OkStatus();
  }

  Context& context_;
  const Sizes s_;
  std::vector<Direction> directions_;
  ProductInput<Number> input_;
  TapeNeeds needs_;
};

}  // namespace penstock::lstm
