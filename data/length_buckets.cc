#include "data/length_buckets.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace penstock {
namespace {

// The stream of random numbers that say which records an epoch leaves out ("left" in ASCII).
constexpr uint64_t kLeftOutPurpose = 0x6C656674;

}  // namespace

LengthBuckets::LengthBuckets(std::vector<int64_t> by_length, const BucketOptions& options)
    : by_length_(std::move(by_length)),
      options_(options),
      batches_(static_cast<int64_t>(by_length_.size()) / options.batch),
      buckets_(std::min(options.buckets, batches_)),
      left_out_(static_cast<int64_t>(by_length_.size()) - batches_ * options.batch) {
  PENSTOCK_CHECK(options.batch > 0 && options.buckets > 0 && batches_ > 0);
}

int64_t LengthBuckets::BucketOf(int64_t batch) const {
  // The last one whose first batch is not behind it: batches * bucket / buckets <= batch, rounded down.
  return ((batch + 1) * buckets_ - 1) / batches_;
}

int64_t LengthBuckets::Reader::RecordOf(int64_t sample) {
  const int64_t batch_samples = order_.options_.batch;
  if (sample / batch_samples != batch_) Enter(sample / batch_samples);
  int64_t rank = first_rank_ + of_bucket_->At(first_place_ + sample % batch_samples);
  if (rank >= left_out_from_) rank += order_.left_out_;
  return order_.by_length_[rank];
}

void LengthBuckets::Reader::Enter(int64_t batch) {
  const BucketOptions& options = order_.options_;
  const auto epoch = static_cast<uint64_t>(batch / order_.batches_);
  // Each epoch has a permutation of batches, and one for each bucket.
  const uint64_t first_number = epoch * static_cast<uint64_t>(order_.buckets_ + 1);
  const Permutation of_batches(order_.batches_, options.seed, first_number);
  const int64_t ranked = of_batches.At(batch % order_.batches_);
  const int64_t bucket = order_.BucketOf(ranked);
  const int64_t first_batch = order_.FirstBatchOf(bucket);
  const int64_t bucket_batches = order_.FirstBatchOf(bucket + 1) - first_batch;
  of_bucket_.emplace(bucket_batches * options.batch, options.seed,
                     first_number + 1 + static_cast<uint64_t>(bucket));
  first_place_ = (ranked - first_batch) * options.batch;
  first_rank_ = first_batch * options.batch;
  const auto places = static_cast<uint64_t>(order_.samples_per_epoch()) + 1;
  const uint64_t word = RandomStream(options.seed, kLeftOutPurpose).At(epoch);
  left_out_from_ = static_cast<int64_t>((static_cast<unsigned __int128>(word) * places) >> 32);
  batch_ = batch;
}

}  // namespace penstock
