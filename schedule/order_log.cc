#include "schedule/order_log.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace penstock {
namespace {

constexpr int kByteBits = 8;

// To tell one of `stages` stages and the direction.
int BitsOf(size_t stages) {
  int bits = 1;
  while ((size_t{1} << bits) < 2 * stages) ++bits;
  return bits;
}

int64_t BytesOf(int64_t bits) { return (bits + kByteBits - 1) / kByteBits; }

}  // namespace

std::string ToString(const OrderBlock& block) {
  return absl::StrCat(block.stage.value, block.backward ? "B" : "F");
}

int64_t OrderLog::BytesComplete(size_t stages, int64_t microbatches) {
  return BytesOf(SizeComplete(stages, microbatches) * BitsOf(stages));
}

OrderLog::OrderLog(std::vector<StageId> stages, MicrobatchRange range, int32_t replicas)
    : stages_(std::move(stages)),
      range_(range),
      replicas_(replicas),
      bits_(BitsOf(stages_.size())) {
  PENSTOCK_CHECK(!stages_.empty());
  PENSTOCK_CHECK(replicas_ >= 1 && range_.count % replicas_ == 0);
  bytes_.reserve(BytesComplete(stages_.size(), range_.count / replicas_));
}

absl::StatusOr<OrderLog> OrderLog::FromBytes(std::vector<StageId> stages, MicrobatchRange range,
                                             absl::string_view bytes, int32_t replicas) {
  if (range.count % replicas != 0) {
    return absl::InvalidArgumentError(absl::StrCat("is of ", range.count, " microbatches, which ",
                                                   replicas, " replicas cannot share"));
  }
  // A microbatch has a forward and a backward, of a bit at least, so the product below stays within 64 bits.
  const auto microbatches_max = static_cast<int64_t>(bytes.size()) * kByteBits / 2;
  if (range.count < 0 || range.count / replicas > microbatches_max) {
    return absl::InvalidArgumentError(absl::StrCat("is of ", range.count, " microbatches, and has ",
                                                   bytes.size(), " bytes for them"));
  }
  const int64_t expected = BytesComplete(stages.size(), range.count / replicas);
  if (static_cast<int64_t>(bytes.size()) != expected) {
    return absl::InvalidArgumentError(absl::StrCat("has ", bytes.size(), " bytes; the ",
                                                   range.count / replicas, " microbatches of ",
                                                   stages.size(), " stages need ", expected));
  }
  OrderLog log(std::move(stages), range, replicas);
  log.bytes_.assign(bytes.data(), bytes.size());
  log.size_ = log.size_complete();
  const auto known = static_cast<int32_t>(log.stages_.size());
  for (int64_t i = 0; i < log.size_; ++i) {
    if (log.At(i).stage.value >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("block ", i, " is of none of the worker's ", known, " stages"));
  }
  return log;
}

void OrderLog::Append(const OrderBlock& block) {
  PENSTOCK_CHECK(size_ < size_complete());
  const auto stage = std::find(stages_.begin(), stages_.end(), block.stage);
  PENSTOCK_CHECK(stage != stages_.end());
  const auto code = static_cast<uint64_t>(2 * (stage - stages_.begin()) + (block.backward ? 1 : 0));
  const int64_t first = size_ * bits_;
  bytes_.resize(BytesOf(first + bits_));
  for (int bit = 0; bit < bits_; ++bit) {
    if ((code >> bit & 1) == 0) continue;
    const int64_t at = first + bit;
    bytes_[at / kByteBits] =
        static_cast<char>(static_cast<uint8_t>(bytes_[at / kByteBits]) | 1 << at % kByteBits);
  }
  ++size_;
}

OrderBlock OrderLog::At(int64_t index) const {
  PENSTOCK_CHECK(index >= 0 && index < size_);
  uint64_t code = 0;
  for (int bit = 0; bit < bits_; ++bit) {
    const int64_t at = index * bits_ + bit;
    const auto byte = static_cast<uint8_t>(bytes_[at / kByteBits]);
    code |= uint64_t{static_cast<uint8_t>(byte >> at % kByteBits & 1)} << bit;
  }
  const size_t stage = code / 2;
  return {stage < stages_.size() ? stages_[stage] : StageId(-1), code % 2 == 1};
}

void OrderLog::Shorten(int64_t microbatches) {
  range_.count = microbatches;
  PENSTOCK_CHECK(size_ <= size_complete());
}

}  // namespace penstock
