// ChannelNorm: normalises the last dimension's channels over sets of rows: what batch norm and group norm share.
//
// A set is the rows that are normalised together: the whole microbatch, or a sample. In it, each group of neighbouring
// channels has a mean and a variance. Parameters: gain [width], bias [width].
//
// Rows are cut into blocks whatever the number of threads; a block's moments are float, about its own mean, and are added
// in double, block after block.
#pragma once

#include <cstdint>

#include "compute/block_layout.h"
#include "compute/cpu/context.h"
#include "compute/op_kernels.h"

namespace penstock {

class ChannelNorm : public OpKernels {
 public:
  struct Shape {
    int64_t sets = 1;
    int64_t rows = 0;  // of a set
    int64_t width = 0;
    int64_t group = 1;  // channels
    double epsilon = 1e-5;
  };

  ChannelNorm(CpuContext& context, const Shape& shape);
  // To be called once. Errors: ResourceExhausted.
  absl::Status ReserveScratch();

  TapeNeeds tape_needs() const override { return needs_; }

  absl::Status Forward(const PassContext& context, const WeightView& weights,
                       const Tape& tape) override;
  absl::Status BackwardInput(const PassContext& context, const WeightView& weights,
                             const Tape& tape) override;
  absl::Status BackwardWeight(const PassContext& context, const GradientView& gradients,
                              const Tape& tape) override;

 protected:
  // Finds mean and deviation of each set's groups, and leaves them in the stash for each channel. Then ScratchMeans and
  // ScratchVariances are those of the channels, [sets, width], for the rest of the pass.
  void FindStatistics(const Tape& tape) const;
  const double* ScratchMeans() const { return In(first_totals_); }
  const double* ScratchVariances() const { return In(second_totals_); }
  // Takes them from elsewhere, [width]. REQUIRES: one set.
  void UseStatistics(const float* means, const float* variances, const Tape& tape) const;
  void Normalise(const WeightView& weights, const Tape& tape) const;

  const Shape& shape() const { return shape_; }

 private:
  template <typename T>
  T* In(Place<T> place) const {
    return place.in(cpu_.layer_scratch.data());
  }
  float InverseDeviation(double variance) const;
  // body(set, first row of the set, rows, offset of the first element, block)
  template <typename Body>
  void ForBlocks(Body body) const;
  // body(set, first channel, channels): all channels, in pieces for threads.
  template <typename Body>
  void ForChannels(Body body) const;
  ChannelRows Rows(const Tape& tape, int64_t set, int64_t rows, int64_t offset) const;
  void SumGradients(const Tape& tape) const;
  void FindFactors(const WeightView& weights, const Tape& tape) const;

  CpuContext& cpu_;
  const Shape shape_;
  const int64_t blocks_;  // of a set
  TapeNeeds needs_;
  Place<float> mean_, inverse_deviation_;          // stash [sets, width]
  Place<float> gain_sums_, bias_sums_;             // weight stash [width]
  Place<float> first_blocks_, second_blocks_;      // scratch [sets, blocks, width]
  Place<double> first_totals_, second_totals_;     // scratch [sets, width]
  Place<float> of_gradient_, of_normal_, offset_;  // scratch [sets, width]
};

}  // namespace penstock
