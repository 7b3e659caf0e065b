// SpanExporter: takes spans from anybody without making them wait, and brings them to a collector.
//
//   Add ──▶ queue, bounded, loses its oldest ──▶ one thread: batches, attempts, backoff ──▶ send
//
// A collector that does not answer, or asks to be spared (429, 502, 503, 504), is asked again later; what waits
// meanwhile and does not fit is dropped. A batch that it refuses otherwise would be refused again, and is dropped
// at once. Spans that are dropped are counted, and the log says when the trouble begins and ends.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/span_counts.h"
#include "services/tracing/otlp_client.h"
#include "services/tracing/otlp_json.h"
#include "services/tracing/span.h"

namespace penstock {

struct SpanExporterLimits {
  size_t spans_max = 8192;  // that wait, and so for bytes (OtlpBytes)
  int64_t bytes_max = 32 << 20;
  size_t batch_spans_max = 256;
  int64_t batch_bytes_max = 1 << 20;
  absl::Duration backoff_min = absl::Seconds(1);
  absl::Duration backoff_max = absl::Seconds(60);
  absl::Duration retry_after_max = absl::Minutes(5);
};

// In words: the answer, or why none came.
std::string Describe(const OtlpReply& reply);

// The meaning of a reply for the spans that were sent.
enum class ExportVerdict { kTaken, kLater, kRefused };
ExportVerdict JudgeReply(const OtlpReply& reply);
// Returns the wait before an attempt is repeated. `before`: the wait before that; zero if there was none.
absl::Duration BackoffAfter(const OtlpReply& reply, absl::Duration before,
                            const SpanExporterLimits& limits);

class SpanExporter {
 public:
  struct Parts {
    TraceSender sender;
    // One request with its answer, within a deadline of its own (OtlpClient::Post). On the exporter's thread.
    std::function<OtlpReply(const std::string& json)> send;
    // Ends a request that is under way soon. Called on any thread.
    std::function<void()> cancel;
    // A line for operators; may be null. On the exporter's thread.
    std::function<void(const std::string&)> log;
  };

  explicit SpanExporter(Parts parts, SpanExporterLimits limits = {});
  // Stop(now).
  ~SpanExporter();
  SpanExporter(const SpanExporter&) = delete;
  SpanExporter& operator=(const SpanExporter&) = delete;

  // Without effect after Stop, but that they count as dropped.
  void Add(std::vector<TraceSpan> spans) ABSL_LOCKS_EXCLUDED(mutex_);
  SpanCounts counts() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Sends what waits, without waiting for a collector that does not take it, and ends the thread. Drops what was not
  // sent by `deadline`. Idempotent.
  void Stop(absl::Time deadline) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Waiting {
    TraceSpan span;
    int64_t bytes = 0;
  };

  static constexpr absl::Duration kCancelInterval = absl::Milliseconds(50);

  void Run();
  // Returns whether the thread is at its end by then; it sends no more afterwards.
  bool AwaitDone(CondVar::Clock::time_point until) ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns when there is something to send, or false at the end.
  bool AwaitWork() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The oldest that wait, as one request; they stay in the queue.
  std::string NextBatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns what to log, or nothing.
  std::string TakeReply(const OtlpReply& reply) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(size_t first, size_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Parts parts_;
  const SpanExporterLimits limits_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Waiting> queue_ ABSL_GUARDED_BY(mutex_);
  int64_t queue_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;  // the first of the queue that are being sent
  absl::Duration backoff_ ABSL_GUARDED_BY(mutex_);
  bool failing_ ABSL_GUARDED_BY(mutex_) = false;  // the last request was not taken
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool expired_ ABSL_GUARDED_BY(mutex_) = false;  // nothing more may be sent
  bool done_ ABSL_GUARDED_BY(mutex_) = false;     // the thread is at its end
  SpanCounts counts_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace penstock
