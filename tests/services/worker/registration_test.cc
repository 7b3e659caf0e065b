#include "services/worker/registration.h"

#include <memory>
#include <vector>

#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

class RegistrationTest : public ::testing::Test {
 protected:
  std::unique_ptr<Registration> Begin() {
    v1::RegisterWorkerRequest worker;
    worker.set_name("w");
    worker.set_incarnation(5);
    return std::make_unique<Registration>(Registration::Parts{
        .worker = worker,
        .register_worker = [this](const v1::RegisterWorkerRequest& request)
            -> absl::StatusOr<v1::RegisterWorkerResponse> {
          EXPECT_EQ(request.name(), "w");
          const absl::Status status = Next("register", register_answers_);
          if (!status.ok()) return status;
          v1::RegisterWorkerResponse response;
          response.set_heartbeat_interval_ms(absl::ToInt64Milliseconds(interval_));
          return response;
        },
        .heartbeat =
            [this](const v1::HeartbeatRequest& request) -> absl::StatusOr<v1::HeartbeatResponse> {
          EXPECT_EQ(request.incarnation(), 5u);
          EXPECT_EQ(request.job_id(), job_id_);
          const absl::Status status = Next(request.leaving() ? "leave" : "beat",
                                           request.leaving() ? leave_answers_ : beat_answers_);
          if (!status.ok()) return status;
          return v1::HeartbeatResponse();
        },
        .attach =
            [this](const v1::AttachRequest& request, StreamCanceller&) {
              EXPECT_EQ(request.name(), "w");
              EXPECT_EQ(request.incarnation(), 5u);
              return NextAttach();
            },
        .fill_activity = [this](v1::HeartbeatRequest& request) { request.set_job_id(job_id_); },
        .on_change =
            [this](const absl::Status& status) {
              MutexLock lock(mutex_);
              changes_.push_back(status.code());
            },
        .on_refused = [this](const absl::Status&) { (void)Next("refused", {}); }});
  }

  // Logs the call and gives the next of the answers; OK when there is none.
  absl::Status Next(const std::string& call, const std::vector<absl::Status>& answers) {
    MutexLock lock(mutex_);
    const size_t made = std::count(calls_.begin(), calls_.end(), call);
    calls_.push_back(call);
    changed_.NotifyAll();
    return made < answers.size() ? answers[made] : absl::OkStatus();
  }
  // Gives the next of the answers, at the end that of an older build.
  absl::Status NextAttach() {
    MutexLock lock(mutex_);
    ++attached_;
    changed_.NotifyAll();
    if (attach_answers_.empty()) return absl::UnimplementedError("no such method");
    const absl::Status answer = attach_answers_.front();
    attach_answers_.erase(attach_answers_.begin());
    return answer;
  }
  // Waits until the worker has tried to attach so often.
  bool AwaitAttached(int count) {
    MutexLock lock(mutex_);
    const auto until = CondVar::Clock::now() + std::chrono::seconds(20);
    while (attached_ < count && changed_.WaitUntil(mutex_, until)) {
    }
    return attached_ >= count;
  }
  int attached() {
    MutexLock lock(mutex_);
    return attached_;
  }
  // Waits for `count` calls and returns them.
  std::vector<std::string> AwaitCalls(size_t count) {
    MutexLock lock(mutex_);
    const auto until = CondVar::Clock::now() + std::chrono::seconds(20);
    while (calls_.size() < count && changed_.WaitUntil(mutex_, until)) {
    }
    return {calls_.begin(), calls_.begin() + std::min(count, calls_.size())};
  }

  std::vector<absl::Status> register_answers_;
  std::vector<absl::Status> beat_answers_;
  std::vector<absl::Status> leave_answers_;
  std::vector<absl::Status> attach_answers_;
  absl::Duration interval_ = absl::Milliseconds(10);
  std::string job_id_ = "j";
  Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> calls_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::StatusCode> changes_ ABSL_GUARDED_BY(mutex_);
  int attached_ ABSL_GUARDED_BY(mutex_) = 0;
};

using ::testing::ElementsAre;

TEST_F(RegistrationTest, Registered_BeatsOn) {
  const auto registration = Begin();
  EXPECT_THAT(AwaitCalls(4), ElementsAre("register", "beat", "beat", "beat"));
}

TEST_F(RegistrationTest, CoordinatorAway_IsTriedAgain) {
  register_answers_ = {absl::UnavailableError("away"), absl::DeadlineExceededError("slow"),
                       absl::AlreadyExistsError("the old one is still alive")};
  const auto registration = Begin();
  EXPECT_THAT(AwaitCalls(5), ElementsAre("register", "register", "register", "register", "beat"));
}

