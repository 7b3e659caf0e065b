// Shared code of the elementwise optimizer steps (inline.h). A step is a plain struct with the numbers of one update, and a
// function of one weight, its gradient and its state. `Math` has Sqrt.
#pragma once

#include "compute/elementwise/inline.h"

namespace penstock {

// A step that keeps means of the gradients and of their squares, and goes `Direction` along the latter's root.
template <typename Math, typename Step, typename Number>
PENSTOCK_ELEMENTWISE Number StepByMoments(const Step& k, Number w, Number g, Number* state) {
  const Number m = state[0] * k.beta1 + g * k.rest1;
  const Number v = state[1] * k.beta2 + g * g * k.rest2;
  state[0] = m;
  state[1] = v;
  return w * k.keep - k.Direction(g, m) / (Math::Sqrt(v) * k.root_scale + k.epsilon);
}

}  // namespace penstock
