#include "services/worker/run_host.h"

#include <future>
#include <limits>
#include <optional>
#include <thread>

#include "base/seen_epoch.h"
#include "penstock/v1/cluster.grpc.pb.h"
#include "services/rpc/channel.h"
#include "services/rpc/client.h"
#include "services/worker/job_backend.h"
#include "services/worker/worker_service.h"
#include "tests/compute/two_pools.h"
#include "tests/support/manual_clock.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::HasSubstr;

absl::Time InAWhile() { return absl::Now() + absl::Seconds(20); }
absl::Time Soon() { return absl::Now() + absl::Milliseconds(30); }

// What the test and its runs share: who was made, in which order things ended.
struct Script {
  absl::Status prepare;
  std::function<void()> while_preparing = [] {};
  Mutex mutex;
  CondVar changed;
  std::vector<std::string> log ABSL_GUARDED_BY(mutex);
  bool finish ABSL_GUARDED_BY(mutex) = false;  // lets Execute return OK

  void Log(const std::string& line) {
    MutexLock lock(mutex);
    log.push_back(line);
    changed.NotifyAll();
  }
  void Finish() {
    MutexLock lock(mutex);
    finish = true;
    changed.NotifyAll();
  }
  bool AwaitLog(const std::string& line) {
    MutexLock lock(mutex);
    const auto until = CondVar::Clock::now() + std::chrono::seconds(20);
    while (std::find(log.begin(), log.end(), line) == log.end()) {
      if (!changed.WaitUntil(mutex, until)) return false;
    }
    return true;
  }
  std::vector<std::string> Lines() {
    MutexLock lock(mutex);
    return log;
  }
};

class ScriptedTransport : public Transport {
 public:
  explicit ScriptedTransport(Script& script) : script_(script) {}
  ~ScriptedTransport() override { script_.Log("left"); }
  absl::StatusOr<std::unique_ptr<Sender>> OpenSender(const EdgeId&, int, int64_t) override {
    return absl::UnimplementedError("no edges here");
  }
  absl::StatusOr<std::unique_ptr<Receiver>> OpenReceiver(const EdgeId&, int, int64_t,
                                                         BufferPool&) override {
    return absl::UnimplementedError("no edges here");
  }
  void Cancel(const absl::Status&) override { script_.Log("cancelled"); }

 private:
  Script& script_;
};

class ScriptedRun : public Run {
 public:
  ScriptedRun(Script& script, int64_t epoch) : script_(script), epoch_(epoch) {}
  ~ScriptedRun() override { script_.Log(absl::StrCat("dropped ", epoch_)); }

  absl::Status Execute() override {
    script_.Log(absl::StrCat("executing ", epoch_));
    MutexLock lock(script_.mutex);
    const auto until = CondVar::Clock::now() + std::chrono::seconds(20);
    while (!script_.finish && stopped_.empty()) {
      if (!script_.changed.WaitUntil(script_.mutex, until))
        return absl::InternalError("test hangs");
    }
    return stopped_.empty() ? absl::OkStatus() : absl::AbortedError(stopped_);
  }
  absl::StatusOr<int64_t> Hold() override { return 42; }
  absl::Status CutAt(int64_t step) override {
    return step >= 42 ? absl::OkStatus() : absl::FailedPreconditionError("below the held step");
  }
  void Stop(const std::string& reason) override {
    MutexLock lock(script_.mutex);
    stopped_ = reason;
    script_.changed.NotifyAll();
  }
  std::string schedule_digest() const override { return absl::StrCat("digest ", epoch_); }
  int64_t memory_bytes() const override { return 1000; }
  int64_t actions_done() const override { return 7; }
  std::vector<v1::StageReport> Reports() const override { return std::vector<v1::StageReport>(2); }
  Timeline RecentTimeline() const override {
    return {.workers = 1, .spans = {{.start_ns = epoch_, .end_ns = epoch_ + 1}}};
  }

 private:
  Script& script_;
  const int64_t epoch_;
  std::string stopped_;  // guarded by the script's mutex
};

