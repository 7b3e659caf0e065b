// The numbers of one update that a kernel needs, computed once on the host: plain structs, so that kernels
// compiled for any device or instruction set can include them.
#pragma once

namespace penstock {

struct AdamWConstants {
  float beta1, beta2;
  float rest1, rest2;  // 1 - beta, rounded once
  float keep;          // 1 - rate * weight decay, of parameters that decay
  float rate;          // of the update, first bias correction included
  float root_scale;    // 1 / sqrt(second bias correction)
  float epsilon;
};

struct NAdamWConstants {
  float beta1, beta2;
  float rest1, rest2;   // 1 - beta, rounded once
  float keep;           // 1 - rate * weight decay, of parameters that decay
  float mean_rate;      // of the mean gradient: the rate, its factor of the next update, bias correction
  float gradient_rate;  // of the gradient itself: the rate, its discount, bias correction
  float root_scale;     // 1 / sqrt(second bias correction)
  float epsilon;
};

struct SgdConstants {
  float momentum;
  float weight_decay;  // of parameters that decay
  float rate;
};

}  // namespace penstock
