// Optimizer steps: one pass that reads weights, gradients and state and writes the next weights, their
// bf16 mirror and the state.
#include "compute/cpu/kernels/isa.h"
#include "compute/cpu/kernels/simd.h"

namespace penstock::PENSTOCK_ISA {

namespace {

// How far each of them goes along the root of the squared mean.
Floats Numerator(const AdamWConstants& k, const Floats& /*g*/, const Floats& m) {
  return m * k.rate;
}
Floats Numerator(const NAdamWConstants& k, const Floats& g, const Floats& m) {
  return m * k.mean_rate + g * k.gradient_rate;
}

template <typename Constants>
void StepByMoments(const Constants& k, float gradient_scale, int64_t count, const float* weights,
                   const float* gradients, float* mean, float* square, float* next, Bf16* mirror) {
  ForVectors(count, [&](int64_t i, auto lanes) {
    const Floats g = Load(gradients + i, lanes) * gradient_scale;
    const Floats m = Load(mean + i, lanes) * k.beta1 + g * k.rest1;
    const Floats v = Load(square + i, lanes) * k.beta2 + g * g * k.rest2;
    const Floats w = Load(weights + i, lanes) * k.keep -
                     Numerator(k, g, m) / (Sqrt(v) * k.root_scale + k.epsilon);
    Store(m, mean + i, lanes);
    Store(v, square + i, lanes);
    Store(w, next + i, lanes);
    if (mirror != nullptr) {
      Store(w, mirror + i, lanes);
    }
  });
}

}  // namespace

void AdamW(const AdamWConstants& k, float gradient_scale, int64_t count, const float* weights,
           const float* gradients, float* mean, float* square, float* next, Bf16* mirror) {
  StepByMoments(k, gradient_scale, count, weights, gradients, mean, square, next, mirror);
}

void NAdamW(const NAdamWConstants& k, float gradient_scale, int64_t count, const float* weights,
            const float* gradients, float* mean, float* square, float* next, Bf16* mirror) {
  StepByMoments(k, gradient_scale, count, weights, gradients, mean, square, next, mirror);
}

void Sgd(const SgdConstants& k, float gradient_scale, int64_t count, const float* weights,
         const float* gradients, float* velocity, float* next, Bf16* mirror) {
  ForVectors(count, [&](int64_t i, auto lanes) {
    Floats w = Load(weights + i, lanes);
    Floats g = Load(gradients + i, lanes) * gradient_scale + w * k.weight_decay;
    if (velocity != nullptr) {
      g += Load(velocity + i, lanes) * k.momentum;
      Store(g, velocity + i, lanes);
    }
    w -= g * k.rate;
    Store(w, next + i, lanes);
    if (mirror != nullptr) {
      Store(w, mirror + i, lanes);
    }
  });
}

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
