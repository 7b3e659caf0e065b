#include "worker/device_spans.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

// One action adds a handful of entries; exchanges with many workers some hundred.
constexpr int64_t kRoomForAction = DeviceSpans::kEntries / 2;

}  // namespace

DeviceSpans::DeviceSpans(Clock& clock, std::function<absl::Status()> synchronize,
                         std::unique_ptr<DeviceMarks> marks, TimelineRecorder& recorder)
    : clock_(clock),
      synchronize_(std::move(synchronize)),
      marks_(std::move(marks)),
      sink_(recorder),
      entries_(kEntries),
      anchors_{Anchor{kMarks - 2}, Anchor{kMarks - 1}} {
  PENSTOCK_CHECK(marks_ != nullptr);
}

absl::Status DeviceSpans::Prepare() {
  PassOn();
  if (kEntries - waiting() < kRoomForAction) PENSTOCK_RETURN_IF_ERROR(WaitForDevice());
  const int64_t age_ns = clock_.MonotonicNs() - anchors_[anchor_].host_ns;
  const bool due = waiting() == 0 ? age_ns > kAnchorAgeNs : age_ns > kAnchorAgeMaxNs;
  return anchored_ && !due ? absl::OkStatus() : RenewAnchor();
}

// Copies have streams of their own, so some may be left when the computation is done.
absl::Status DeviceSpans::WaitForDevice() {
  PENSTOCK_RETURN_IF_ERROR(synchronize_());
  PassOn();
  if (kEntries - waiting() >= kRoomForAction) return absl::OkStatus();
  return absl::InternalError("the device is done, but has not passed the marks put before that");
}

absl::Status DeviceSpans::RenewAnchor() {
  PENSTOCK_RETURN_IF_ERROR(WaitForDevice());
  // No remaining entry is counted from the anchor that is to be renewed: it was not the current one when
  // the last entries came. If a copy takes that long, the next action tries again.
  const int next = 1 - anchor_;
  for (int64_t i = passed_on_; i < added_; ++i) {
    if (anchored_ && entries_[i % kEntries].anchor == next) return absl::OkStatus();
  }
  const int64_t before_ns = clock_.MonotonicNs();
  marks_->Put(anchors_[next].mark, DeviceStream::kCompute);
  PENSTOCK_RETURN_IF_ERROR(synchronize_());
  const int64_t after_ns = clock_.MonotonicNs();
  anchors_[next].host_ns = before_ns + (after_ns - before_ns) / 2;
  anchor_ = next;
  anchored_ = true;
  return absl::OkStatus();
}

absl::Status DeviceSpans::Finish() { return WaitForDevice(); }

void DeviceSpans::StartCompute() {
  if (compute_start_ < 0) compute_start_ = TakeMark();
  marks_->Put(compute_start_, DeviceStream::kCompute);
}

void DeviceSpans::EndCompute(const Span& span, StageMeter& meter) {
  PENSTOCK_CHECK(compute_start_ >= 0);
  Entry entry = {.kind = Kind::kCompute, .start = std::exchange(compute_start_, -1)};
  entry.end = TakeMark();
  entry.span = span;
  entry.meter = &meter;
  marks_->Put(entry.end, DeviceStream::kCompute);
  Push(entry);
}

void DeviceSpans::Add(const Span& span, StageMeter& meter) {
  Push({.kind = Kind::kHost, .span = span, .meter = &meter});
}

// To the host: from when the tensor is computed.
void DeviceSpans::StartCopy(CopyDirection direction) {
  if (copy_start_ < 0) copy_start_ = TakeMark();
  const bool to_host = direction == CopyDirection::kToHost;
  marks_->Put(copy_start_, to_host ? DeviceStream::kCompute : DeviceStream::kCopyIn);
}