class RunHostTest : public ::testing::Test {
 protected:
  RunHostParts Parts() {
    return {.describe_device =
                [] {
                  return absl::StatusOr<DeviceDescription>({"a device", 1 << 20});
                },
            .check = [this](const RunRequest&) { return meant_; },
            .make_backend = [](const RunRequest&) { return MakeCpuBackend(1); },
            .join =
                [this](const RunRequest&) {
                  return absl::StatusOr<std::unique_ptr<Transport>>(
                      std::make_unique<ScriptedTransport>(script_));
                },
            .prepare = [this](const RunRequest& request, Backend&, Transport&,
                              const std::function<void(v1::RunEvent)>&,
                              const std::function<absl::Status()>& may_go_on)
                -> absl::StatusOr<std::unique_ptr<penstock::Run>> {
              script_.while_preparing();
              if (!may_go_on().ok()) script_.Log("told to stop preparing");
              if (!script_.prepare.ok()) return script_.prepare;
              const int64_t epoch =
                  std::visit([](const auto& typed) { return typed.epoch(); }, request);
              return std::make_unique<ScriptedRun>(script_, epoch);
            },
            .on_attempt =
                [this](const std::string& job, int64_t epoch, const std::optional<TraceContext>&) {
                  script_.Log(absl::StrCat("attempt ", job, " ", epoch));
                },
            .on_event =
                [this](const v1::RunEvent& event) {
                  script_.Log(absl::StrCat("failed: ", event.run_failed().message()));
                }};
  }
  absl::StatusOr<v1::PrepareRunResponse> Prepare(const std::string& job, int64_t epoch,
                                                 absl::Time deadline = InAWhile()) {
    v1::PrepareRunRequest request;
    request.set_job_id(job);
    request.set_epoch(epoch);
    return host_.Prepare(request, deadline);
  }
  void StartRun(const std::string& job, int64_t epoch) {
    ASSERT_THAT(Prepare(job, epoch), IsOk());
    ASSERT_THAT(host_.Start(job, epoch), IsOk());
    ASSERT_TRUE(script_.AwaitLog(absl::StrCat("executing ", epoch)));
  }

  Script script_;
  absl::Status meant_;  // what the host is told of every request to prepare
  RunHost host_{Parts()};
};

TEST_F(RunHostTest, WholeLife_PrepareStartHoldCutEnd) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::PrepareRunResponse prepared, Prepare("j", 1));
  EXPECT_EQ(prepared.schedule_digest(), "digest 1");
  EXPECT_EQ(prepared.memory_bytes(), 1000);
  EXPECT_THAT(host_.Start("j", 1), IsOk());
  EXPECT_THAT(host_.Hold("j", 1), IsOkAndHolds(42));
  EXPECT_THAT(host_.Cut("j", 1, 41), StatusIs(absl::StatusCode::kFailedPrecondition, _));
  EXPECT_THAT(host_.Cut("j", 1, 43), IsOk());
  EXPECT_TRUE(host_.GetActivity(false).active);
  script_.Finish();
  EXPECT_TRUE(host_.AwaitIdle(InAWhile()));
  EXPECT_THAT(script_.Lines(),
              ::testing::ElementsAre("attempt j 1", "executing 1", "dropped 1", "left"));
}

TEST_F(RunHostTest, AfterTheEnd_NumbersAndTimelineRemain) {
  StartRun("j", 3);
  script_.Finish();
  ASSERT_TRUE(host_.AwaitIdle(InAWhile()));
  const RunHost::Activity activity = host_.GetActivity(true);
  EXPECT_FALSE(activity.active);
  EXPECT_EQ(activity.job_id, "j");
  EXPECT_EQ(activity.epoch, 3);
  EXPECT_EQ(activity.actions_done, 7);
  EXPECT_EQ(activity.stages.size(), 2u);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Timeline timeline, host_.RecentTimeline("j"));
  ASSERT_EQ(timeline.spans.size(), 1u);
  EXPECT_EQ(timeline.spans[0].start_ns, 3);
  EXPECT_THAT(host_.Hold("j", 3), StatusIs(absl::StatusCode::kFailedPrecondition, _));
}

