#include "compute/cpu/chunked_head.h"

#include <algorithm>
#include <type_traits>

#include "base/status.h"
#include "compute/block_layout.h"
#include "compute/cpu/linear.h"
#include "compute/cpu/losses.h"
#include "compute/cpu/row_blocks.h"

namespace penstock::cpu {
namespace {

constexpr int64_t kLogitsKeptMax = int64_t{1} << 24;   // 64 MiB
constexpr int64_t kChunkLogitsMax = int64_t{1} << 22;  // 16 MiB, unless the fewest rows have more
constexpr int64_t kChunkRowsMin = 2 * kBlockRows;
constexpr int64_t kChunkRowsMax = 8 * kBlockRows;
constexpr int64_t kSumsBlock = 1 << 16;  // of the weight's gradient, for a thread

constexpr int64_t kNoOffset = 0;  // of the only parameter

int64_t ChunkRows(int64_t rows, int64_t vocabulary) {
  const int64_t fits = kChunkLogitsMax / vocabulary / kBlockRows * kBlockRows;
  return std::min(rows, std::clamp(fits, kChunkRowsMin, kChunkRowsMax));
}

template <typename Number>
class ChunkedHead : public OpKernels {
 public:
  static MadeKernels Create(CpuContext& context, const KernelSpec& spec) {
    std::unique_ptr<ChunkedHead> head(new ChunkedHead(context, spec));
    PENSTOCK_RETURN_IF_ERROR(context.layer_scratch.Reserve(head->scratch_bytes_));
    PENSTOCK_ASSIGN_OR_RETURN(head->linear_, head->LinearOf(head->chunk_));
    const int64_t rest = head->rows_ % head->chunk_;
    if (rest > 0) {
      PENSTOCK_ASSIGN_OR_RETURN(head->last_linear_, head->LinearOf(rest));
    }
    return std::unique_ptr<OpKernels>(std::move(head));
  }

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext&, const WeightView& weights, const Tape& tape) override {
    double sum = 0.0;
    ForChunks([&](int64_t first, int64_t count, const Linear<Number>& linear) {
      linear.Forward(weights, Input(tape, first, count), logits_.in(scratch()));
      sum += ChunkLoss(tape, first, count);
      if (tape.ranks == nullptr) return;
      ForRows(tape, first, count, [&](const CrossEntropyRows& rows, int64_t row) {
        cpu_.kernels.target_ranks(rows, tape.ranks + first + row);
      });
    });
    *tape.result() = MeanOfValid(sum, ValidTargetsOf(tape, rows_, ignored_));
    return absl::OkStatus();
  }

  ValueType prediction_type() const override { return {DType::kF32, {time_, vocabulary_}}; }

  absl::Status Predict(const WeightView& weights, const Tape& tape) override {
    ForChunks([&](int64_t first, int64_t count, const Linear<Number>& linear) {
      linear.Forward(weights, Input(tape, first, count), tape.result() + first * vocabulary_);
    });
    return absl::OkStatus();
  }

  absl::Status BackwardInput(const PassContext&, const WeightView& weights,
                             const Tape& tape) override {
    const float scale = ScaleOfValid(tape, ValidTargetsOf(tape, rows_, ignored_));
    float* const sums = weight_sums_.in(tape.weight_stash);
    if (trains_) cpu_.kernels.fill(vocabulary_ * width_, 0.0f, sums);
    ForChunks([&](int64_t first, int64_t count, const Linear<Number>& linear) {
      const Number* const input = Input(tape, first, count);
      linear.Forward(weights, input, logits_.in(scratch()));
      ChunkLoss(tape, first, count);  // leaves the log-sums
      Number* const gradient = LogitsGradient();
      ForRows(tape, first, count, [&](const CrossEntropyRows& rows, int64_t row) {
        cpu_.kernels.of<Number>().cross_entropy_gradient(rows, scale, gradient + row * vocabulary_);
      });
      if (tape.grad_input() != nullptr) {
        linear.BackwardInput(weights, gradient, tape.grad_input() + first * width_);
      }
      if (trains_) linear.BackwardWeight({sums, &kNoOffset}, input, gradient);
    });
    return absl::OkStatus();
  }

  absl::Status BackwardWeight(const PassContext&, const GradientView& gradients,
                              const Tape& tape) override {
    const float* const sums = weight_sums_.in(tape.weight_stash);
    cpu_.threads.ForBlocks(
        vocabulary_ * width_, kSumsBlock, [&](int64_t first, int64_t count, int64_t) {
          cpu_.kernels.add_into(count, sums + first, gradients.parameter(0) + first);
        });
    return absl::OkStatus();
  }

 private:
  static constexpr InputSet kActivationAndTargets = 3;
  static constexpr bool kFloat = std::is_same_v<Number, float>;

