// Attention of some time steps over the keys and values that are kept. A head of one of them at a time: the scores of all steps
// that it sees, their softmax, and the mean of the values.
#include "compute/cpu/kernels/loops.h"

namespace penstock::cpu::cached_attention {

// One head of one time step of a sample.
struct Head {
  int64_t steps, size;
  int64_t stride;              // from step to step of keys and values
  float scale;                 // of the scores
  const float* query;          // [size]
  const float *keys, *values;  // of the first step that is seen
};

struct Loops {
  // scores [steps]: workspace. output [size] is written. REQUIRES: steps > 0.
  void (*attend)(const Head&, float* scores, float* output);
};
PENSTOCK_DECLARE_LOOPS

}  // namespace penstock::cpu::cached_attention

#ifdef PENSTOCK_ISA
#include "compute/cpu/kernels/softmax.h"

namespace penstock::cpu::cached_attention {
namespace {

void Attend(const Head& a, float* scores, float* output) {
  for (int64_t step = 0; step < a.steps; ++step) {
    const float* const key = a.keys + step * a.stride;
    Floats sum = {};
    ForVectors(a.size, [&](int64_t c, auto lanes) {
      sum += Load(a.query + c, lanes) * Load(key + c, lanes);
    });
    scores[step] = SumLanes(sum) * a.scale;
  }
  const float inverse = 1.0f / ExpRow(scores, a.steps, RowMax(scores, a.steps));
  for (int64_t step = 0; step < a.steps; ++step) scores[step] *= inverse;
  ForVectors(a.size, [&](int64_t c, auto lanes) {
    Floats sum = {};
    for (int64_t step = 0; step < a.steps; ++step) {
      sum += Load(a.values + step * a.stride + c, lanes) * scores[step];
    }
    Store(sum, output + c, lanes);
  });
}

}  // namespace

const Loops PENSTOCK_ISA::kLoops = {.attend = Attend};

}  // namespace penstock::cpu::cached_attention

#else
#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "compute/cpu/ops.h"

namespace penstock::cpu {
namespace cached_attention {
namespace {

class CpuCachedAttention : public OpKernels {
 public:
  CpuCachedAttention(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        loops_(LoopsOf(context.kernels)),
        samples_(spec.samples),
        queries_(spec.inputs[0].dims[0]),
        width_(spec.width()),
        kept_width_(spec.width(1)),
        heads_(spec.attributes().integer("heads")),
        size_(width_ / heads_),
        group_(heads_ / spec.attributes().integer("key_value_heads")),
        context_steps_(spec.attributes().integer("context")),
        window_(spec.attributes().integer("window")) {}

  int64_t scratch_bytes() const {
    return cpu_.threads.count() * context_steps_ * static_cast<int64_t>(sizeof(float));
  }

  TapeNeeds tape_needs() const override { return {}; }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    if (tape.next_states[kKeys] == nullptr) {
      return absl::FailedPreconditionError(
          "keeps keys and values, but no memory is there for them");
    }
    for (int64_t query = 0; query < samples_ * queries_; ++query) {
      for (const int kept : {kKeys, kValues}) {
        const float* const row = tape.input(1 + kept) + query * kept_width_;
        std::copy_n(row, kept_width_, RowOf(tape, kept, query / queries_, StepOf(tape, query)));
      }
    }
    auto* const scores = static_cast<float*>(cpu_.layer_scratch.data());
    cpu_.threads.For(samples_ * queries_ * heads_, [&](int64_t task, int thread) {
      const int64_t query = task / heads_;
      const int64_t head = task % heads_;
      const int64_t at = query * width_ + head * size_;
      loops_.attend(HeadOf(tape, query, head), scores + thread * context_steps_,
                    tape.result() + at);
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape&) override {
    return absl::UnimplementedError("is for evaluation, and has no gradient");
  }

 private:
  enum Kept : int { kKeys, kValues };

  // `query`: of all samples' in a row.
  static int64_t StepOf(const Tape& tape, int64_t query) { return tape.input<int32_t>(3)[query]; }

  float* RowOf(const Tape& tape, int kept, int64_t sample, int64_t step) const {
    return tape.next_states[kept] + (sample * context_steps_ + step) * kept_width_;
  }

  Head HeadOf(const Tape& tape, int64_t query, int64_t head) const {
    const int64_t sample = query / queries_;
    const int64_t steps = StepOf(tape, query) + 1;
    const int64_t first = window_ > 0 ? std::max<int64_t>(0, steps - window_) : 0;
    const int64_t column = head / group_ * size_;
    return {.steps = steps - first,
            .size = size_,
            .stride = kept_width_,
            .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(size_))),
            .query = tape.input() + query * width_ + head * size_,
            .keys = RowOf(tape, kKeys, sample, first) + column,
            .values = RowOf(tape, kValues, sample, first) + column};
  }

  CpuContext& cpu_;
  const Loops& loops_;
  const int64_t samples_;
  const int64_t queries_;             // time steps of a sample that look back
  const int64_t width_, kept_width_;  // of queries, and of keys and values
  const int64_t heads_, size_;        // size_: of a head
  const int64_t group_;               // heads of queries that share one of keys
  const int64_t context_steps_, window_;
};

}  // namespace
}  // namespace cached_attention

MadeKernels MakeCachedAttention(CpuContext& context, const KernelSpec& spec) {
  auto op = std::make_unique<cached_attention::CpuCachedAttention>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(context.layer_scratch.Reserve(op->scratch_bytes()));
  return op;
}

}  // namespace penstock::cpu
#endif