TEST_F(RegistrationTest, Forgotten_RegistersAgain) {
  beat_answers_ = {absl::OkStatus(), absl::NotFoundError("unknown worker")};
  const auto registration = Begin();
  EXPECT_THAT(AwaitCalls(5), ElementsAre("register", "beat", "beat", "register", "beat"));
}

TEST_F(RegistrationTest, HeartbeatsThatFail_GoOn) {
  beat_answers_ = {absl::UnavailableError("away"), absl::UnavailableError("away")};
  auto registration = Begin();
  EXPECT_THAT(AwaitCalls(4), ElementsAre("register", "beat", "beat", "beat"));
  registration.reset();
  MutexLock lock(mutex_);
  EXPECT_THAT(changes_, ElementsAre(absl::StatusCode::kOk, absl::StatusCode::kUnavailable,
                                    absl::StatusCode::kOk));  // each change once
}

TEST_F(RegistrationTest, RefusedForGood_EndsTrying) {
  register_answers_ = {absl::FailedPreconditionError("protocol versions differ")};
  const auto registration = Begin();
  EXPECT_THAT(AwaitCalls(2), ElementsAre("register", "refused"));
  MutexLock lock(mutex_);
  EXPECT_THAT(changes_, ::testing::IsEmpty()) << "it is not tried again";
}

TEST_F(RegistrationTest, StreamEnds_IsOpenedAgain) {
  attach_answers_ = {absl::UnavailableError("away"), absl::DeadlineExceededError("a minute"),
                     absl::CancelledError("ended")};
  const auto registration = Begin();
  EXPECT_TRUE(AwaitAttached(4));
  AwaitCalls(10);
  EXPECT_EQ(attached(), 4) << "an older build is not asked again";
}

TEST_F(RegistrationTest, StreamEnds_TheNextHeartbeatDoesNotWait) {
  interval_ = absl::Seconds(10);
  attach_answers_ = {absl::UnavailableError("the coordinator is gone")};
  const auto registration = Begin();
  EXPECT_THAT(AwaitCalls(2), ElementsAre("register", "beat"));
}

TEST_F(RegistrationTest, NotAttachedBecauseForgotten_IsTriedAgainOnceItHasRegistered) {
  attach_answers_ = {absl::NotFoundError("unknown worker")};
  beat_answers_ = {absl::NotFoundError("unknown worker")};
  interval_ = absl::Seconds(10);
  const auto registration = Begin();
  EXPECT_TRUE(AwaitAttached(2));
  EXPECT_THAT(AwaitCalls(3), ElementsAre("register", "beat", "register"));
}

bool AwaitMayLeave(const Registration& registration) {
  const auto until = CondVar::Clock::now() + std::chrono::seconds(20);
  while (!registration.may_leave() && CondVar::Clock::now() < until) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  return registration.may_leave();
}

TEST_F(RegistrationTest, Leaves_StaysUntilItIsLetGo) {
  leave_answers_ = {absl::OkStatus(), absl::UnavailableError("away"),
                    absl::UnavailableError("away"), absl::UnavailableError("away")};
  constexpr int kReturns = RegistrationDialogue::kLeavingReturnsMax;
  leave_answers_.resize(leave_answers_.size() + kReturns + 1, absl::NotFoundError("it has left"));
  const auto registration = Begin();
  AwaitCalls(2);
  EXPECT_FALSE(registration->may_leave());
  registration->Leave();
  EXPECT_TRUE(AwaitMayLeave(*registration));
  MutexLock lock(mutex_);
  EXPECT_EQ(std::count(calls_.begin(), calls_.end(), "leave"), 4 + kReturns + 1)
      << "it has a run, so it waits, and asks a coordinator that may be another";
}

TEST_F(RegistrationTest, LeavesWithoutARun_DoesNotWaitForACoordinatorThatIsAway) {
  job_id_.clear();
  leave_answers_ = std::vector<absl::Status>(100, absl::UnavailableError("away"));
  const auto registration = Begin();
  AwaitCalls(2);
  registration->Leave();
  EXPECT_TRUE(AwaitMayLeave(*registration));
}

TEST_F(RegistrationTest, LeavesBeforeItIsRegistered_GoesAtOnce) {
  register_answers_ = std::vector<absl::Status>(1000, absl::UnavailableError("away"));
  const auto registration = Begin();
  AwaitCalls(1);
  registration->Leave();
  EXPECT_TRUE(AwaitMayLeave(*registration));
}

}  // namespace
}  // namespace penstock