void DeviceSpans::EndCopy(CopyDirection direction, StageMeter& meter) {
  PENSTOCK_CHECK(copy_start_ >= 0);
  const bool to_host = direction == CopyDirection::kToHost;
  Entry entry = {.kind = to_host ? Kind::kCopyToHost : Kind::kCopyToDevice,
                 .start = std::exchange(copy_start_, -1)};
  entry.end = TakeMark();
  entry.meter = &meter;
  marks_->Put(entry.end, to_host ? DeviceStream::kCopyOut : DeviceStream::kCopyIn);
  Push(entry);
}

void DeviceSpans::End(const Action& action, StageMeter& meter) {
  Entry entry = {.kind = Kind::kEnd, .meter = &meter};
  entry.span.action = action;
  Push(entry);
  PassOn();
}

void DeviceSpans::Push(const Entry& entry) {
  if (waiting() == kEntries) {
    ++dropped_;
    return;
  }
  Entry& slot = entries_[added_++ % kEntries];
  slot = entry;
  slot.anchor = anchor_;
}

void DeviceSpans::PassOn() {
  for (; passed_on_ < added_; ++passed_on_) {
    const Entry& entry = entries_[passed_on_ % kEntries];
    const bool has_marks = entry.kind != Kind::kHost && entry.kind != Kind::kEnd;
    // Both: the end of an exported tensor's copy is not tied to its start.
    if (has_marks && !(marks_->Passed(entry.end) && marks_->Passed(entry.start))) return;
    PassOn(entry);
  }
}

void DeviceSpans::PassOn(const Entry& entry) {
  switch (entry.kind) {
    case Kind::kCompute: {
      Span span = entry.span;
      // From the anchor for its place, from mark to mark for its length, which is finer.
      const int64_t start_ns = HostNs(entry.anchor, entry.start);
      const int64_t end_ns = start_ns + marks_->ElapsedNs(entry.start, entry.end);
      // A new anchor may place the span a little before the end of the last one: it is shown shorter.
      span.start_ns = std::max(start_ns, compute_end_ns_);
      span.end_ns = std::max(end_ns, span.start_ns);
      compute_end_ns_ = span.end_ns;
      sink_.Add(span, *entry.meter);
      return;
    }
    case Kind::kHost: {
      Span span = entry.span;
      span.start_ns = std::max(span.start_ns, compute_end_ns_);
      span.end_ns = std::max(span.end_ns, span.start_ns);
      sink_.Add(span, *entry.meter);
      return;
    }
    case Kind::kCopyToDevice:
      entry.meter->AddCopy(CopyDirection::kToDevice,
                           std::max<int64_t>(0, marks_->ElapsedNs(entry.start, entry.end)));
      return;
    case Kind::kCopyToHost: {
      const int64_t start_ns = std::max(HostNs(entry.anchor, entry.start), copy_to_host_end_ns_);
      const int64_t end_ns = HostNs(entry.anchor, entry.end);
      entry.meter->AddCopy(CopyDirection::kToHost, std::max<int64_t>(0, end_ns - start_ns));
      copy_to_host_end_ns_ = std::max(end_ns, copy_to_host_end_ns_);
      return;
    }
    case Kind::kEnd:
      sink_.End(entry.span.action.kind, *entry.meter);
      return;
  }
}

int64_t DeviceSpans::HostNs(int anchor, int mark) {
  return anchors_[anchor].host_ns + marks_->ElapsedNs(anchors_[anchor].mark, mark);
}

void DeviceSpans::BeginRange(const Action& action) {
  // Formats like ToString(action), without an allocation.
  char name[48];
  const absl::string_view kind = ActionName(action.kind);
  size_t length = 0;
  const auto append = [&](const char* format, auto... values) {
    length += std::snprintf(name + length, sizeof(name) - length, format, values...);
  };
  if (HasIndex(action.kind)) append("%d", action.index);
  append("%.*s", static_cast<int>(kind.size()), kind.data());
  if (HasMicrobatch(action.kind)) append("%lld", static_cast<long long>(action.microbatch));
  marks_->BeginRange(name);
  in_range_ = true;
}

void DeviceSpans::EndRange() {
  if (std::exchange(in_range_, false)) marks_->EndRange();
}

}  // namespace penstock
