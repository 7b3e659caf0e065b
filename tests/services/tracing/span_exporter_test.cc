// The exporter against a collector that is played: what it sends, when it gives up, what it counts.
#include "services/tracing/span_exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "absl/time/clock.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const absl::Time kLater = absl::InfiniteFuture();

OtlpReply Answer(int status, std::optional<absl::Duration> retry_after = std::nullopt) {
  return {.http_status = status, .retry_after = retry_after};
}
OtlpReply NoAnswer() { return {.status = absl::UnavailableError("nobody listens")}; }

std::vector<TraceSpan> Spans(const std::vector<std::string>& names) {
  std::vector<TraceSpan> spans;
  spans.reserve(names.size());
  for (const std::string& name : names) spans.push_back({.name = name});
  return spans;
}

// Answers each request with the next of its answers, then with 200; holds requests while it is told to.
class SpanCollector {
 public:
  OtlpReply Take(const std::string& json) {
    const nlohmann::json request = nlohmann::json::parse(json);
    std::vector<std::string> names;
    for (const auto& span : request["resourceSpans"][0]["scopeSpans"][0]["spans"]) {
      names.push_back(span["name"]);
    }
    MutexLock lock(mutex_);
    requests_.push_back(names);
    changed_.NotifyAll();
    while (held_ && !cancelled_) changed_.Wait(mutex_);
    if (cancelled_) return {.status = absl::CancelledError("cancelled")};
    if (answers_.empty()) return Answer(200);
    OtlpReply answer = answers_.front();
    answers_.erase(answers_.begin());
    return answer;
  }
  void Cancel() {
    MutexLock lock(mutex_);
    cancelled_ = true;
    changed_.NotifyAll();
  }
  void Hold(bool held) {
    MutexLock lock(mutex_);
    held_ = held;
    changed_.NotifyAll();
  }
  void Script(std::vector<OtlpReply> answers) {
    MutexLock lock(mutex_);
    answers_ = std::move(answers);
  }
  // The names of the spans of each request, once there are that many.
  std::vector<std::vector<std::string>> Await(size_t requests) {
    MutexLock lock(mutex_);
    const auto until = CondVar::Clock::now() + std::chrono::seconds(20);
    while (requests_.size() < requests && changed_.WaitUntil(mutex_, until)) {
    }
    return requests_;
  }
  void Log(const std::string& line) {
    MutexLock lock(mutex_);
    log_.push_back(line);
  }
  std::vector<std::string> log() {
    MutexLock lock(mutex_);
    return log_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<OtlpReply> answers_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::vector<std::string>> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> log_ ABSL_GUARDED_BY(mutex_);
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

class SpanExporterTest : public ::testing::Test {
 protected:
  // With short waits; what is waited for is never how long.
  SpanExporter& Start(SpanExporterLimits limits = {}) {
    limits.backoff_min = absl::Milliseconds(1);
    limits.backoff_max = absl::Milliseconds(2);
    limits.retry_after_max = absl::Milliseconds(2);
    exporter_ = std::make_unique<SpanExporter>(
        SpanExporter::Parts{
            .send = [this](const std::string& json) { return collector_.Take(json); },
            .cancel = [this] { collector_.Cancel(); },
            .log = [this](const std::string& line) { collector_.Log(line); }},
        limits);
    return *exporter_;
  }
  void ExpectCounts(int64_t exported, int64_t dropped, int64_t failed_requests) {
    const SpanCounts counts = exporter_->counts();
    EXPECT_EQ(counts.exported, exported);
    EXPECT_EQ(counts.dropped, dropped);
    EXPECT_EQ(counts.failed_requests, failed_requests);
  }

  SpanCollector collector_;
  std::unique_ptr<SpanExporter> exporter_;
};

TEST_F(SpanExporterTest, Spans_ArriveInOrderInBatches) {
  SpanExporter& exporter = Start({.batch_spans_max = 2});
  collector_.Hold(true);
  exporter.Add(Spans({"a"}));
  collector_.Await(1);
  exporter.Add(Spans({"b", "c", "d"}));
  collector_.Hold(false);
  exporter.Stop(kLater);
  EXPECT_THAT(collector_.Await(3),
              ElementsAre(ElementsAre("a"), ElementsAre("b", "c"), ElementsAre("d")));
  ExpectCounts(4, 0, 0);
  EXPECT_THAT(collector_.log(), IsEmpty());
}

TEST_F(SpanExporterTest, BatchIsBoundedInBytes_ButNeverEmpty) {
  SpanExporter& exporter = Start({.batch_bytes_max = 10});
  exporter.Add(Spans({"a", "b"}));
  exporter.Stop(kLater);
  EXPECT_THAT(collector_.Await(2), ElementsAre(ElementsAre("a"), ElementsAre("b")));
}

TEST_F(SpanExporterTest, CollectorAway_SpansAreSentOnceItIsThere) {
  collector_.Script({NoAnswer(), Answer(503), Answer(429), Answer(502), Answer(504)});
  SpanExporter& exporter = Start();
  exporter.Add(Spans({"a"}));
  EXPECT_EQ(collector_.Await(6).size(), 6u);
  exporter.Stop(kLater);
  for (const auto& names : collector_.Await(6)) EXPECT_THAT(names, ElementsAre("a"));
  ExpectCounts(1, 0, 5);
  EXPECT_THAT(collector_.log(), ElementsAre(HasSubstr("asked again: nobody listens"),
                                            HasSubstr("takes spans again")));
}

TEST_F(SpanExporterTest, Refused_IsDroppedCountedAndLoggedOnce) {
  collector_.Script({Answer(400), Answer(401), Answer(500), Answer(301)});
  SpanExporter& exporter = Start({.batch_spans_max = 1});
  exporter.Add(Spans({"a", "b", "c", "d", "e"}));
  collector_.Await(5);
  exporter.Stop(kLater);
  EXPECT_EQ(collector_.Await(5).size(), 5u) << "each was sent once";
  ExpectCounts(1, 4, 4);
  EXPECT_THAT(collector_.log(),
              ElementsAre(HasSubstr("refuses spans"), HasSubstr("takes spans again")));
}

TEST_F(SpanExporterTest, TakenInPart_TheRestIsDropped) {
  OtlpReply partial = Answer(200);
  partial.body = R"({"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}})";
  collector_.Script({partial});
  SpanExporter& exporter = Start();
  exporter.Add(Spans({"a", "b", "c"}));
  exporter.Stop(kLater);
  ExpectCounts(1, 2, 0);
  EXPECT_THAT(collector_.log(), ElementsAre(HasSubstr("refuses 2 of 3 spans")));
}