  ChunkedHead(CpuContext& context, const KernelSpec& spec)
      : cpu_(context),
        vocabulary_(spec.attributes().integer("vocabulary")),
        width_(spec.width()),
        rows_(spec.rows()),
        time_(spec.inputs[0].dims[0]),
        chunk_(ChunkRows(rows_, vocabulary_)),
        ignored_(spec.loss().ignored.value_or(kNoTarget)),
        smoothing_(static_cast<float>(spec.attributes().number("label_smoothing"))),
        trains_(spec.node.trains()) {
    BlockLayout scratch;
    scratch.Add<double>(BlocksOf(chunk_));  // of SumOfBlocks, at the beginning
    log_sums_ = scratch.Add<float>(chunk_);
    logits_ = scratch.Add<float>(chunk_ * vocabulary_);
    input_ = scratch.Add<Number>(kFloat ? 0 : chunk_ * width_);
    gradient_ = scratch.Add<Number>(kFloat ? 0 : chunk_ * vocabulary_);
    scratch_bytes_ = scratch.size_bytes();

    BlockLayout weight_stash;
    weight_sums_ = weight_stash.Add<float>(trains_ ? vocabulary_ * width_ : 0);
    needs_ = {.weight_stash_bytes = weight_stash.size_bytes(),
              .inputs_for_input = kActivationAndTargets};
  }

  absl::StatusOr<Linear<Number>> LinearOf(int64_t rows) const {
    return Linear<Number>::Create(cpu_, {rows, rows, width_, vocabulary_, /*outputs_first=*/true},
                                  0);
  }

  void* scratch() const { return cpu_.layer_scratch.data(); }

  // body(first row, rows, the products of as many rows).
  template <typename Body>
  void ForChunks(Body body) const {
    for (int64_t first = 0; first < rows_; first += chunk_) {
      const int64_t count = std::min(chunk_, rows_ - first);
      body(first, count, count == chunk_ ? linear_ : last_linear_);
    }
  }

  // The rows of a chunk as the products read them.
  const Number* Input(const Tape& tape, int64_t first, int64_t count) const {
    const float* const rows = tape.input() + first * width_;
    if constexpr (kFloat) {
      return rows;
    } else {
      cpu_.kernels.to_bf16(count * width_, rows, input_.in(scratch()));
      return input_.in(scratch());
    }
  }

  Number* LogitsGradient() const {
    if constexpr (kFloat) {
      return logits_.in(scratch());
    } else {
      return gradient_.in(scratch());
    }
  }

  // Rows `row` .. `row` + count of the chunk that begins at `first`, whose logits are there.
  CrossEntropyRows RowsOf(const Tape& tape, int64_t first, int64_t row, int64_t count) const {
    return {count,
            vocabulary_,
            logits_.in(scratch()) + row * vocabulary_,
            tape.input<int32_t>(1) + first + row,
            log_sums_.in(scratch()) + row,
            ignored_,
            smoothing_};
  }

  // body(block of rows, its first row in the chunk).
  template <typename Body>
  void ForRows(const Tape& tape, int64_t first, int64_t count, Body body) const {
    cpu_.threads.ForBlocks(count, kBlockRows, [&](int64_t row, int64_t rows, int64_t) {
      body(RowsOf(tape, first, row, rows), row);
    });
  }

  double ChunkLoss(const Tape& tape, int64_t first, int64_t count) const {
    return SumOfBlocks(cpu_, count, kBlockRows, [&](int64_t row, int64_t rows) {
      return cpu_.kernels.cross_entropy(RowsOf(tape, first, row, rows));
    });
  }

  CpuContext& cpu_;
  const int64_t vocabulary_, width_, rows_, time_;
  const int64_t chunk_;  // rows; the last chunk may have fewer
  const int32_t ignored_;
  const float smoothing_;
  const bool trains_;
  Linear<Number> linear_, last_linear_;  // of `chunk_` rows, and of the rest
  TapeNeeds needs_;
  int64_t scratch_bytes_ = 0;
  Place<float> log_sums_;     // scratch [chunk]
  Place<float> logits_;       // scratch [chunk, vocabulary]
  Place<Number> input_;       // scratch [chunk, width], unless float
  Place<Number> gradient_;    // scratch [chunk, vocabulary], unless float
  Place<float> weight_sums_;  // weight stash [vocabulary, width]
};

}  // namespace

bool IsChunkedHead(const KernelSpec& spec) {
  const int64_t vocabulary = spec.attributes().integer("vocabulary");
  const int64_t rows = spec.rows();
  return rows > 2 * spec.width() && rows > kLogitsKeptMax / vocabulary;
}

MadeKernels MakeChunkedHead(CpuContext& context, const KernelSpec& spec) {
  return spec.bf16 ? ChunkedHead<Bf16>::Create(context, spec)
                   : ChunkedHead<float>::Create(context, spec);
}

}  // namespace penstock::cpu
