// NormGradients: the gradients of a norm's gain and bias, its parameters 0 and 1. I writes them to the weight stash, W adds
// them.
//
// Thread safety: none; the thread that owns the back-end.
#pragma once

#include "compute/block_layout.h"
#include "compute/cuda/context.h"
#include "compute/cuda/kernels/kernels.h"

namespace penstock::cuda {

class NormGradients {
 public:
  NormGradients() = default;
  NormGradients(int64_t width, BlockLayout& weight_stash)
      : width_(width),
        gain_(weight_stash.Add<float>(width)),
        bias_(weight_stash.Add<float>(width)) {}

  float* gain(const Tape& tape) const { return gain_.in(tape.weight_stash); }
  float* bias(const Tape& tape) const { return bias_.in(tape.weight_stash); }

  void Add(const CudaContext& context, const GradientView& gradients, const Tape& tape) const {
    AddInto(context.stream(), width_, gain(tape), gradients.parameter(0));
    AddInto(context.stream(), width_, bias(tape), gradients.parameter(1));
  }

 private:
  int64_t width_ = 0;
  Place<float> gain_, bias_;  // weight stash [width]
};

}  // namespace penstock::cuda
