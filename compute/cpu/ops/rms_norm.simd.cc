// RMSNorm: Zhang and Sennrich, arXiv 1910.07467. Parameter: gain [width], whose gradient comes from I.
#include "compute/cpu/kernels/loops.h"

namespace penstock::cpu::rms_norm {

struct Rows {
  int64_t rows, width;
  const float* input;
  const float* gain;    // [width]
  float* inverse_root;  // [rows]: forward leaves it for gradient
};

struct Loops {
  // output = input / root of (mean square + epsilon) * gain, of each row.
  void (*forward)(const Rows&, float epsilon, float* output);
  // grad_input: null if it is not wanted. gain_sums [width] is written.
  void (*gradient)(const Rows&, const float* grad_output, float* grad_input, float* gain_sums);
};
PENSTOCK_DECLARE_LOOPS

}  // namespace penstock::cpu::rms_norm

#ifdef PENSTOCK_ISA
#include "compute/cpu/kernels/simd.h"

namespace penstock::cpu::rms_norm {
namespace {

void Forward(const Rows& a, float epsilon, float* output) {
  for (int64_t r = 0; r < a.rows; ++r) {
    const float* row = a.input + r * a.width;
    Floats squares = {};
    ForVectors(a.width, [&](int64_t c, auto lanes) {
      const Floats value = Load(row + c, lanes);
      squares += value * value;
    });
    const float mean = SumLanes(squares) / static_cast<float>(a.width);
    const float inverse = 1.0f / __builtin_sqrtf(mean + epsilon);
    a.inverse_root[r] = inverse;
    ForVectors(a.width, [&](int64_t c, auto lanes) {
      Store(Load(row + c, lanes) * inverse * Load(a.gain + c, lanes), output + r * a.width + c,
            lanes);
    });
  }
}

// With n the input over its root mean square and d = grad_output * gain:
//   grad_input = inverse_root * (d - n * mean(d * n)).
PENSTOCK_INLINE void GradientOfRow(const Rows& a, int64_t r, const float* grad, float* grad_input,
                                   float* gain_sums) {
  const float* row = a.input + r * a.width;
  const float inverse = a.inverse_root[r];
  Floats sum_dn = {};
  ForVectors(a.width, [&](int64_t c, auto lanes) {
    const Floats gn = Load(grad + c, lanes) * (Load(row + c, lanes) * inverse);
    sum_dn += gn * Load(a.gain + c, lanes);
    Store(Load(gain_sums + c, lanes) + gn, gain_sums + c, lanes);
  });
  if (grad_input == nullptr) return;
  const float mean_dn = SumLanes(sum_dn) / static_cast<float>(a.width);
  ForVectors(a.width, [&](int64_t c, auto lanes) {
    const Floats n = Load(row + c, lanes) * inverse;
    const Floats d = Load(grad + c, lanes) * Load(a.gain + c, lanes);
    Store((d - n * mean_dn) * inverse, grad_input + c, lanes);
  });
}

void Gradient(const Rows& a, const float* grad_output, float* grad_input, float* gain_sums) {
  ForVectors(a.width, [&](int64_t c, auto lanes) { Store(Floats{}, gain_sums + c, lanes); });
  for (int64_t r = 0; r < a.rows; ++r) {
    const int64_t at = r * a.width;
    GradientOfRow(a, r, grad_output + at, grad_input == nullptr ? nullptr : grad_input + at,
                  gain_sums);
  }
}

}  // namespace

const Loops PENSTOCK_ISA::kLoops = {.forward = Forward, .gradient = Gradient};

}  // namespace penstock::cpu::rms_norm

#else
#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"

namespace penstock::cpu {
namespace rms_norm {
namespace {

class CpuRmsNorm : public OpKernels {
 public:
  CpuRmsNorm(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        loops_(LoopsOf(context.kernels)),
        width_(spec.width()),
        rows_(spec.rows()),
        epsilon_(static_cast<float>(spec.attributes().number("epsilon"))) {
    BlockLayout stash, weight_stash;
    inverse_root_ = stash.Add<float>(rows_);
    gain_sums_ = weight_stash.Add<float>(width_);
    needs_ = {.stash_bytes = stash.size_bytes(),
              .weight_stash_bytes = weight_stash.size_bytes(),
              .inputs_for_input = kAllInputs};
  }

  // For the sums of each block, [blocks, width].
  absl::Status ReserveScratch() {
    return cpu_.layer_scratch.Reserve(BlocksOf(rows_) * width_ *
                                      static_cast<int64_t>(sizeof(float)));
  }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    cpu_.threads.ForBlocks(rows_, kBlockRows, [&](int64_t first, int64_t count, int64_t) {
      loops_.forward(RowsOf(weights, tape, first, count), epsilon_, tape.result() + first * width_);
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    auto* block_sums = static_cast<float*>(cpu_.layer_scratch.data());
    float* const grad_input = tape.grad_input();
    cpu_.threads.ForBlocks(rows_, kBlockRows, [&](int64_t first, int64_t count, int64_t block) {
      const int64_t at = first * width_;
      loops_.gradient(RowsOf(weights, tape, first, count), tape.gradient() + at,
                      grad_input == nullptr ? nullptr : grad_input + at,
                      block_sums + block * width_);
    });
    float* sums = gain_sums_.in(tape.weight_stash);
    cpu_.kernels.fill(width_, 0.0f, sums);
    AddBlockSums(cpu_, rows_, width_, block_sums, sums);
    return absl::OkStatus();
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    cpu_.kernels.add_into(width_, gain_sums_.in(tape.weight_stash), gradients.parameter(0));
    return absl::OkStatus();
  }

 private:
  Rows RowsOf(const WeightView& weights, const Tape& tape, int64_t first, int64_t count) const {
    return {count, width_, tape.input() + first * width_, weights.parameter(0),
            inverse_root_.in(tape.stash) + first};
  }

  CpuContext& cpu_;
  const Loops& loops_;
  const int64_t width_, rows_;
  const float epsilon_;
  TapeNeeds needs_;
  Place<float> inverse_root_;  // stash [rows]
  Place<float> gain_sums_;     // weight stash [width]
};

}  // namespace
}  // namespace rms_norm

MadeKernels MakeRmsNorm(CpuContext& context, const KernelSpec& spec) {
  auto norm = std::make_unique<rms_norm::CpuRmsNorm>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(norm->ReserveScratch());
  return norm;
}

}  // namespace penstock::cpu
#endif
