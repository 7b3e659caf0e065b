// Shared code of the elementwise optimizer steps. A step is a plain struct with the numbers of one update, and a
// function of one weight, its gradient and its state, which every back-end calls on its own kind of number: a float, or
// a vector of them. `Math` has Sqrt of it. C++17, for nvcc; nothing inline of the standard library, for the CPU's
// kernels, which are compiled once for each instruction set.
#pragma once

#ifdef __CUDACC__
#define PENSTOCK_STEP __device__ inline
#else
#define PENSTOCK_STEP inline __attribute__((always_inline))
#endif

namespace penstock {

// A step that keeps means of the gradients and of their squares, and goes `Direction` along the latter's root.
template <typename Math, typename Step, typename Number>
PENSTOCK_STEP Number StepByMoments(const Step& k, Number w, Number g, Number* state) {
  const Number m = state[0] * k.beta1 + g * k.rest1;
  const Number v = state[1] * k.beta2 + g * g * k.rest2;
  state[0] = m;
  state[1] = v;
  return w * k.keep - k.Direction(g, m) / (Math::Sqrt(v) * k.root_scale + k.epsilon);
}

}  // namespace penstock