TEST_F(SpanExporterTest, FullQueue_DropsItsOldestAndCounts) {
  SpanExporter& exporter = Start({.spans_max = 3});
  collector_.Hold(true);
  exporter.Add(Spans({"sent"}));
  collector_.Await(1);
  exporter.Add(Spans({"a", "b", "c", "d"}));  // beside the one that is being sent
  ExpectCounts(0, 2, 0);
  collector_.Hold(false);
  exporter.Stop(kLater);
  EXPECT_THAT(collector_.Await(2), ElementsAre(ElementsAre("sent"), ElementsAre("c", "d")));
  ExpectCounts(3, 2, 0);
}

TEST_F(SpanExporterTest, QueueIsBoundedInBytes) {
  SpanExporter& exporter = Start({.bytes_max = 3 * OtlpBytes({.name = "a"})});
  collector_.Hold(true);
  exporter.Add(Spans({"a"}));
  collector_.Await(1);
  exporter.Add(Spans({"b", "c", "d"}));
  collector_.Hold(false);
  exporter.Stop(kLater);
  EXPECT_THAT(collector_.Await(2), ElementsAre(ElementsAre("a"), ElementsAre("c", "d")));
}

TEST_F(SpanExporterTest, Stop_DoesNotWaitForACollectorThatIsAway) {
  collector_.Script({NoAnswer(), NoAnswer(), NoAnswer()});
  SpanExporter& exporter = Start({.batch_spans_max = 1});
  collector_.Hold(true);
  exporter.Add(Spans({"a", "b"}));
  collector_.Await(1);
  std::thread opener([this] { collector_.Hold(false); });
  exporter.Stop(kLater);
  opener.join();
  const SpanCounts counts = exporter.counts();
  EXPECT_EQ(counts.exported, 0);
  EXPECT_EQ(counts.dropped, 2);
  exporter.Add(Spans({"c"}));
  EXPECT_EQ(exporter.counts().dropped, 3) << "nobody sends it any more";
}

TEST_F(SpanExporterTest, Stop_EndsARequestThatHangs) {
  SpanExporter& exporter = Start();
  collector_.Hold(true);
  exporter.Add(Spans({"a"}));
  collector_.Await(1);
  exporter.Stop(absl::Now());
  ExpectCounts(0, 1, 1);
}

TEST(Backoff, DoublesUpToItsLimit) {
  const SpanExporterLimits limits;
  std::vector<absl::Duration> waits = {absl::ZeroDuration()};
  for (int i = 0; i < 8; ++i) waits.push_back(BackoffAfter(NoAnswer(), waits.back(), limits));
  EXPECT_THAT(waits, ElementsAre(absl::ZeroDuration(), absl::Seconds(1), absl::Seconds(2),
                                 absl::Seconds(4), absl::Seconds(8), absl::Seconds(16),
                                 absl::Seconds(32), absl::Seconds(60), absl::Seconds(60)));
}

TEST(Backoff, RetryAfter_IsHonouredWithinBounds) {
  const SpanExporterLimits limits;
  const auto wait = [&](absl::Duration asked) {
    return BackoffAfter(Answer(503, asked), absl::Seconds(8), limits);
  };
  EXPECT_EQ(wait(absl::Seconds(3)), absl::Seconds(3));
  EXPECT_EQ(wait(absl::ZeroDuration()), limits.backoff_min);
  EXPECT_EQ(wait(absl::Hours(1000)), limits.retry_after_max);
}

TEST(Verdict, OfEachStatus) {
  for (const int status : {200, 202}) EXPECT_EQ(JudgeReply(Answer(status)), ExportVerdict::kTaken);
  for (const int status : {429, 502, 503, 504}) {
    EXPECT_EQ(JudgeReply(Answer(status)), ExportVerdict::kLater) << status;
  }
  for (const int status : {301, 400, 401, 404, 413, 500, 501}) {
    EXPECT_EQ(JudgeReply(Answer(status)), ExportVerdict::kRefused) << status;
  }
  EXPECT_EQ(JudgeReply(NoAnswer()), ExportVerdict::kLater);
}

}  // namespace
}  // namespace penstock
