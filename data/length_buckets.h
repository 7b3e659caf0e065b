// LengthBuckets: an order of training samples in which the samples of a batch are of similar length, so that little of
// what kernels compute is padding.
//
// Records are ranked by length once. An epoch has B = N / batch whole batches:
//
//   1. the N - B * batch records that do not fill a batch are left out: consecutive ranks from a place that is drawn
//      for each epoch, so that none is left out always
//   2. the other ranks, in order, are cut into buckets of whole batches, bucket b of B * b / buckets to B * (b + 1) /
//      buckets (fewer buckets, if there are fewer batches)
//   3. each bucket's records are permuted, and every `batch` of them are a batch
//   4. the batches of all buckets are permuted
//
// So every record but those of step 1 is there once in an epoch, and a batch is any of its bucket's records. The order
// depends on the seed, the batch, the number of buckets and the records' lengths, and neither on the microbatches of a
// batch nor on who asks. Permutations (data/permutation.h) need no state, so that a sample is found by itself.
//
// Batches, and not microbatches alone, are of one bucket, so that the microbatches of a step take equally long and none
// keeps a pipeline waiting. A bucketing of batches as in NVIDIA's GNMT (DeepLearningExamples, BucketingSampler).
//
// Thread safety: immutable once made; a Reader is thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "data/permutation.h"

namespace penstock {

struct BucketOptions {
  int64_t batch = 1;
  int64_t buckets = 1;
  uint64_t seed = 0;
};

class LengthBuckets {
 public:
  // `by_length`: records, from the shortest to the longest. REQUIRES: there are at least options.batch, which is
  // positive as options.buckets is.
  LengthBuckets(std::vector<int64_t> by_length, const BucketOptions& options);

  int64_t batches_per_epoch() const { return batches_; }
  int64_t samples_per_epoch() const { return batches_ * options_.batch; }
  int64_t buckets() const { return buckets_; }

  // Finds records. The permutations of a batch are made once, if its samples are asked for one after the other.
  class Reader {
   public:
    // REQUIRES: `order` outlives the reader.
    explicit Reader(const LengthBuckets& order) : order_(order) {}
    // Samples are numbered over the whole job. REQUIRES: sample >= 0.
    int64_t RecordOf(int64_t sample);

   private:
    void Enter(int64_t batch);

    const LengthBuckets& order_;
    int64_t batch_ = -1;         // of the job, that the rest is of
    int64_t first_place_ = 0;    // of the batch, in its bucket
    int64_t first_rank_ = 0;     // of the bucket
    int64_t left_out_from_ = 0;  // the rank from which records are left out in this epoch
    std::optional<Permutation> of_bucket_;
  };

 private:
  int64_t FirstBatchOf(int64_t bucket) const { return batches_ * bucket / buckets_; }
  // REQUIRES: 0 <= batch < batches_per_epoch().
  int64_t BucketOf(int64_t batch) const;

  const std::vector<int64_t> by_length_;
  const BucketOptions options_;
  const int64_t batches_;  // of an epoch
  const int64_t buckets_;
  const int64_t left_out_;  // records of an epoch
};

}  // namespace penstock