TEST_F(RunHostTest, TimelineCall_GivesTheLastMomentsAndTheStagesIfAsked) {
  StartRun("j", 3);  // its one span is from 3 to 4 ns
  ManualClock clock(/*start_ns=*/1000);
  RpcServer server({.listen = {"127.0.0.1", 0}});
  const TermFence terms;
  AddWorkerControl(server, host_, terms, clock);
  ASSERT_THAT(server.Start(), IsOk());
  const auto stub = v1::WorkerControl::NewStub(
      MakeControlChannel(server.address().ToString(), grpc::InsecureChannelCredentials()));
  const auto ask = [&](int64_t last_ns, bool with_stages) {
    v1::GetRunTimelineRequest request;
    request.set_job_id("j");
    request.set_last_ns(last_ns);
    request.set_with_stages(with_stages);
    const auto response =
        Call("worker", *stub, &v1::WorkerControl::Stub::GetRunTimeline, request, absl::Seconds(20));
    EXPECT_THAT(response, IsOk());
    return response.value_or(v1::GetRunTimelineResponse());
  };
  EXPECT_EQ(ask(0, false).spans_size(), 1);
  EXPECT_EQ(ask(996, false).spans_size(), 1);
  EXPECT_EQ(ask(995, false).spans_size(), 0);
  EXPECT_EQ(ask(0, false).stages_size(), 0);
  const v1::GetRunTimelineResponse all = ask(0, true);
  EXPECT_EQ(all.stages_size(), 2);
  EXPECT_EQ(all.spans_size(), 1);
  EXPECT_EQ(all.monotonic_ns(), 1000);
  script_.Finish();
}

// A coordinator that was deposed knows the run that its successor has gone on with.
TEST_F(RunHostTest, CallsOfAnEarlierTerm_AreRefusedAndChangeNothing) {
  StartRun("j", 3);
  ManualClock clock(/*start_ns=*/1000);
  RpcServer server({.listen = {"127.0.0.1", 0}});
  TermFence terms;
  AddWorkerControl(server, host_, terms, clock);
  ASSERT_THAT(server.Start(), IsOk());
  const auto stub = v1::WorkerControl::NewStub(
      MakeControlChannel(server.address().ToString(), grpc::InsecureChannelCredentials()));
  const auto ask = [&]<typename Request>(const auto method, Request request, int64_t term) {
    request.set_job_id("j");
    request.set_epoch(3);
    request.set_term(term);
    return Call("worker", *stub, method, request, absl::Seconds(20)).status();
  };
  using Stub = v1::WorkerControl::Stub;
  terms.OnRegistered(7);
  const auto is_refused = StatusIs(absl::StatusCode::kAborted, HasSubstr("term 7 leads"));
  EXPECT_THAT(ask(&Stub::PrepareRun, v1::PrepareRunRequest(), 6), is_refused);
  EXPECT_THAT(ask(&Stub::PrepareProfile, v1::PrepareProfileRequest(), 6), is_refused);
  EXPECT_THAT(ask(&Stub::StartRun, v1::StartRunRequest(), 6), is_refused);
  EXPECT_THAT(ask(&Stub::HoldRun, v1::HoldRunRequest(), 6), is_refused);
  EXPECT_THAT(ask(&Stub::CutRun, v1::CutRunRequest(), 6), is_refused);
  EXPECT_THAT(ask(&Stub::StopRun, v1::StopRunRequest(), 6), is_refused);
  EXPECT_TRUE(host_.GetActivity(/*with_stages=*/false).active);
  for (const int64_t term : {0, 7, 8}) {  // 0: of an older build
    EXPECT_THAT(ask(&Stub::HoldRun, v1::HoldRunRequest(), term), IsOk());
  }
  terms.OnRegistered(5);  // its store was put back
  EXPECT_THAT(ask(&Stub::HoldRun, v1::HoldRunRequest(), 5), IsOk());
  script_.Finish();
}

TEST_F(RunHostTest, ProfilePreparedTwice_IsOneAttemptThatStartsAndStopsLikeAnyOther) {
  v1::PrepareProfileRequest request;
  request.set_job_id("p");
  request.set_epoch(3);
  EXPECT_THAT(host_.Prepare(request, InAWhile()), IsOk());
  EXPECT_THAT(host_.Prepare(request, InAWhile()), IsOk());
  EXPECT_THAT(host_.Start("p", 3), IsOk());
  ASSERT_TRUE(script_.AwaitLog("executing 3"));
  EXPECT_THAT(host_.Stop("p", 3, "cancelled", InAWhile()), IsOk());
  EXPECT_THAT(host_.Prepare(request, InAWhile()),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("p")));
  const auto lines = script_.Lines();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "attempt p 3"), 1);
}

