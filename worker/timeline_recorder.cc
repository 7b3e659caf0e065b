#include "worker/timeline_recorder.h"

#include <algorithm>

#include "base/check.h"

namespace penstock {
namespace {

using Words = std::array<uint64_t, 4>;

Words Pack(const Span& span) {
  const uint64_t what = uint64_t{static_cast<uint8_t>(span.action.kind)} |
                        uint64_t{static_cast<uint8_t>(span.lane)} << 8 |
                        uint64_t{static_cast<uint8_t>(span.wait)} << 16 |
                        uint64_t{static_cast<uint32_t>(span.action.index)} << 32;
  return {what, static_cast<uint64_t>(span.action.microbatch), static_cast<uint64_t>(span.start_ns),
          static_cast<uint64_t>(span.end_ns)};
}

Span Unpack(WorkerId worker, const Words& words) {
  Span span;
  span.worker = worker;
  span.action.kind = static_cast<ActionKind>(words[0] & 0xff);
  span.lane = static_cast<Lane>(words[0] >> 8 & 0xff);
  span.wait = static_cast<Wait>(words[0] >> 16 & 0xff);
  span.action.index = static_cast<int32_t>(words[0] >> 32);
  span.action.microbatch = static_cast<int64_t>(words[1]);
  span.start_ns = static_cast<int64_t>(words[2]);
  span.end_ns = static_cast<int64_t>(words[3]);
  return span;
}

}  // namespace

TimelineRecorder::TimelineRecorder(WorkerId worker, int64_t capacity_spans)
    : worker_(worker), capacity_(capacity_spans) {
  PENSTOCK_CHECK(capacity_spans > 0);
  slots_ = std::make_unique<Slot[]>(capacity_spans);
}

// A reader that sees any word of a new span (acquire) also sees that it was begun (release).
void TimelineRecorder::Record(const Span& span) {
  const int64_t number = done_.load(std::memory_order_relaxed);
  begun_.store(number + 1, std::memory_order_relaxed);
  Slot& slot = slots_[number % capacity_];
  const Words words = Pack(span);
  for (size_t i = 0; i < words.size(); ++i) slot[i].store(words[i], std::memory_order_release);
  done_.store(number + 1, std::memory_order_release);
}

std::vector<Span> TimelineRecorder::Recent() const {
  const int64_t end = done_.load(std::memory_order_acquire);
  const int64_t first = std::max<int64_t>(0, end - capacity_);
  std::vector<Span> spans;
  spans.reserve(end - first);
  for (int64_t number = first; number < end; ++number) {
    const Slot& slot = slots_[number % capacity_];
    Words words;
    for (size_t i = 0; i < words.size(); ++i) words[i] = slot[i].load(std::memory_order_acquire);
    spans.push_back(Unpack(worker_, words));
  }
  // Span `number` is gone once span number + capacity was begun.
  const int64_t gone = begun_.load(std::memory_order_relaxed) - capacity_;
  const int64_t drop = std::clamp<int64_t>(gone - first, 0, end - first);
  spans.erase(spans.begin(), spans.begin() + drop);
  return spans;
}

}  // namespace penstock
