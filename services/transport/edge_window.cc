#include "services/transport/edge_window.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {

absl::Status SendWindow::Open(const EdgeProgress& progress) {
  // What was sent on an earlier stream may have come.
  PENSTOCK_RETURN_IF_ERROR(Advance(progress, sent_));
  opened_ = true;
  next_ = progress.received;
  return absl::OkStatus();
}

absl::Status SendWindow::Hear(const EdgeProgress& progress) { return Advance(progress, next_); }

absl::Status SendWindow::SendAgain(const EdgeProgress& progress) {
  PENSTOCK_RETURN_IF_ERROR(Advance(progress, next_));
  next_ = progress.received;
  return absl::OkStatus();
}

bool SendWindow::MarkSent() {
  const bool again = next_ < sent_;
  sent_ = std::max(sent_, ++next_);
  return again;
}

absl::Status SendWindow::Advance(const EdgeProgress& progress, int64_t received_max) {
  if (progress.received >= heard_.received && progress.received <= received_max &&
      progress.released >= heard_.released && progress.released <= progress.received) {
    heard_ = progress;
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("frame: progress: expected ", heard_.received, " to ", received_max,
                   " messages received and at least ", heard_.released, " of these released, got ",
                   progress.received, " and ", progress.released));
}

absl::Status ReceiveWindow::Open(int64_t stream) {
  if (stream <= stream_) {
    return absl::AlreadyExistsError(absl::StrCat("already has a stream: expected one after stream ",
                                                 stream_, ", got ", stream));
  }
  stream_ = stream;
  asks_again_ = false;
  return absl::OkStatus();
}

ReceiveWindow::Verdict ReceiveWindow::Judge(int64_t stream, int64_t message, bool is_first_part) {
  if (stream != stream_) return Verdict::kReplaced;
  if (message < progress_.received) return Verdict::kDuplicate;
  if (message == progress_.received && (is_first_part || !asks_again_)) {
    asks_again_ = false;
    return Verdict::kDue;
  }
  return asks_again_ ? Verdict::kOvertaken : Verdict::kGap;
}

void ReceiveWindow::Receive() {
  ++progress_.received;
  asked_ = 0;
}

int ReceiveWindow::AskAgain() {
  asks_again_ = true;
  return ++asked_;
}

}  // namespace penstock