TEST_F(RunHostTest, RepeatedCalls_HaveTheEffectOfOne) {
  ASSERT_THAT(Prepare("j", 1), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::PrepareRunResponse again, Prepare("j", 1));
  EXPECT_EQ(again.schedule_digest(), "digest 1");
  EXPECT_THAT(host_.Start("j", 1), IsOk());
  EXPECT_THAT(host_.Start("j", 1), IsOk());
  script_.Finish();
  ASSERT_TRUE(host_.AwaitIdle(InAWhile()));
  EXPECT_THAT(host_.Start("j", 1), IsOk());  // its first answer was lost
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::PrepareRunResponse late, Prepare("j", 1));
  EXPECT_EQ(late.schedule_digest(), "digest 1");
  EXPECT_THAT(host_.Stop("j", 1, "done", InAWhile()), IsOk());
  EXPECT_THAT(host_.Stop("j", 1, "done", InAWhile()), IsOk());
  const auto lines = script_.Lines();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), "attempt j 1"), 1);
}

// As a GPU after an error of a kernel.
class BrokenDevice : public TwoPools {
 public:
  absl::Status CheckUsable() override { return absl::UnavailableError("illegal address"); }
};

class RunHostDevices : public RunHostTest {
 protected:
  // Lets an attempt fail on a device. Returns how the next one is taken; `lost`: what is told of the device.
  absl::Status SecondAttemptOn(
      std::function<absl::StatusOr<std::unique_ptr<Backend>>()> make_device,
      std::vector<std::string>& lost) {
    RunHostParts parts = Parts();
    parts.make_backend = [make_device](const RunRequest&) { return make_device(); };
    parts.on_device_lost = [&lost](const absl::Status& status) {
      lost.emplace_back(status.message());
    };
    RunHost host(std::move(parts));  // its thread has ended when this returns
    const auto prepare = [&host](int64_t epoch) {
      v1::PrepareRunRequest request;
      request.set_job_id("j");
      request.set_epoch(epoch);
      return host.Prepare(request, InAWhile()).status();
    };
    script_.prepare = absl::InternalError("a kernel failed");
    EXPECT_THAT(prepare(1), StatusIs(absl::StatusCode::kInternal, "a kernel failed"));
    script_.prepare = absl::OkStatus();
    return prepare(2);
  }
};

TEST_F(RunHostDevices, AttemptFailedOnABrokenDevice_NoOtherIsTaken) {
  std::vector<std::string> lost;
  EXPECT_THAT(SecondAttemptOn([] { return std::make_unique<BrokenDevice>(); }, lost),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("illegal address")));
  EXPECT_THAT(lost, ::testing::ElementsAre("illegal address"));
}

TEST_F(RunHostDevices, AttemptFailedOnAGoodDevice_TheNextIsTaken) {
  std::vector<std::string> lost;
  EXPECT_THAT(SecondAttemptOn([] { return MakeCpuBackend(1); }, lost), IsOk());
  EXPECT_THAT(lost, ::testing::IsEmpty());
}

