// Rotary positions: Su et al., arXiv 2104.09864. All heads of a row turn by the same angles, and the gradient turns back.
#include "compute/cpu/kernels/loops.h"

namespace penstock::cpu::rope {

// One row of heads, each of 2 pairs numbers.
struct Row {
  int64_t heads, pairs;
  const float* turns;  // [2 pairs]: cosines, then sines
  float direction;     // 1, or -1 to turn back
};

struct Loops {
  void (*turn)(const Row&, const float* from, float* to);
};
PENSTOCK_DECLARE_LOOPS

}  // namespace penstock::cpu::rope

#ifdef PENSTOCK_ISA
#include "compute/cpu/kernels/simd.h"

namespace penstock::cpu::rope {
namespace {

void Turn(const Row& a, const float* from, float* to) {
  for (int64_t head = 0; head < a.heads; ++head) {
    const int64_t at = head * 2 * a.pairs;
    ForVectors(a.pairs, [&](int64_t i, auto lanes) {
      const Floats cosine = Load(a.turns + i, lanes);
      const Floats sine = Load(a.turns + a.pairs + i, lanes) * a.direction;
      const Floats x = Load(from + at + i, lanes);
      const Floats y = Load(from + at + a.pairs + i, lanes);
      Store(x * cosine - y * sine, to + at + i, lanes);
      Store(y * cosine + x * sine, to + at + a.pairs + i, lanes);
    });
  }
}

}  // namespace

const Loops PENSTOCK_ISA::kLoops = {.turn = Turn};

}  // namespace penstock::cpu::rope

#else
#include <vector>

#include "base/status.h"
#include "compute/cpu/ops.h"
#include "compute/cpu/row_blocks.h"
#include "compute/ops/rope.h"

namespace penstock::cpu {
namespace rope {
namespace {

class CpuRope : public OpKernels {
 public:
  CpuRope(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        loops_(LoopsOf(context.kernels)),
        has_positions_(spec.inputs.size() > 1),
        rows_(spec.rows()),
        time_(spec.inputs[0].dims[0]),
        width_(spec.width()),
        frequencies_(penstock::rope::Frequencies(spec.attributes())) {
    if (has_positions_) return;
    turns_.resize(time_ * head_size());
    for (int64_t t = 0; t < time_; ++t) {
      penstock::rope::WriteTurns(frequencies_, t, turns_.data() + t * head_size());
    }
  }

  // For the turns of one row of each block of rows.
  absl::Status ReserveScratch() {
    if (!has_positions_) return absl::OkStatus();
    return cpu_.layer_scratch.Reserve(BlocksOf(rows_) * head_size() *
                                      static_cast<int64_t>(sizeof(float)));
  }

  TapeNeeds tape_needs() const override {
    TapeNeeds needs;
    needs.inputs_for_input = has_positions_ ? InputSet{1} << kPositions : kNoInputs;
    return needs;
  }

  absl::Status Forward(const PassContext&, const WeightView&, const Tape& tape) override {
    TurnRows(tape, 1.0f, tape.input(), tape.result());
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView&, const Tape& tape) override {
    TurnRows(tape, -1.0f, tape.gradient(), tape.grad_input());
    return absl::OkStatus();
  }

 private:
  static constexpr int kPositions = 1;  // an input

  int64_t pairs() const { return static_cast<int64_t>(frequencies_.size()); }
  int64_t head_size() const { return 2 * pairs(); }

  void TurnRows(const Tape& tape, float direction, const float* from, float* to) const {
    cpu_.threads.ForBlocks(rows_, kBlockRows, [&](int64_t first, int64_t count, int64_t block) {
      for (int64_t row = first; row < first + count; ++row) {
        loops_.turn({width_ / head_size(), pairs(), TurnsOf(tape, row, block), direction},
                    from + row * width_, to + row * width_);
      }
    });
  }

  const float* TurnsOf(const Tape& tape, int64_t row, int64_t block) const {
    if (!has_positions_) return turns_.data() + row % time_ * head_size();
    float* const turns = static_cast<float*>(cpu_.layer_scratch.data()) + block * head_size();
    penstock::rope::WriteTurns(frequencies_, tape.input<int32_t>(kPositions)[row], turns);
    return turns;
  }

  CpuContext& cpu_;
  const Loops& loops_;
  const bool has_positions_;
  const int64_t rows_, time_, width_;
  const std::vector<float> frequencies_;  // [pairs]
  std::vector<float> turns_;              // [time, 2 pairs], unless there are positions
};

}  // namespace
}  // namespace rope

MadeKernels MakeRope(CpuContext& context, const KernelSpec& spec) {
  auto op = std::make_unique<rope::CpuRope>(context, spec);
  PENSTOCK_RETURN_IF_ERROR(op->ReserveScratch());
  return op;
}

}  // namespace penstock::cpu
#endif
