// Optimizer steps: one pass that reads weights, gradients and state and writes the next weights, their
// bf16 mirror and the state.
#include "compute/cpu/kernels/isa.h"
#include "compute/cpu/kernels/vector_math.h"

namespace penstock::PENSTOCK_ISA {

namespace {

template <bool kHasState, typename Step>
PENSTOCK_INLINE void StepElements(const Step& step, float gradient_scale, int64_t count,
                                  const float* weights, const float* gradients, float* const* state,
                                  float* next, Bf16* mirror) {
  float* arrays[Step::kStates];
  for (int a = 0; a < Step::kStates; ++a) arrays[a] = state[a];
  ForVectors(count, [&](int64_t i, auto lanes) {
    Floats now[Step::kStates];
    for (int a = 0; kHasState && a < Step::kStates; ++a) now[a] = Load(arrays[a] + i, lanes);
    const Floats g = Load(gradients + i, lanes) * gradient_scale;
    const Floats w =
        step.template Next<VectorMath>(Load(weights + i, lanes), g, kHasState ? now : nullptr);
    for (int a = 0; kHasState && a < Step::kStates; ++a) Store(now[a], arrays[a] + i, lanes);
    Store(w, next + i, lanes);
    if (mirror != nullptr) {
      Store(w, mirror + i, lanes);
    }
  });
}

template <typename Step>
void Elementwise(const Step& step, float gradient_scale, int64_t count, const float* weights,
                 const float* gradients, float* const* state, float* next, Bf16* mirror) {
  if constexpr (Step::kMayLackState) {
    if (state[0] == nullptr) {
      return StepElements<false>(step, gradient_scale, count, weights, gradients, state, next,
                                 mirror);
    }
  }
  StepElements<true>(step, gradient_scale, count, weights, gradients, state, next, mirror);
}

template <typename... Configs>
constexpr ElementwiseKernels<Configs...> AllOf(ElementwiseKernels<Configs...>) {
  return {{Elementwise<typename Configs::Step>}...};
}

}  // namespace

constinit const OfElementwise<ElementwiseKernels> kElementwise =
    AllOf(OfElementwise<ElementwiseKernels>());

void NesterovDirection(float momentum, float gradient_scale, int64_t count, const float* gradients,
                       float* velocity, float* direction) {
  ForVectors(count, [&](int64_t i, auto lanes) {
    const Floats g = Load(gradients + i, lanes) * gradient_scale;
    const Floats v = Load(velocity + i, lanes) * momentum + g;
    Store(v, velocity + i, lanes);
    Store(g + v * momentum, direction + i, lanes);
  });
}

}  // namespace penstock::PENSTOCK_ISA