TEST_F(RunHostTest, Prepare_ThatFails_GivesItsErrorEachTime) {
  script_.prepare = absl::NotFoundError("no such text");
  EXPECT_THAT(Prepare("j", 1), StatusIs(absl::StatusCode::kNotFound, "no such text"));
  EXPECT_THAT(Prepare("j", 1), StatusIs(absl::StatusCode::kNotFound, "no such text"));
  EXPECT_THAT(host_.Start("j", 1),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not prepared")));
  script_.prepare = absl::OkStatus();
  EXPECT_THAT(Prepare("j", 2), IsOk());
}

TEST_F(RunHostTest, Prepare_LongerThanTheCall_IsAnsweredByTheNext) {
  std::promise<void> gate;
  script_.while_preparing = [open = gate.get_future().share()] { open.wait(); };
  EXPECT_THAT(Prepare("j", 1, Soon()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("call again")));
  EXPECT_TRUE(host_.GetActivity(false).active);
  EXPECT_TRUE(host_.GetActivity(false).preparing);
  gate.set_value();
  EXPECT_THAT(Prepare("j", 1), IsOk());
  EXPECT_TRUE(host_.GetActivity(false).active);
  EXPECT_FALSE(host_.GetActivity(false).preparing);
}

TEST_F(RunHostTest, Start_WithoutPrepare_IsRefused) {
  EXPECT_THAT(host_.Start("j", 1), StatusIs(absl::StatusCode::kFailedPrecondition,
                                            AllOf(HasSubstr("job j"), HasSubstr("epoch 1"))));
}

TEST_F(RunHostTest, Stop_OfARunningRun_EndsIt) {
  StartRun("j", 1);
  EXPECT_THAT(host_.Stop("j", 1, "enough", InAWhile()), IsOk());
  EXPECT_FALSE(host_.GetActivity(false).active);
}

TEST_F(RunHostTest, Stop_OfAPreparedRun_DropsItAndTellsThePeers) {
  ASSERT_THAT(Prepare("j", 1), IsOk());
  EXPECT_THAT(host_.Stop("j", 1, "enough", InAWhile()), IsOk());
  EXPECT_THAT(script_.Lines(),
              ::testing::ElementsAre("attempt j 1", "cancelled", "dropped 1", "left"));
}

TEST_F(RunHostTest, Stop_WhilePreparing_EndsItThen) {
  std::promise<void> gate;
  script_.while_preparing = [open = gate.get_future().share()] { open.wait(); };
  EXPECT_THAT(Prepare("j", 1, Soon()), StatusIs(absl::StatusCode::kDeadlineExceeded, _));
  EXPECT_THAT(host_.Stop("j", 1, "enough", Soon()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, _));
  gate.set_value();
  EXPECT_THAT(host_.Stop("j", 1, "enough", InAWhile()), IsOk());
  EXPECT_TRUE(script_.AwaitLog("told to stop preparing"));
}

TEST_F(RunHostTest, Stop_BeforeItsPrepareArrives_KeepsItOut) {
  EXPECT_THAT(host_.Stop("j", 4, "cancelled", InAWhile()), IsOk());
  EXPECT_THAT(Prepare("j", 4), StatusIs(absl::StatusCode::kAborted, HasSubstr("epoch 4")));
  EXPECT_THAT(Prepare("j", 5), IsOk());
  EXPECT_THAT(Prepare("k", 1), IsOk());  // epochs of jobs have nothing to do with each other
}

TEST_F(RunHostTest, OlderEpoch_IsRefusedEverywhere) {
  StartRun("j", 3);
  EXPECT_THAT(Prepare("j", 2), StatusIs(absl::StatusCode::kAborted, _));
  EXPECT_THAT(host_.Start("j", 2), StatusIs(absl::StatusCode::kAborted, _));
  EXPECT_THAT(host_.Hold("j", 2), StatusIs(absl::StatusCode::kAborted, _));
  EXPECT_THAT(host_.Cut("j", 2, 50), StatusIs(absl::StatusCode::kAborted, _));
  EXPECT_EQ(host_.rejected().count(Rejection::kStaleEpoch), 4);
  EXPECT_THAT(host_.Stop("j", 2, "old news", InAWhile()), IsOk());  // nothing of it is left
  EXPECT_TRUE(host_.GetActivity(false).active);
}

// A call that was on its way when the worker was started again, or while another coordinator was there.
TEST_F(RunHostTest, PrepareForAnotherLifeOfTheWorker_LeavesTheRunAlone) {
  StartRun("j", 3);
  meant_ = absl::FailedPreconditionError("plan of job k is for incarnation 7, this is 8");
  EXPECT_THAT(Prepare("k", 9),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("incarnation 7")));
  EXPECT_THAT(Prepare("j", 4), StatusIs(absl::StatusCode::kFailedPrecondition, _));
  EXPECT_EQ(host_.rejected().count(Rejection::kStaleEpoch), 2);
  meant_ = absl::InvalidArgumentError("plan of job k, epoch 9: no stages");
  EXPECT_THAT(Prepare("k", 9), StatusIs(absl::StatusCode::kInvalidArgument, _));
  EXPECT_EQ(host_.rejected().count(Rejection::kMalformed), 1);
  EXPECT_THAT(host_.Hold("j", 3), IsOkAndHolds(42)) << "no later epoch has begun either";
  EXPECT_TRUE(host_.GetActivity(false).active);
  EXPECT_THAT(script_.Lines(), ::testing::ElementsAre("attempt j 3", "executing 3"));
}

