// NormKernels: what the kernels of a norm with a gain and a bias share on a GPU. Its parameters 0 and 1 are these, of the
// input's width. F leaves means and inverse deviations for I, which leaves the gradients of gain and bias for W.
//
// Thread safety: none; the thread that owns the back-end.
#pragma once

#include "base/status.h"
#include "compute/cuda/context.h"
#include "compute/cuda/kernels/kernels.h"
#include "compute/cuda/ops.h"
#include "compute/tape_layout.h"

namespace penstock::cuda {

class NormKernels : public OpKernels {
 public:
  TapeNeeds tape_needs() const final { return needs_; }
  int64_t scratch_bytes() const { return scratch_bytes_; }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) final {
    AddInto(cuda_.stream(), width_, gain_sums(tape), gradients.parameter(kGain));
    AddInto(cuda_.stream(), width_, bias_sums(tape), gradients.parameter(kBias));
    return cuda_.Check("backward of a norm's weights");
  }

 protected:
  enum Parameter : int { kGain, kBias };

  // `statistics`: how many means there are. `workspace_floats`: of the kernels of I, and of F if they want some.
  NormKernels(CudaContext& context, const KernelSpec& spec, int64_t statistics,
              int64_t workspace_floats)
      : cuda_(context),
        width_(spec.width()),
        epsilon_(static_cast<float>(spec.attributes().number("epsilon"))),
        scratch_bytes_(workspace_floats * static_cast<int64_t>(sizeof(float))) {
    TapeLayout layout;
    mean_ = layout.stash.Add<float>(statistics);
    inverse_deviation_ = layout.stash.Add<float>(statistics);
    gain_sums_ = layout.weight_stash.Add<float>(width_);
    bias_sums_ = layout.weight_stash.Add<float>(width_);
    needs_ = layout.needs();
    needs_.inputs_for_input = kAllInputs;
  }

  float* mean(const Tape& tape) const { return mean_.in(tape.stash); }
  float* inverse_deviation(const Tape& tape) const { return inverse_deviation_.in(tape.stash); }
  float* gain_sums(const Tape& tape) const { return gain_sums_.in(tape.weight_stash); }
  float* bias_sums(const Tape& tape) const { return bias_sums_.in(tape.weight_stash); }
  float* workspace() const { return static_cast<float*>(cuda_.layer_scratch().data()); }

  CudaContext& cuda_;
  const int64_t width_;
  const float epsilon_;

 private:
  const int64_t scratch_bytes_;
  TapeNeeds needs_;
  Place<float> mean_, inverse_deviation_;  // stash [statistics]
  Place<float> gain_sums_, bias_sums_;     // weight stash [width]
};

template <typename Norm>
MadeKernels MakeNorm(CudaContext& context, const KernelSpec& spec) {
  auto kernels = std::make_unique<Norm>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch().Reserve(kernels->scratch_bytes()));
  return kernels;
}

}  // namespace penstock::cuda
