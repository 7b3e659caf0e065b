// Recorded orders: what is read is printed and read as the same.
#include <string>

#include "absl/strings/ascii.h"
#include "schedule/recorded_order.h"
#include "tests/fuzz/fuzz_target.h"

namespace penstock {
namespace {

// An order may be of 2^28 blocks, which "0F*100000000" asks for. Numbers of four digits keep an input to milliseconds.
bool HasLongNumber(absl::string_view text) {
  constexpr int kDigitsMax = 4;
  int digits = 0;
  for (const char c : text) {
    digits = absl::ascii_isdigit(static_cast<unsigned char>(c)) ? digits + 1 : 0;
    if (digits > kDigitsMax) return true;
  }
  return false;
}

}  // namespace
}  // namespace penstock

PENSTOCK_FUZZ_TARGET(recorded_order) {
  using namespace penstock;
  const absl::string_view text = FuzzBytes(data, size).rest();
  if (HasLongNumber(text)) return 0;
  const absl::StatusOr<RecordedOrder> order = ParseRecordedOrder(text);
  if (!order.ok()) return 0;
  FuzzAccepted();
  const absl::StatusOr<RecordedOrder> again = ParseRecordedOrder(PrintRecordedOrder(*order));
  PENSTOCK_CHECK(again.ok() && *again == *order);
  for (const RecordedOrder::Range& range : order->ranges) {
    PENSTOCK_CHECK(static_cast<int32_t>(range.workers.size()) == order->workers());
    for (const OrderLog& log : range.workers) PENSTOCK_CHECK(log.size() == log.size_complete());
  }
  return 0;
}
