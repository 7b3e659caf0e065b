// Dialogues: events of a job go in, spans come out.
#include "services/tracing/job_spans.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "job/job_trace.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

constexpr int64_t kMs = 1'000'000;
constexpr char kParent[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

// A job of 10 steps that was submitted at 1000 ms; validations after every 4 steps, checkpoints after every 5.
v1::GetJobResponse Record() {
  v1::GetJobResponse record;
  v1::JobSummary& summary = *record.mutable_summary();
  summary.set_job_id("small-1");
  summary.set_name("small");
  summary.set_method("1f1b");
  summary.set_state(v1::JOB_STATE_QUEUED);
  summary.set_submitted_unix_ms(1000);
  summary.set_steps(10);
  record.mutable_spec()->mutable_validation()->set_every_steps(4);
  record.mutable_spec()->mutable_checkpoint()->set_every_steps(5);
  return record;
}

// Numbers the events, and keeps all spans.
class Dialogue {
 public:
  explicit Dialogue(const v1::GetJobResponse& record = Record())
      : summary_(record.summary()), spans_(record) {}

  void Say(int64_t unix_ms, v1::JobEvent event) {
    event.set_sequence(++sequence_);
    event.set_unix_ms(unix_ms);
    events_.push_back(event);
    for (TraceSpan& span : spans_.Add(event)) done_.push_back(std::move(span));
  }
  void State(int64_t unix_ms, v1::JobState state, const std::string& reason = "",
             const std::string& error = "") {
    v1::JobEvent event;
    *event.mutable_state_changed() = summary_;
    event.mutable_state_changed()->set_state(state);
    event.mutable_state_changed()->set_reason(reason);
    event.mutable_state_changed()->set_error(error);
    Say(unix_ms, event);
  }
  void Plan(int64_t unix_ms, int stages) {
    v1::JobEvent event;
    event.mutable_planned();
    for (int i = 0; i < stages; ++i) event.mutable_planned()->add_stages();
    Say(unix_ms, event);
  }
  void Step(int64_t unix_ms, int64_t step) {
    v1::JobEvent event;
    event.mutable_step_done()->set_step(step);
    event.mutable_step_done()->set_loss(10.0 - static_cast<double>(step));
    Say(unix_ms, event);
  }
  void Validation(int64_t unix_ms, int64_t step) {
    v1::JobEvent event;
    event.mutable_validation_done()->set_step(step);
    event.mutable_validation_done()->set_loss(2.5);
    Say(unix_ms, event);
  }
  void Checkpoint(int64_t unix_ms, int64_t step) {
    v1::JobEvent event;
    event.mutable_checkpoint_done()->set_step(step);
    event.mutable_checkpoint_done()->set_directory("/c");
    Say(unix_ms, event);
  }
  void Log(int64_t unix_ms, const std::string& line) {
    v1::JobEvent event;
    event.set_log(line);
    Say(unix_ms, event);
  }

  const std::vector<TraceSpan>& done() const { return done_; }
  const std::vector<v1::JobEvent>& events() const { return events_; }
  const JobSpans& spans() const { return spans_; }
  // "parent/name start..end" of each, in milliseconds.
  std::vector<std::string> Lines() const {
    std::map<SpanId, std::string> names;
    for (const TraceSpan& span : done_) names[span.id] = span.name;
    std::vector<std::string> lines;
    for (const TraceSpan& span : done_) {
      const std::string parent =
          span.parent && names.contains(*span.parent) ? names[*span.parent] + "/" : std::string();
      lines.push_back(parent + span.name + " " + std::to_string(span.start_unix_ns / kMs) + ".." +
                      std::to_string(span.end_unix_ns / kMs));
    }
    return lines;
  }
  const TraceSpan& Find(const std::string& name) const {
    for (const TraceSpan& span : done_) {
      if (span.name == name) return span;
    }
    ADD_FAILURE() << "there is no span " << name;
    static const TraceSpan none;
    return none;
  }

 private:
  v1::JobSummary summary_;
  JobSpans spans_;
  int64_t sequence_ = 0;
  std::vector<v1::JobEvent> events_;
  std::vector<TraceSpan> done_;
};

// Ten steps, each 10 ms, with all their cuts.
Dialogue WholeJob() {
  Dialogue job;
  job.State(1010, v1::JOB_STATE_QUEUED, "waits for 2 workers");
  job.State(1100, v1::JOB_STATE_PREPARING);
  job.Plan(1110, 2);
  job.State(1200, v1::JOB_STATE_RUNNING);
  for (int step = 1; step <= 4; ++step) job.Step(1200 + 10 * step, step);
  job.Validation(1245, 4);
  job.Step(1255, 5);
  job.Step(1265, 6);
  job.Checkpoint(1270, 5);
  job.Step(1275, 7);
  job.Step(1285, 8);
  job.Validation(1290, 8);
  job.Step(1300, 9);
  job.Step(1310, 10);
  job.Checkpoint(1330, 10);
  job.State(1340, v1::JOB_STATE_SUCCEEDED);
  return job;
}

TEST(JobSpans, WholeJob_IsATreeWithTheTimesOfItsEvents) {
  EXPECT_THAT(
      WholeJob().Lines(),
      UnorderedElementsAre("job 1000..1340", "job/queued 1000..1100", "job/preparing 1100..1200",
                           "job/training 1200..1340", "training/steps 1-4 1200..1240",
                           "training/validation 1240..1245", "training/steps 5-5 1245..1255",
                           "training/steps 6-8 1255..1285", "training/checkpoint 1255..1270",
                           "training/validation 1285..1290", "training/steps 9-10 1290..1310",
                           "training/checkpoint 1310..1330"));
}

TEST(JobSpans, EveryMoment_IsInAStateAndInsideTheJob) {
  const Dialogue job = WholeJob();
  const TraceSpan& root = job.Find("job");
  for (const TraceSpan& span : job.done()) {
    EXPECT_LE(span.start_unix_ns, span.end_unix_ns) << span.name;
    EXPECT_GE(span.start_unix_ns, root.start_unix_ns) << span.name;
    EXPECT_LE(span.end_unix_ns, root.end_unix_ns) << span.name;
  }
  EXPECT_EQ(job.Find("queued").end_unix_ns, job.Find("preparing").start_unix_ns);
  EXPECT_EQ(job.Find("preparing").end_unix_ns, job.Find("training").start_unix_ns);
  EXPECT_EQ(job.Find("training").end_unix_ns, root.end_unix_ns);
}

TEST(JobSpans, Attributes_SayWhatTheSpanIs) {
  const Dialogue job = WholeJob();
  EXPECT_THAT(
      job.Find("job").attributes,
      UnorderedElementsAre(
          SpanAttribute{"penstock.job", "small-1"}, SpanAttribute{"penstock.job.name", "small"},
          SpanAttribute{"penstock.method", "1f1b"}, SpanAttribute{"penstock.state", "succeeded"},
          SpanAttribute{"penstock.steps", int64_t{10}},
          SpanAttribute{"penstock.stages", int64_t{2}}, SpanAttribute{"penstock.step", int64_t{10}},
          SpanAttribute{"penstock.loss", 0.0}));
  EXPECT_EQ(job.Find("job").error, std::nullopt);
  EXPECT_THAT(job.Find("preparing").attributes,
              UnorderedElementsAre(SpanAttribute{"penstock.job", "small-1"},
                                   SpanAttribute{"penstock.attempt", int64_t{1}}));
  EXPECT_THAT(job.Find("steps 6-8").attributes,
              UnorderedElementsAre(SpanAttribute{"penstock.job", "small-1"},
                                   SpanAttribute{"penstock.step.first", int64_t{6}},
                                   SpanAttribute{"penstock.step.last", int64_t{8}},
                                   SpanAttribute{"penstock.loss", 2.0}));
  EXPECT_THAT(job.Find("checkpoint").attributes,
              UnorderedElementsAre(SpanAttribute{"penstock.job", "small-1"},
                                   SpanAttribute{"penstock.step", int64_t{5}},
                                   SpanAttribute{"penstock.checkpoint", "/c"}));
  EXPECT_THAT(job.Find("queued").events, ElementsAre(SpanEvent{1010 * kMs, "waits for 2 workers"}));
}

// After a restart the events are read again: nothing may get another id.
TEST(JobSpans, ReadAgain_AreTheSameSpans) {
  const Dialogue job = WholeJob();
  v1::GetJobResponse later = Record();
  later.mutable_summary()->set_state(v1::JOB_STATE_SUCCEEDED);
  later.mutable_summary()->set_step(10);
  JobSpans again(later);
  std::vector<TraceSpan> spans;
  for (const v1::JobEvent& event : job.events()) {
    EXPECT_FALSE(again.ended());
    for (TraceSpan& span : again.Add(event)) spans.push_back(std::move(span));
  }
  EXPECT_EQ(spans, job.done());
  EXPECT_TRUE(again.ended());
  EXPECT_EQ(again.last_sequence(), job.events().back().sequence());
  std::set<SpanId> ids;
  for (const TraceSpan& span : spans) ids.insert(span.id);
  EXPECT_EQ(ids.size(), spans.size());
}

TEST(JobSpans, EventThatCameBefore_ChangesNothing) {
  Dialogue job = WholeJob();
  JobSpans spans(Record());
  std::vector<TraceSpan> done;
  for (const v1::JobEvent& event : job.events()) {
    for (int times = 0; times < 2; ++times) {
      for (TraceSpan& span : spans.Add(event)) done.push_back(std::move(span));
    }
  }
  EXPECT_EQ(done, job.done());
}

TEST(JobSpans, OfASubmissionThatIsTraced_AreBelowIt) {
  v1::GetJobResponse record = Record();
  record.set_traceparent(kParent);
  Dialogue job(record);
  job.State(1100, v1::JOB_STATE_CANCELLED, "cancelled by the user");
  const TraceContext parent = *ParseTraceparent(kParent);
  for (const TraceSpan& span : job.done()) EXPECT_EQ(span.trace_id, parent.trace_id);
  EXPECT_EQ(job.Find("job").parent, parent.span_id);
  EXPECT_EQ(job.Find("job").id, JobTraceOf(record).span_id);
  EXPECT_EQ(job.Find("queued").parent, job.Find("job").id);
}

TEST(JobSpans, NotSampled_IsSaid) {
  v1::GetJobResponse record = Record();
  EXPECT_TRUE(JobSpans(record).sampled());
  record.set_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
  EXPECT_FALSE(JobSpans(record).sampled());
}

TEST(JobSpans, FailedJob_HasTheError) {
  Dialogue job;
  job.State(1100, v1::JOB_STATE_PREPARING);
  job.State(1200, v1::JOB_STATE_FAILED, "", "worker w0: no such file");
  EXPECT_THAT(job.Lines(),
              ElementsAre("job/queued 1000..1100", "job/preparing 1100..1200", "job 1000..1200"));
  EXPECT_EQ(job.Find("job").error, "worker w0: no such file");
}

// A drain for a new split, or a recovery, prepares once more and repeats steps.
TEST(JobSpans, SecondAttempt_IsAnotherSpan) {
  Dialogue job;
  job.State(1100, v1::JOB_STATE_PREPARING);
  job.State(1200, v1::JOB_STATE_RUNNING);
  job.Step(1210, 1);
  job.Step(1220, 2);
  job.Step(1230, 3);
  job.State(1240, v1::JOB_STATE_QUEUED, "goes on from step 1");
  job.State(1300, v1::JOB_STATE_PREPARING);
  job.State(1400, v1::JOB_STATE_RUNNING);
  job.Step(1410, 2);
  job.State(1420, v1::JOB_STATE_DRAINING, "cancelled by the user");
  job.Step(1430, 3);
  job.Checkpoint(1440, 3);
  job.State(1450, v1::JOB_STATE_CANCELLED, "cancelled by the user");
  EXPECT_THAT(job.Lines(),
              ElementsAre("job/queued 1000..1100", "job/preparing 1100..1200",
                          "training/steps 1-3 1200..1230", "job/training 1200..1240",
                          "job/queued 1240..1300", "job/preparing 1300..1400",
                          "training/steps 2-2 1400..1410", "job/training 1400..1420",
                          "draining/steps 3-3 1420..1430", "draining/checkpoint 1430..1440",
                          "job/draining 1420..1450", "job 1000..1450"));
  std::vector<SpanAttribute> attempts;
  for (const TraceSpan& span : job.done()) {
    if (span.name == "preparing") attempts.push_back(span.attributes.back());
  }
  EXPECT_THAT(attempts, ElementsAre(SpanAttribute{"penstock.attempt", int64_t{1}},
                                    SpanAttribute{"penstock.attempt", int64_t{2}}));
  EXPECT_EQ(job.Find("job").error, std::nullopt) << "cancelling is no error";
}

// Two workers tell of the step and of the validation after it.
TEST(JobSpans, ValidationThatComesBeforeItsStep_StartsNoStep) {
  Dialogue job;
  job.State(1100, v1::JOB_STATE_PREPARING);
  job.State(1200, v1::JOB_STATE_RUNNING);
  for (int step = 1; step <= 3; ++step) job.Step(1200 + 10 * step, step);
  job.Validation(1250, 4);
  job.Step(1251, 4);
  job.Step(1260, 5);
  job.State(1300, v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(job.Lines(), testing::IsSupersetOf({"training/steps 1-4 1200..1251",
                                                  "training/validation 1230..1250",
                                                  "training/steps 5-5 1251..1260"}));
}

TEST(JobSpans, MoreLogLinesThanAreKept_AreCounted) {
  Dialogue job;
  for (int i = 0; i < 50; ++i) job.Log(1001 + i, "line " + std::to_string(i));
  job.State(1100, v1::JOB_STATE_PREPARING);
  const TraceSpan& queued = job.Find("queued");
  ASSERT_EQ(queued.events.size(), JobSpans::kEventsMax);
  EXPECT_EQ(queued.events.front(), (SpanEvent{1001 * kMs, "line 0"}));
  EXPECT_EQ(queued.dropped_events, 50 - static_cast<int64_t>(JobSpans::kEventsMax));
}

TEST(JobSpans, ClockThatIsSetBack_MakesNoSpanEndBeforeItBegan) {
  Dialogue job;
  job.State(900, v1::JOB_STATE_PREPARING);
  job.State(800, v1::JOB_STATE_RUNNING);
  job.Step(700, 4);
  job.Validation(600, 4);
  job.Checkpoint(500, 4);
  job.State(400, v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(job.done().size(), 7u);
  for (const TraceSpan& span : job.done())
    EXPECT_GE(span.end_unix_ns, span.start_unix_ns) << span.name;
}

TEST(JobSpans, Profile_Measures) {
  v1::GetJobResponse record = Record();
  record.mutable_profile_spec();
  Dialogue job(record);
  job.State(1100, v1::JOB_STATE_RUNNING);
  v1::JobEvent progress;
  progress.mutable_profile_progress()->set_done(1);
  job.Say(1150, progress);
  job.State(1200, v1::JOB_STATE_SUCCEEDED);
  EXPECT_THAT(job.Lines(),
              ElementsAre("job/queued 1000..1100", "job/measuring 1100..1200", "job 1000..1200"));
}

}  // namespace
}  // namespace penstock