// Whichever job they are of: the one that runs, one that was stopped, or one that is not known here.
TEST_F(RunHostTest, StaleCalls_LeaveTheRunAlone) {
  ASSERT_THAT(host_.Stop("old", 5, "cancelled", InAWhile()), IsOk());
  StartRun("j", 3);
  for (const std::string job : {"j", "old"}) {
    for (const int64_t epoch : {1, 2}) {
      EXPECT_THAT(Prepare(job, epoch), StatusIs(absl::StatusCode::kAborted, _));
      EXPECT_THAT(host_.Start(job, epoch), StatusIs(absl::StatusCode::kAborted, _));
      EXPECT_THAT(host_.Hold(job, epoch), StatusIs(absl::StatusCode::kAborted, _));
      EXPECT_THAT(host_.Cut(job, epoch, 50), StatusIs(absl::StatusCode::kAborted, _));
      EXPECT_THAT(host_.Stop(job, epoch, "old news", InAWhile()), IsOk());
    }
  }
  EXPECT_THAT(host_.Start("unknown", 9), StatusIs(absl::StatusCode::kFailedPrecondition, _));
  EXPECT_THAT(host_.Hold("unknown", 9), StatusIs(absl::StatusCode::kFailedPrecondition, _));
  EXPECT_THAT(host_.Cut("unknown", 9, 50), StatusIs(absl::StatusCode::kFailedPrecondition, _));
  EXPECT_THAT(host_.Stop("unknown", 9, "old news", InAWhile()), IsOk());
  EXPECT_THAT(host_.Hold("j", 3), IsOkAndHolds(42));
  EXPECT_THAT(script_.Lines(), ::testing::ElementsAre("attempt j 3", "executing 3"));
}

// So that a coordinator without its records can go on above them.
TEST_F(RunHostTest, OlderEpoch_IsToldWhichWasSeen) {
  EXPECT_THAT(host_.Stop("j", 4, "cancelled", InAWhile()), IsOk());
  EXPECT_EQ(SeenEpochOf(Prepare("j", 4).status()), 4);
  EXPECT_EQ(SeenEpochOf(host_.Start("j", 2)), 4);
  StartRun("j", 7);
  EXPECT_EQ(SeenEpochOf(Prepare("j", 6).status()), 7);
  EXPECT_EQ(SeenEpochOf(host_.Hold("j", 9).status()), std::nullopt) << "not for its epoch";
  EXPECT_THAT(host_.Stop("j", 3, "old news", InAWhile()), IsOk());
  EXPECT_EQ(SeenEpochOf(Prepare("j", 6).status()), 7) << "an older stop takes nothing back";
}

// Of a coordinator that lost its records: what it takes for a repetition would be a run that it does not know.
TEST_F(RunHostTest, OtherAttemptOfTheSameEpoch_IsRefusedAndTheRunGoesOn) {
  StartRun("j", 3);
  v1::PrepareRunRequest other;
  other.set_job_id("j");
  other.set_epoch(3);
  other.set_first_step(10);
  const absl::Status refused = host_.Prepare(other, InAWhile()).status();
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kAborted,
                                AllOf(HasSubstr("job j"), HasSubstr("another attempt"))));
  EXPECT_EQ(SeenEpochOf(refused), 3);
  v1::PrepareProfileRequest profile;
  profile.set_job_id("j");
  profile.set_epoch(3);
  EXPECT_THAT(host_.Prepare(profile, InAWhile()), StatusIs(absl::StatusCode::kAborted, _));
  EXPECT_THAT(Prepare("j", 3), IsOk()) << "a repetition of the first";
  EXPECT_THAT(script_.Lines(), ::testing::ElementsAre("attempt j 3", "executing 3"));
  other.set_epoch(4);
  EXPECT_THAT(host_.Prepare(other, InAWhile()), IsOk());
  EXPECT_TRUE(script_.AwaitLog("dropped 3"));
}

