#include "compute/cpu/channel_norm.h"

#include <algorithm>
#include <cmath>

#include "compute/cpu/row_blocks.h"

namespace penstock {

ChannelNorm::ChannelNorm(CpuContext& context, const Shape& shape)
    : cpu_(context), shape_(shape), blocks_(BlocksOf(shape.rows)) {
  BlockLayout stash, weight_stash;
  mean_ = stash.Add<float>(shape_.sets * shape_.width);
  inverse_deviation_ = stash.Add<float>(shape_.sets * shape_.width);
  gain_sums_ = weight_stash.Add<float>(shape_.width);
  bias_sums_ = weight_stash.Add<float>(shape_.width);
  needs_.stash_bytes = stash.size_bytes();
  needs_.weight_stash_bytes = weight_stash.size_bytes();
  needs_.inputs_for_input = kAllInputs;
}

absl::Status ChannelNorm::ReserveScratch() {
  const int64_t channels = shape_.sets * shape_.width;
  BlockLayout scratch;
  first_blocks_ = scratch.Add<float>(channels * blocks_);
  second_blocks_ = scratch.Add<float>(channels * blocks_);
  first_totals_ = scratch.Add<double>(channels);
  second_totals_ = scratch.Add<double>(channels);
  of_gradient_ = scratch.Add<float>(channels);
  of_normal_ = scratch.Add<float>(channels);
  offset_ = scratch.Add<float>(channels);
  return cpu_.layer_scratch.Reserve(scratch.size_bytes());
}

absl::Status ChannelNorm::Forward(const PassContext&, const WeightView& weights, const Tape& tape) {
  FindStatistics(tape);
  Normalise(weights, tape);
  return absl::OkStatus();
}

absl::Status ChannelNorm::BackwardInput(const PassContext&, const WeightView& weights,
                                        const Tape& tape) {
  SumGradients(tape);
  if (tape.grad_input() == nullptr) return absl::OkStatus();
  FindFactors(weights, tape);
  ForBlocks([&](int64_t set, int64_t rows, int64_t offset, int64_t) {
    const int64_t at = set * shape_.width;
    cpu_.kernels.channel_gradient(Rows(tape, set, rows, offset),
                                  {In(of_gradient_) + at, In(of_normal_) + at, In(offset_) + at},
                                  tape.gradient() + offset, tape.grad_input() + offset);
  });
  return absl::OkStatus();
}

absl::Status ChannelNorm::BackwardWeight(const PassContext&, const GradientView& gradients,
                                         const Tape& tape) {
  cpu_.kernels.add_into(shape_.width, gain_sums_.in(tape.weight_stash), gradients.parameter(0));
  cpu_.kernels.add_into(shape_.width, bias_sums_.in(tape.weight_stash), gradients.parameter(1));
  return absl::OkStatus();
}

void ChannelNorm::FindStatistics(const Tape& tape) const {
  ForBlocks([&](int64_t, int64_t rows, int64_t offset, int64_t block) {
    cpu_.kernels.channel_moments(rows, shape_.width, tape.input() + offset,
                                 In(first_blocks_) + block * shape_.width,
                                 In(second_blocks_) + block * shape_.width);
  });
  // Moments about one mean from those about each block's (Chan, Golub and LeVeque, 1979); then, in the same way, those of
  // a group from its channels'.
  ForChannels([&](int64_t set, int64_t first, int64_t count) {
    double* means = In(first_totals_) + set * shape_.width;
    double* variances = In(second_totals_) + set * shape_.width;
    const float* block_means = In(first_blocks_) + set * blocks_ * shape_.width;
    const float* block_squares = In(second_blocks_) + set * blocks_ * shape_.width;
    const auto rows_of = [&](int64_t block) {
      return static_cast<double>(std::min(kBlockRows, shape_.rows - block * kBlockRows));
    };
    const auto total = static_cast<double>(shape_.rows);
    std::fill_n(means + first, count, 0.0);
    std::fill_n(variances + first, count, 0.0);
    for (int64_t block = 0; block < blocks_; ++block) {
      const double share = rows_of(block) / total;
      for (int64_t c = first; c < first + count; ++c) {
        means[c] += share * block_means[block * shape_.width + c];
      }
    }
    for (int64_t block = 0; block < blocks_; ++block) {
      const double share = rows_of(block) / total;
      for (int64_t c = first; c < first + count; ++c) {
        const double apart = block_means[block * shape_.width + c] - means[c];
        variances[c] += block_squares[block * shape_.width + c] / total + share * apart * apart;
      }
    }
    for (int64_t group = first; group < first + count; group += shape_.group) {
      double mean = 0.0;
      double variance = 0.0;
      for (int64_t c = group; c < group + shape_.group; ++c) mean += means[c];
      mean /= static_cast<double>(shape_.group);
      for (int64_t c = group; c < group + shape_.group; ++c) {
        variance += variances[c] + (means[c] - mean) * (means[c] - mean);
      }
      variance /= static_cast<double>(shape_.group);
      for (int64_t c = set * shape_.width + group; c < set * shape_.width + group + shape_.group;
           ++c) {
        mean_.in(tape.stash)[c] = static_cast<float>(mean);
        inverse_deviation_.in(tape.stash)[c] = InverseDeviation(variance);
      }
    }
  });
}

void ChannelNorm::UseStatistics(const float* means, const float* variances,
                                const Tape& tape) const {
  for (int64_t c = 0; c < shape_.width; ++c) {
    mean_.in(tape.stash)[c] = means[c];
    inverse_deviation_.in(tape.stash)[c] = InverseDeviation(variances[c]);
  }
}

void ChannelNorm::Normalise(const WeightView& weights, const Tape& tape) const {
  ForBlocks([&](int64_t set, int64_t rows, int64_t offset, int64_t) {
    cpu_.kernels.channel_normal(Rows(tape, set, rows, offset), weights.parameter(0),
                                weights.parameter(1), tape.result() + offset);
  });
}

float ChannelNorm::InverseDeviation(double variance) const {
  return static_cast<float>(1.0 / std::sqrt(variance + shape_.epsilon));
}

template <typename Body>
void ChannelNorm::ForBlocks(Body body) const {
  cpu_.threads.For(shape_.sets * blocks_, [&](int64_t block, int) {
    const int64_t set = block / blocks_;
    const int64_t first = block % blocks_ * kBlockRows;
    body(set, std::min(kBlockRows, shape_.rows - first), (set * shape_.rows + first) * shape_.width,
         block);
  });
}

template <typename Body>
void ChannelNorm::ForChannels(Body body) const {
  // Of whole groups, and of cache lines if these are small.
  constexpr int64_t kPieceMin = 64;
  const int64_t piece = (kPieceMin + shape_.group - 1) / shape_.group * shape_.group;
  const int64_t pieces = (shape_.width + piece - 1) / piece;
  cpu_.threads.For(shape_.sets * pieces, [&](int64_t i, int) {
    const int64_t first = i % pieces * piece;
    body(i / pieces, first, std::min(piece, shape_.width - first));
  });
}

ChannelRows ChannelNorm::Rows(const Tape& tape, int64_t set, int64_t rows, int64_t offset) const {
  return {rows, shape_.width, tape.input() + offset, mean_.in(tape.stash) + set * shape_.width,
          inverse_deviation_.in(tape.stash) + set * shape_.width};
}

// Of each set's channels, and of all sets for W.
void ChannelNorm::SumGradients(const Tape& tape) const {
  ForBlocks([&](int64_t set, int64_t rows, int64_t offset, int64_t block) {
    cpu_.kernels.channel_gradient_sums(Rows(tape, set, rows, offset), tape.gradient() + offset,
                                       In(first_blocks_) + block * shape_.width,
                                       In(second_blocks_) + block * shape_.width);
  });
  ForChannels([&](int64_t set, int64_t first, int64_t count) {
    const auto add = [&](const float* blocks, double* totals) {
      blocks += set * blocks_ * shape_.width;
      totals += set * shape_.width;
      std::fill_n(totals + first, count, 0.0);
      for (int64_t block = 0; block < blocks_; ++block) {
        for (int64_t c = first; c < first + count; ++c) {
          totals[c] += blocks[block * shape_.width + c];
        }
      }
    };
    add(In(first_blocks_), In(first_totals_));
    add(In(second_blocks_), In(second_totals_));
  });
  const auto add_sets = [&](const double* totals, float* sums) {
    for (int64_t c = 0; c < shape_.width; ++c) {
      double sum = 0.0;
      for (int64_t set = 0; set < shape_.sets; ++set) sum += totals[set * shape_.width + c];
      sums[c] = static_cast<float>(sum);
    }
  };
  add_sets(In(first_totals_), bias_sums_.in(tape.weight_stash));
  add_sets(In(second_totals_), gain_sums_.in(tape.weight_stash));
}

// With n the normalised input, d = grad_output * gain, and means over the rows and channels of a group:
//   grad_input = inverse_deviation * (d - mean(d) - n * mean(d * n)).
void ChannelNorm::FindFactors(const WeightView& weights, const Tape& tape) const {
  const float* gain = weights.parameter(0);
  const auto count = static_cast<double>(shape_.rows * shape_.group);
  for (int64_t group = 0; group < shape_.sets * shape_.width; group += shape_.group) {
    double mean_d = 0.0;
    double mean_dn = 0.0;
    for (int64_t c = group; c < group + shape_.group; ++c) {
      mean_d += gain[c % shape_.width] * In(first_totals_)[c] / count;
      mean_dn += gain[c % shape_.width] * In(second_totals_)[c] / count;
    }
    for (int64_t c = group; c < group + shape_.group; ++c) {
      const double inverse = inverse_deviation_.in(tape.stash)[c];
      In(of_gradient_)[c] = static_cast<float>(inverse * gain[c % shape_.width]);
      In(of_normal_)[c] = static_cast<float>(inverse * mean_dn);
      In(offset_)[c] = static_cast<float>(inverse * mean_d);
    }
  }
}

}  // namespace penstock
