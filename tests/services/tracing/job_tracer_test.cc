// JobTracer with a store that is played.
#include "services/tracing/job_tracer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Records and events of jobs, in pages of two; and the spans that were made of them.
class Store {
 public:
  void AddJob(const std::string& job_id, const std::string& traceparent = "") {
    MutexLock lock(mutex_);
    v1::GetJobResponse& record = records_[job_id];
    record.mutable_summary()->set_job_id(job_id);
    record.mutable_summary()->set_submitted_unix_ms(1000);
    record.set_traceparent(traceparent);
  }
  // Returns its number.
  int64_t AddState(const std::string& job_id, v1::JobState state) {
    MutexLock lock(mutex_);
    v1::JobEvent event;
    event.set_sequence(static_cast<int64_t>(events_[job_id].size()) + 1);
    event.set_unix_ms(1000 + 10 * event.sequence());
    event.mutable_state_changed()->set_state(state);
    events_[job_id].push_back(event);
    return event.sequence();
  }
  void Fail(const absl::Status& status) {
    MutexLock lock(mutex_);
    failure_ = status;
  }

  absl::StatusOr<v1::GetJobResponse> Record(const std::string& job_id) {
    MutexLock lock(mutex_);
    ++reads_;
    changed_.NotifyAll();
    if (!failure_.ok()) return failure_;
    const auto found = records_.find(job_id);
    if (found == records_.end()) return absl::NotFoundError("there is no job " + job_id);
    return found->second;
  }
  absl::StatusOr<std::vector<v1::JobEvent>> Events(const std::string& job_id, int64_t after) {
    MutexLock lock(mutex_);
    std::vector<v1::JobEvent> page;
    for (const v1::JobEvent& event : events_[job_id]) {
      if (event.sequence() > after && page.size() < 2) page.push_back(event);
    }
    return page;
  }
  void Take(std::vector<TraceSpan> spans) {
    MutexLock lock(mutex_);
    for (TraceSpan& span : spans) spans_.push_back(std::move(span));
    changed_.NotifyAll();
  }
  void Log(const std::string& line) {
    MutexLock lock(mutex_);
    log_.push_back(line);
    changed_.NotifyAll();
  }
  template <typename Condition>
  bool Await(const Condition& condition) {
    MutexLock lock(mutex_);
    const auto until = CondVar::Clock::now() + std::chrono::seconds(20);
    while (!condition(*this)) {
      if (!changed_.WaitUntil(mutex_, until)) return false;
    }
    return true;
  }
  std::vector<std::string> names() {
    MutexLock lock(mutex_);
    std::vector<std::string> names;
    for (const TraceSpan& span : spans_) names.push_back(span.name);
    return names;
  }

  Mutex mutex_;
  CondVar changed_;
  std::map<std::string, v1::GetJobResponse> records_;
  std::map<std::string, std::vector<v1::JobEvent>> events_;
  std::vector<TraceSpan> spans_;
  std::vector<std::string> log_;
  absl::Status failure_;
  int reads_ = 0;  // of records
};

std::unique_ptr<JobTracer> Start(Store& store) {
  return std::make_unique<JobTracer>(JobTracer::Parts{
      .record = [&store](const std::string& job_id) { return store.Record(job_id); },
      .events = [&store](const std::string& job_id,
                         int64_t after) { return store.Events(job_id, after); },
      .add = [&store](std::vector<TraceSpan> spans) { store.Take(std::move(spans)); },
      .log = [&store](const std::string& line) { store.Log(line); },
      .read_interval = absl::Milliseconds(1)});
}

TEST(JobTracer, Job_IsReadToItsEndAsItGoes) {
  Store store;
  store.AddJob("a");
  const auto tracer = Start(store);
  tracer->Wake("a", store.AddState("a", v1::JOB_STATE_PREPARING));
  ASSERT_TRUE(store.Await([](Store& s) { return s.spans_.size() == 1; }));
  tracer->Wake("a", store.AddState("a", v1::JOB_STATE_RUNNING));
  ASSERT_TRUE(store.Await([](Store& s) { return s.spans_.size() == 2; }));
  tracer->Wake("a", store.AddState("a", v1::JOB_STATE_SUCCEEDED));
  ASSERT_TRUE(store.Await([](Store& s) { return s.spans_.size() == 4; }));
  EXPECT_THAT(store.names(), ElementsAre("queued", "preparing", "training", "job"));
  EXPECT_EQ(store.reads_, 1) << "its record is read once";
}

TEST(JobTracer, UnknownJob_IsReadFromItsFirstEvent) {
  Store store;
  store.AddJob("a");
  int64_t last = 0;
  for (const v1::JobState state : {v1::JOB_STATE_PREPARING, v1::JOB_STATE_RUNNING,
                                   v1::JOB_STATE_DRAINING, v1::JOB_STATE_CANCELLED}) {
    last = store.AddState("a", state);
  }
  Start(store)->Wake("a", last);  // and is stopped at once: it reads what there is
  EXPECT_THAT(store.names(), ElementsAre("queued", "preparing", "training", "draining", "job"));
}

TEST(JobTracer, NotSampled_HasNoSpans) {
  Store store;
  store.AddJob("a", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
  Start(store)->Wake("a", store.AddState("a", v1::JOB_STATE_CANCELLED));
  EXPECT_EQ(store.reads_, 1);
  EXPECT_THAT(store.names(), IsEmpty());
}

TEST(JobTracer, StoreThatIsBusy_IsAskedAgain) {
  Store store;
  store.AddJob("a");
  store.Fail(absl::DeadlineExceededError("busy"));
  const auto tracer = Start(store);
  tracer->Wake("a", store.AddState("a", v1::JOB_STATE_CANCELLED));
  ASSERT_TRUE(store.Await([](Store& s) { return s.reads_ >= 3; }));
  store.Fail(absl::OkStatus());
  EXPECT_TRUE(store.Await([](Store& s) { return s.spans_.size() == 2; }));
}

TEST(JobTracer, JobThatCannotBeRead_IsGivenUpAndSaid) {
  Store store;
  store.AddJob("b");
  const auto tracer = Start(store);
  tracer->Wake("a", 1);
  tracer->Wake("b", store.AddState("b", v1::JOB_STATE_CANCELLED));
  ASSERT_TRUE(store.Await([](Store& s) { return s.spans_.size() == 2 && s.log_.size() == 1; }));
  EXPECT_THAT(store.log_, ElementsAre(HasSubstr("job a has no more spans")));
}

}  // namespace
}  // namespace penstock