TEST_F(RunHostTest, StopOfAnEpochBeyondAll_StopsTheRun) {
  StartRun("j", 3);
  EXPECT_THAT(host_.Stop("j", std::numeric_limits<int64_t>::max(), "enough", InAWhile()), IsOk());
  EXPECT_FALSE(host_.GetActivity(false).active);
  EXPECT_THAT(Prepare("j", kEpochMax), StatusIs(absl::StatusCode::kAborted, _));
}

TEST_F(RunHostTest, NewerEpochOrOtherJob_TakesTheRunsPlace) {
  StartRun("j", 1);
  ASSERT_THAT(Prepare("j", 2), IsOk());
  EXPECT_TRUE(script_.AwaitLog("dropped 1"));
  ASSERT_THAT(host_.Start("j", 2), IsOk());
  ASSERT_TRUE(script_.AwaitLog("executing 2"));
  ASSERT_THAT(Prepare("k", 9), IsOk());
  EXPECT_TRUE(script_.AwaitLog("dropped 2"));
  EXPECT_EQ(host_.GetActivity(false).job_id, "k");
}

TEST_F(RunHostTest, Close_EndsTheRunAndRefusesOthers) {
  StartRun("j", 1);
  host_.Close("worker a is shutting down");
  EXPECT_TRUE(host_.AwaitIdle(InAWhile()));
  EXPECT_THAT(Prepare("j", 2),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting down")));
}

// Who prepared it must not take it for running.
TEST_F(RunHostTest, Start_AfterCloseDroppedThePreparedRun_GivesTheReason) {
  ASSERT_THAT(Prepare("j", 1), IsOk());
  host_.Close("worker a is shutting down");
  ASSERT_TRUE(host_.AwaitIdle(InAWhile()));
  EXPECT_THAT(host_.Start("j", 1),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("worker a is shutting down")));
  EXPECT_THAT(script_.Lines(),
              ::testing::ElementsAre("attempt j 1",
                                     "failed: stopped before it started: worker a is shutting down",
                                     "cancelled", "dropped 1", "left"));
}

TEST_F(RunHostTest, Start_AfterStopOfThePreparedRun_IsRefused) {
  ASSERT_THAT(Prepare("j", 1), IsOk());
  ASSERT_THAT(host_.Stop("j", 1, "enough", InAWhile()), IsOk());
  EXPECT_THAT(host_.Start("j", 1), StatusIs(absl::StatusCode::kAborted, _));
}

