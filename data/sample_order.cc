#include "data/sample_order.h"

#include "base/random.h"

namespace penstock {
namespace {

// The stream of random numbers that records are drawn from ("draw" in ASCII).
constexpr uint64_t kDrawPurpose = 0x64726177;

}  // namespace

OrderKind OrderNamed(absl::string_view word) {
  if (word == "sequential") return OrderKind::kSequential;
  return word == "random" ? OrderKind::kRandom : OrderKind::kShuffled;
}

SampleOrder::SampleOrder(OrderKind kind, int64_t records, uint64_t seed)
    : kind_(kind), records_(records), seed_(seed), of_epoch_(records, seed, 0) {}

int64_t SampleOrder::RecordOf(int64_t sample) {
  switch (kind_) {
    case OrderKind::kSequential:
      return sample % records_;
    case OrderKind::kRandom: {
      const RandomStream stream(seed_, kDrawPurpose);
      const uint64_t high = stream.At(2 * static_cast<uint64_t>(sample));
      const uint64_t word = high << 32 | stream.At(2 * static_cast<uint64_t>(sample) + 1);
      const auto records = static_cast<unsigned __int128>(records_);
      return static_cast<int64_t>((word * records) >> 64);
    }
    case OrderKind::kShuffled:
      break;
  }
  if (sample / records_ != epoch_) {
    epoch_ = sample / records_;
    of_epoch_ = Permutation(records_, seed_, static_cast<uint64_t>(epoch_));
  }
  return of_epoch_.At(sample % records_);
}

}  // namespace penstock
