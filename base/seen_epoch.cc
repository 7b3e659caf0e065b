#include "base/seen_epoch.h"

#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

constexpr char kSeenEpochType[] = "penstock/seen-epoch";  // the payload is the number in decimal

}  // namespace

absl::Status WithSeenEpoch(absl::Status refusal, int64_t epoch) {
  refusal.SetPayload(kSeenEpochType, absl::Cord(absl::StrCat(epoch)));
  return refusal;
}

std::optional<int64_t> SeenEpochOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kSeenEpochType);
  int64_t epoch = 0;
  if (!payload.has_value() || !absl::SimpleAtoi(std::string(*payload), &epoch)) return std::nullopt;
  if (epoch < 1 || epoch >= kEpochMax) return std::nullopt;
  return epoch;
}

}  // namespace penstock