TEST_F(RunHostTest, ManyCallsAtOnce_OneAttemptAtATime) {
  std::vector<std::thread> callers;
  callers.reserve(8);
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&, i] {
      for (int64_t epoch = 1; epoch <= 10; ++epoch) {
        const std::string job = absl::StrCat("j", i % 3);
        const auto prepared = Prepare(job, epoch);
        if (prepared.ok()) {
          EXPECT_EQ(prepared->schedule_digest(), absl::StrCat("digest ", epoch));
        }
        (void)host_.Start(job, epoch);
        (void)host_.Hold(job, epoch);
        (void)host_.GetActivity(true);
        if (i % 2 == 0) (void)host_.Stop(job, epoch, "test", InAWhile());
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  host_.Close("test is over");
  ASSERT_TRUE(host_.AwaitIdle(InAWhile()));
  const auto lines = script_.Lines();
  bool alive = false;
  for (const std::string& line : lines) {
    if (line.starts_with("attempt")) {
      EXPECT_FALSE(alive);
      alive = true;
    }
    if (line == "left") alive = false;
  }
  EXPECT_FALSE(alive);
}

TEST(RunHost, DeviceThatCannotBeHad_IsSaidAtOnce) {
  RunHost host({.describe_device = []() -> absl::StatusOr<DeviceDescription> {
    return absl::InvalidArgumentError("no such device");
  }});
  EXPECT_THAT(host.Device(), StatusIs(absl::StatusCode::kInvalidArgument, "no such device"));
}

// Real runs of one worker, one job after the other on one host.
class RunHostJobs : public ::testing::Test {
 protected:
  RunHostJobs() { AddTestText(files_); }

  RunHostParts Parts() {
    return {.describe_device =
                [] {
                  return absl::StatusOr<DeviceDescription>({"a device", 1 << 20});
                },
            .make_backend =
                [this](const RunRequest& request) {
                  auto backend = MakeJobBackend(SpecOf(request), Device{Device::Kind::kCpu},
                                                /*threads_max=*/2);
                  if (backend.ok()) device_ = std::string((*backend)->name());
                  return backend;
                },
            .join =
                [this](const RunRequest&) {
                  return absl::StatusOr<std::unique_ptr<Transport>>(network_.MakeTransport(0));
                },
            .prepare =
                [this](const RunRequest& request, Backend& backend, Transport& transport,
                       std::function<void(v1::RunEvent)> events,
                       std::function<absl::Status()> may_go_on) {
                  return Run::Prepare(request, {.clock = RealClock(),
                                                .files = files_,
                                                .backend = backend,
                                                .transport = transport,
                                                .data_root = "/",
                                                .limits = {},
                                                .events = std::move(events),
                                                .may_go_on = std::move(may_go_on)});
                },
            .on_attempt = [](const std::string&, int64_t, const std::optional<TraceContext>&) {},
            .on_event = [](const v1::RunEvent&) {}};
  }

  static v1::PrepareRunRequest RequestOf(const std::string& job, const v1::JobSpec& spec) {
    v1::PrepareRunRequest request = MakeRequest(spec, EvenSplit(7, 1), 0);
    request.set_job_id(job);
    return request;
  }
  // Trains a job of a block width to the end. Returns the most memory that it used.
  static int64_t PeakBytesOf(RunHost& host, const std::string& job, int64_t width) {
    v1::JobSpec spec = SmallJob("1f1b");
    spec.mutable_model()->mutable_gpt()->set_width(width);
    EXPECT_THAT(host.Prepare(RequestOf(job, spec), InAWhile()), IsOk());
    EXPECT_THAT(host.Start(job, 1), IsOk());
    EXPECT_TRUE(host.AwaitIdle(InAWhile()));
    const RunHost::Activity activity = host.GetActivity(/*with_stages=*/true);
    return activity.stages.empty() ? 0 : activity.stages[0].peak_memory_bytes();
  }

  MemoryFiles files_;
  MemoryNetwork network_{{"worker-0"}, {0}};
  std::string device_;  // of the newest attempt
};

TEST_F(RunHostJobs, SecondJob_CountsNoMemoryOfTheFirst) {
  int64_t alone = 0;
  {
    RunHost host(Parts());
    alone = PeakBytesOf(host, "small", 16);
  }
  RunHost host(Parts());
  EXPECT_GT(PeakBytesOf(host, "large", 64), 4 * alone);
  EXPECT_EQ(PeakBytesOf(host, "small", 16), alone);
  EXPECT_GT(alone, 0);
}

TEST_F(RunHostJobs, Threads_AreTheJobsAsFarAsTheWorkerHasThem) {
  RunHost host(Parts());
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_training()->set_threads(2);
  const auto prepared = host.Prepare(RequestOf("two", spec), InAWhile());
  EXPECT_THAT(prepared, IsOk());
  EXPECT_THAT(device_, HasSubstr("2 threads"));
  EXPECT_EQ(prepared->arithmetic(), device_);
  spec.mutable_training()->set_threads(1);
  EXPECT_THAT(host.Prepare(RequestOf("one", spec), InAWhile()), IsOk());
  EXPECT_THAT(device_, HasSubstr("1 thread)"));
  spec.mutable_training()->set_threads(3);
  EXPECT_THAT(host.Prepare(RequestOf("three", spec), InAWhile()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("training.threads is 3"), HasSubstr("2 at most"))));
}

// The reference can compute it, but a worker that took such a job would be slower than with any other precision.
TEST_F(RunHostJobs, Fp8OnACpu_IsRefusedByName) {
  RunHost host(Parts());
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_training()->set_precision("fp8");
  EXPECT_THAT(host.Prepare(RequestOf("fp8", spec), InAWhile()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("training.precision is fp8"), HasSubstr("cpu (oneDNN"),
                             HasSubstr("compute capability 8.9"))));
  spec.mutable_training()->set_precision("bf16");
  EXPECT_THAT(host.Prepare(RequestOf("bf16", spec), InAWhile()), IsOk());
}

}  // namespace
}  // namespace penstock
