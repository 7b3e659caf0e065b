// AffineLayout: what passes of a map with a bias leave for one another on every back-end, be it linear or a convolution.
//
// Its products read the input and the gradient of the output. If Number is float, these are the values themselves, in F or
// I and again in W; else F keeps a rounded copy of the input and I one of the gradient, which is all that W reads. I sums
// the gradient of the bias; on a GPU W may do that, of the rounded copy.
//
// Plain values.
#pragma once

#include <cstdint>
#include <type_traits>

#include "compute/op_kernels.h"
#include "compute/tape_layout.h"

namespace penstock {

template <typename Number>
class AffineLayout {
 public:
  struct Sizes {
    int64_t input_elements;
    int64_t rows, outputs;  // of the output
    bool has_bias;
  };

  explicit AffineLayout(const Sizes& sizes)
      : sizes_(sizes),
        input_(0, sizes.input_elements, layout_),
        gradient_(layout_.weight_stash.Add<Number>(kIsItself ? 0 : gradient_elements())),
        bias_sums_(layout_.weight_stash.Add<float>(sizes.has_bias ? sizes.outputs : 0)) {}

  TapeNeeds needs() const {
    TapeNeeds needs = layout_.needs();
    needs.inputs_for_weight = input_.for_weight();
    needs.grad_output_for_weight = kIsItself;
    return needs;
  }

  const Sizes& sizes() const { return sizes_; }
  int64_t gradient_elements() const { return sizes_.rows * sizes_.outputs; }
  const ProductInput<Number>& input() const { return input_; }
  const Number* Gradient(const Tape& tape) const {
    if constexpr (kIsItself) {
      return tape.gradient();
    } else {
      return GradientCopy(tape);
    }
  }
  // Where I puts the copy. REQUIRES: Number is not float.
  Number* GradientCopy(const Tape& tape) const {
    static_assert(!kIsItself);
    return gradient_.in(tape.weight_stash);
  }
  // REQUIRES: there is a bias.
  float* BiasSums(const Tape& tape) const { return bias_sums_.in(tape.weight_stash); }

 private:
  static constexpr bool kIsItself = std::is_same_v<Number, float>;

  Sizes sizes_;
  TapeLayout layout_;  // comes before what is placed in it
  ProductInput<Number> input_;
  Place<Number> gradient_;  // weight stash, unless float
  Place<float> bias_sums_;  // weight stash
};

}  // namespace penstock
