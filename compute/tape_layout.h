// TapeLayout: places what the passes of a node leave for one another in the three blocks of a microbatch (op_kernels.h).
// ProductInput: an input of a node as its matrix products read it.
//
// Plain values, the same for every back-end.
#pragma once

#include <cstdint>
#include <type_traits>

#include "compute/block_layout.h"
#include "compute/op_kernels.h"

namespace penstock {

struct TapeLayout {
  BlockLayout stash, kept, weight_stash;

  // Blocks of these sizes. What passes read of the values of neighbours is for the caller to add.
  TapeNeeds needs() const {
    TapeNeeds needs;
    needs.stash_bytes = stash.size_bytes();
    needs.kept_bytes = kept.size_bytes();
    needs.weight_stash_bytes = weight_stash.size_bytes();
    return needs;
  }
};

// Number: what products read. If it is float they read the input itself, in F and again in W; else a copy that F rounds
// and keeps for W, which then needs the input no more.
template <typename Number>
class ProductInput {
 public:
  ProductInput() = default;
  // `elements`: of input number `input` in a microbatch.
  ProductInput(int input, int64_t elements, TapeLayout& layout)
      : input_(input),
        elements_(elements),
        copy_(layout.kept.Add<Number>(kIsItself ? 0 : elements)) {}

  // The input, if W reads it.
  InputSet for_weight() const { return kIsItself ? InputSet{1} << input_ : kNoInputs; }

  const Number* In(const Tape& tape) const {
    if constexpr (kIsItself) {
      return tape.input(input_);
    } else {
      return copy_.in(tape.kept);
    }
  }

  // Calls round(elements, input, copy) in F, before the products, if there is a copy to make.
  template <typename Round>
  void Copy(const Tape& tape, Round round) const {
    if constexpr (!kIsItself) round(elements_, tape.input(input_), copy_.in(tape.kept));
  }

 private:
  static constexpr bool kIsItself = std::is_same_v<Number, float>;

  int input_ = 0;
  int64_t elements_ = 0;
  Place<Number> copy_;  // kept
};

}  // namespace penstock
