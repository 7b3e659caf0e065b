// Attach streams over loopback gRPC: what their end tells the coordinator.
#include <unistd.h>

#include <string>
#include <thread>

#include "base/mutex.h"
#include "services/rpc/address.h"
#include "tests/services/coordinator/coordinator_fixture.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::HasSubstr;

constexpr uint64_t kAttachedIncarnation = 7;

class AttachTest : public CoordinatorServerTest {
 protected:
  // A worker that registers, says that it is reached at `address`, and sends no heartbeat.
  void Register(const std::string& address) {
    registry_ = v1::WorkerRegistry::NewStub(
        MakeControlChannel(address_.ToString(), grpc::InsecureChannelCredentials()));
    v1::RegisterWorkerRequest request;
    request.set_name("w");
    request.set_address(address);
    request.set_incarnation(kAttachedIncarnation);
    request.set_protocol_version(v1::PROTOCOL_VERSION_CURRENT);
    ASSERT_THAT(Call("coordinator", *registry_, &v1::WorkerRegistry::Stub::RegisterWorker, request,
                     kTimeout),
                IsOk());
  }

  // Opens the stream and ends it as soon as the worker is attached.
  absl::Status AttachAndEnd(uint64_t incarnation = kAttachedIncarnation) {
    v1::AttachRequest request;
    request.set_name("w");
    request.set_incarnation(incarnation);
    StreamCanceller canceller;
    return ReadStream("coordinator", *registry_, &v1::WorkerRegistry::Stub::Attach, request,
                      kTimeout, canceller, [](const v1::AttachResponse&) { return false; });
  }

  LossCounts AwaitLoss() {
    const absl::Time give_up = absl::Now() + kTimeout;
    while (absl::Now() < give_up) {
      const absl::StatusOr<CoordinatorSnapshot> snapshot = server_->Snapshot();
      EXPECT_THAT(snapshot, IsOk());
      if (!snapshot.ok()) break;
      if (!snapshot->workers.workers(0).alive()) return snapshot->losses;
      absl::SleepFor(absl::Milliseconds(5));
    }
    ADD_FAILURE() << "the worker is not lost";
    return {};
  }

  static int64_t Count(const LossCounts& losses, LossCause cause) {
    return losses.by_cause[static_cast<int>(cause)].count;
  }

  std::unique_ptr<v1::WorkerRegistry::Stub> registry_;
};

TEST_F(AttachTest, StreamEndsAndNobodyListens_TheWorkerIsGone) {
  ASSERT_THAT(StartServer(), IsOk());
  HostPort free;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const int listener, OpenListener({"127.0.0.1", 0}, free));
  close(listener);
  Register(free.ToString());
  EXPECT_THAT(AttachAndEnd(), StatusIs(absl::StatusCode::kCancelled, _));
  const LossCounts losses = AwaitLoss();
  EXPECT_EQ(Count(losses, LossCause::kGone), 1);
  EXPECT_EQ(Count(losses, LossCause::kSilent), 0);
}

// A process that is frozen, or whose connection was cut: only silence says that it is lost.
TEST_F(AttachTest, StreamEndsAndSomebodyListens_HeartbeatsDecide) {
  ASSERT_THAT(StartServer(), IsOk());
  HostPort taken;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const int listener, OpenListener({"127.0.0.1", 0}, taken));
  Register(taken.ToString());
  EXPECT_THAT(AttachAndEnd(), StatusIs(absl::StatusCode::kCancelled, _));
  const LossCounts losses = AwaitLoss();
  close(listener);
  EXPECT_EQ(Count(losses, LossCause::kGone), 0);
  EXPECT_EQ(Count(losses, LossCause::kSilent), 1);
}

TEST_F(AttachTest, UnknownIncarnation_IsToldToRegister) {
  ASSERT_THAT(StartServer(), IsOk());
  Register("127.0.0.1:1");
  EXPECT_THAT(AttachAndEnd(kAttachedIncarnation + 1),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("register again")));
}

// When the coordinator ends, all streams do, and that is no news of any worker.
TEST_F(AttachTest, CoordinatorEnds_TheStreamIsToldSo) {
  ASSERT_THAT(StartServer(), IsOk());
  Register("127.0.0.1:1");
  v1::AttachRequest request;
  request.set_name("w");
  request.set_incarnation(kAttachedIncarnation);
  StreamCanceller canceller;
  Mutex mutex;
  CondVar changed;
  bool attached = false;
  absl::Status ended;
  std::thread stream([&] {
    ended = ReadStream("coordinator", *registry_, &v1::WorkerRegistry::Stub::Attach, request,
                       kTimeout, canceller, [&](const v1::AttachResponse&) {
                         MutexLock lock(mutex);
                         attached = true;
                         changed.NotifyAll();
                         return true;
                       });
  });
  {
    MutexLock lock(mutex);
    const auto until = CondVar::Clock::now() + absl::ToChronoSeconds(kTimeout);
    while (!attached && changed.WaitUntil(mutex, until)) {
    }
  }
  server_->Shutdown();
  stream.join();
  EXPECT_TRUE(attached);
  EXPECT_THAT(ended, StatusIs(absl::StatusCode::kUnavailable, _));
}

}  // namespace
}  // namespace penstock
