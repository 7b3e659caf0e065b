// Which function of elements a node applies, and what its passes read, on every back-end.
#pragma once

#include "compute/elementwise/activation.h"
#include "compute/op_kernels.h"

namespace penstock::activation {

inline Activation GeluOf(const KernelSpec& spec) {
  const bool is_tanh = spec.attributes().word("approximate") == "tanh";
  return is_tanh ? Activation::kGeluTanh : Activation::kGeluErf;
}

// I reads the output where that tells the slope; else the input.
inline TapeNeeds NeedsOf(Activation activation) {
  TapeNeeds needs;
  needs.output_for_input = HasSlopeOfOutput(activation);
  needs.inputs_for_input = needs.output_for_input ? kNoInputs : kAllInputs;
  return needs;
}
inline const float* ReadByBackward(Activation activation, const Tape& tape) {
  return HasSlopeOfOutput(activation) ? tape.result() : tape.input();
}

}  // namespace penstock::activation
