#include "services/tracing/span_exporter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/deadline.h"
#include "base/utf8.h"
#include "services/rpc/completion_poller.h"

namespace penstock {

std::string Describe(const OtlpReply& reply) {
  if (!reply.status.ok()) return std::string(reply.status.message());
  constexpr size_t kShownMax = 200;
  const std::string said = CleanUtf8(reply.body, kShownMax);
  return absl::StrCat("HTTP ", reply.http_status, said.empty() ? "" : ": ", said);
}

ExportVerdict JudgeReply(const OtlpReply& reply) {
  if (!reply.status.ok()) return ExportVerdict::kLater;
  const int status = reply.http_status;
  if (status >= 200 && status < 300) return ExportVerdict::kTaken;
  const bool later = status == 429 || status == 502 || status == 503 || status == 504;
  return later ? ExportVerdict::kLater : ExportVerdict::kRefused;
}

absl::Duration BackoffAfter(const OtlpReply& reply, absl::Duration before,
                            const SpanExporterLimits& limits) {
  const absl::Duration next = std::clamp(2 * before, limits.backoff_min, limits.backoff_max);
  if (!reply.retry_after.has_value()) return next;
  return std::clamp(*reply.retry_after, limits.backoff_min, limits.retry_after_max);
}

SpanExporter::SpanExporter(Parts parts, SpanExporterLimits limits)
    : parts_(std::move(parts)), limits_(limits) {
  thread_ = std::thread([this] {
    NameThread("otlp");
    Run();
  });
}

SpanExporter::~SpanExporter() { Stop(absl::Now()); }

void SpanExporter::Add(std::vector<TraceSpan> spans) {
  MutexLock lock(mutex_);
  if (stopping_) {
    counts_.dropped += static_cast<int64_t>(spans.size());
    return;
  }
  for (TraceSpan& span : spans) {
    const int64_t bytes = OtlpBytes(span);
    queue_.push_back({std::move(span), bytes});
    queue_bytes_ += bytes;
  }
  size_t excess = 0;
  int64_t excess_bytes = 0;
  while (in_flight_ + excess < queue_.size() && (queue_.size() - excess > limits_.spans_max ||
                                                 queue_bytes_ - excess_bytes > limits_.bytes_max)) {
    excess_bytes += queue_[in_flight_ + excess].bytes;
    ++excess;
  }
  Forget(in_flight_, excess);
  counts_.dropped += static_cast<int64_t>(excess);
  changed_.NotifyAll();
}

SpanCounts SpanExporter::counts() const {
  MutexLock lock(mutex_);
  return counts_;
}

void SpanExporter::Stop(absl::Time deadline) {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  // Again and again, for a request that is only about to begin has nothing that could be cancelled.
  for (auto until = Monotonic(deadline); !AwaitDone(until); until = After(kCancelInterval)) {
    parts_.cancel();
  }
  if (thread_.joinable()) thread_.join();
}

bool SpanExporter::AwaitDone(CondVar::Clock::time_point until) {
  MutexLock lock(mutex_);
  while (!done_ && changed_.WaitUntil(mutex_, until)) {
  }
  expired_ = true;
  return done_;
}

void SpanExporter::Run() {
  for (;;) {
    std::string batch;
    {
      MutexLock lock(mutex_);
      if (!AwaitWork()) {
        counts_.dropped += static_cast<int64_t>(queue_.size());
        Forget(0, queue_.size());
        done_ = true;
        changed_.NotifyAll();
        return;
      }
      batch = NextBatch();
    }
    const OtlpReply reply = parts_.send(batch);
    std::string news;
    {
      MutexLock lock(mutex_);
      news = TakeReply(reply);
    }
    if (!news.empty() && parts_.log != nullptr) parts_.log(news);
  }
}

bool SpanExporter::AwaitWork() {
  const auto until = After(backoff_);
  while (backoff_ > absl::ZeroDuration() && !stopping_ && changed_.WaitUntil(mutex_, until)) {
  }
  while (queue_.empty() && !stopping_) changed_.Wait(mutex_);
  return !queue_.empty() && !expired_;
}

std::string SpanExporter::NextBatch() {
  std::vector<TraceSpan> spans;
  int64_t bytes = 0;
  for (const Waiting& waiting : queue_) {
    bytes += waiting.bytes;
    const bool full = spans.size() == limits_.batch_spans_max || bytes > limits_.batch_bytes_max;
    if (full && !spans.empty()) break;
    spans.push_back(waiting.span);
  }
  in_flight_ = spans.size();
  return OtlpJson(parts_.sender, spans);
}

std::string SpanExporter::TakeReply(const OtlpReply& reply) {
  const size_t sent = std::exchange(in_flight_, 0);
  const bool failed_before = failing_;
  const ExportVerdict verdict = JudgeReply(reply);
  if (verdict == ExportVerdict::kLater) {
    ++counts_.failed_requests;
    failing_ = true;
    backoff_ = BackoffAfter(reply, backoff_, limits_);
    expired_ = expired_ || stopping_;  // no thread waits for it to come back
    return failed_before ? ""
                         : absl::StrCat("spans wait for the collector, which is asked again: ",
                                        Describe(reply));
  }
  backoff_ = absl::ZeroDuration();
  Forget(0, sent);
  if (verdict == ExportVerdict::kRefused) {
    ++counts_.failed_requests;
    counts_.dropped += static_cast<int64_t>(sent);
    failing_ = true;
    return failed_before
               ? ""
               : absl::StrCat("the collector refuses spans, which are dropped: ", Describe(reply));
  }
  const OtlpPartialSuccess partial = ReadOtlpResponse(reply.body);
  const int64_t rejected = std::min<int64_t>(partial.rejected_spans, static_cast<int64_t>(sent));
  counts_.exported += static_cast<int64_t>(sent) - rejected;
  counts_.dropped += rejected;
  failing_ = rejected > 0;
  if (failing_ && !failed_before) {
    return absl::StrCat("the collector refuses ", rejected, " of ", sent,
                        " spans, which are dropped: ", partial.message);
  }
  return failed_before && !failing_ ? "the collector takes spans again" : "";
}

void SpanExporter::Forget(size_t first, size_t count) {
  const auto begin = queue_.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = begin + static_cast<std::ptrdiff_t>(count);
  for (auto waiting = begin; waiting != end; ++waiting) queue_bytes_ -= waiting->bytes;
  queue_.erase(begin, end);
}

}  // namespace penstock
