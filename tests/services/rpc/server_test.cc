// RpcServer and the client calls over loopback, with two of the real services.
#include "services/rpc/server.h"

#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <future>
#include <thread>

#include "base/mutex.h"
#include "services/rpc/health_check.h"
#include "tests/services/rpc/server_fixture.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::HasSubstr;

v1::JobEvent Event(int64_t sequence) {
  v1::JobEvent event;
  event.set_sequence(sequence);
  return event;
}

TEST_F(ServerTest, Unary_ManyClientsAtOnce_EachGetsItsOwnAnswer) {
  StartServer();
  std::vector<std::thread> clients;
  std::atomic<int> right = 0;
  clients.reserve(8);
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      for (int j = 0; j < 50; ++j) {
        const std::string id = absl::StrCat(i, "-", j);
        const auto response = GetJob(id);
        if (response.ok() && response->summary().job_id() == id) ++right;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, 400);
}

TEST_F(ServerTest, Unary_HandlerError_ArrivesWithCodeAndText) {
  get_ = [](const v1::GetJobRequest& request, const CallInfo&) {
    return absl::NotFoundError(absl::StrCat("no job ", request.job_id()));
  };
  StartServer();
  EXPECT_THAT(GetJob("j7"), StatusIs(absl::StatusCode::kNotFound, peer_ + ": no job j7"));
}

TEST_F(ServerTest, Trace_OfTheCall_ReachesTheHandler) {
  Mutex mutex;
  std::vector<std::optional<TraceContext>> traces;
  const auto note = [&](const CallInfo& call) {
    MutexLock lock(mutex);
    traces.push_back(call.trace);
  };
  get_ = [&](const v1::GetJobRequest&, const CallInfo& call) {
    note(call);
    return v1::GetJobResponse();
  };
  watch_ = [&](const v1::WatchJobRequest&, const CallInfo& call, const StreamWaker&) {
    note(call);
    return absl::CancelledError("only its trace is wanted");
  };
  StartServer();
  const TraceContext trace = {.trace_id = {1, 2}, .span_id = {3}, .sampled = false};
  EXPECT_THAT(Call(peer_, *stub_, &v1::JobService::Stub::GetJob, {}, kTimeout, trace), IsOk());
  EXPECT_FALSE(ReadStream(
                   peer_, *stub_, &v1::JobService::Stub::WatchJob, {}, kTimeout, canceller_,
                   [](const v1::JobEvent&) { return true; }, trace)
                   .ok());
  CompletionPoller poller(std::make_unique<grpc::CompletionQueue>(), 1, "calls");
  std::promise<absl::Status> done;
  CallAsync(
      peer_, *stub_, &v1::JobService::Stub::AsyncGetJob, {}, kTimeout, poller,
      [&](const auto& response) { done.set_value(response.status()); }, trace);
  EXPECT_THAT(done.get_future().get(), IsOk());
  EXPECT_THAT(GetJob("a"), IsOk());
  MutexLock lock(mutex);
  EXPECT_EQ(traces, (std::vector<std::optional<TraceContext>>{trace, trace, trace, std::nullopt}));
}

TEST_F(ServerTest, Deadline_OfTheCall_ReachesTheHandler) {
  std::promise<absl::Time> arrived;
  get_ = [&](const v1::GetJobRequest&, const CallInfo& call) {
    arrived.set_value(call.deadline);
    return v1::GetJobResponse();
  };
  StartServer();
  const absl::Time before = absl::Now();
  EXPECT_THAT(GetJob("j", absl::Seconds(100)), IsOk());
  const absl::Time deadline = arrived.get_future().get();
  EXPECT_GT(deadline, before + absl::Seconds(90));
  EXPECT_LT(deadline, absl::Now() + absl::Seconds(110));
}

// A client that sends nonsense is answered all the same.
TEST_F(ServerTest, Trace_ThatIsNone_IsIgnored) {
  get_ = [](const v1::GetJobRequest&, const CallInfo& call) -> absl::StatusOr<v1::GetJobResponse> {
    if (call.trace.has_value()) return absl::InternalError("took it for a trace");
    return v1::GetJobResponse();
  };
  StartServer();
  const std::string good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  for (const std::vector<std::string>& sent :
       {std::vector<std::string>{""}, {"nonsense"}, {std::string(4000, '0')}, {good, good}}) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kTimeout));
    for (const std::string& text : sent) context.AddMetadata(kTraceparentKey, text);
    v1::GetJobResponse response;
    const grpc::Status status = stub_->GetJob(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
}

TEST_F(ServerTest, Unary_SlowHandler_ClientStopsAtItsDeadline) {
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  get_ = [open](const v1::GetJobRequest&, const CallInfo&) {
    open.wait();
    return v1::GetJobResponse();
  };
  StartServer();
  EXPECT_THAT(GetJob("j", absl::Milliseconds(100)),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr(peer_)));
  gate.set_value();
}

TEST_F(ServerTest, UnaryAsync_AnswersToCome_HoldNoThread) {
  constexpr int kCalls = 8;
  Mutex mutex;
  std::vector<Reply<v1::GetTimelineResponse>> replies;
  std::promise<void> all_came;
  later_ = [&](const v1::GetTimelineRequest&, Reply<v1::GetTimelineResponse> reply) {
    MutexLock lock(mutex);
    replies.push_back(std::move(reply));
    if (replies.size() == kCalls) all_came.set_value();
  };
  StartServer({.handler_threads = 1});
  std::vector<std::thread> clients;
  std::atomic<int> served = 0, refused = 0;
  clients.reserve(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    clients.emplace_back([&] {
      const auto response = GetTimeline();
      if (response.ok() && response->workers() == 7) ++served;
      if (absl::IsAborted(response.status())) ++refused;
    });
  }
  all_came.get_future().wait();
  EXPECT_THAT(GetJob("j"), IsOk());
  v1::GetTimelineResponse timeline;
  timeline.set_workers(7);
  for (size_t i = 0; i < replies.size(); ++i) {
    if (i == 0) {
      replies[i](absl::AbortedError("no"));
    } else {
      replies[i](timeline);
    }
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(served, kCalls - 1);
  EXPECT_EQ(refused, 1);
}

TEST_F(ServerTest, Unary_FullQueue_IsRefusedAtOnce) {
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  std::promise<void> first;
  std::atomic<bool> entered = false;
  get_ = [&](const v1::GetJobRequest&, const CallInfo&) {
    if (!entered.exchange(true)) first.set_value();
    open.wait();
    return v1::GetJobResponse();
  };
  StartServer({.handler_threads = 1, .handler_queue_max = 2});
  std::atomic<int> busy = 0;
  std::atomic<int> served = 0;
  const auto client = [&] {
    const auto response = GetJob("j");
    if (response.ok()) ++served;
    if (response.status().code() == absl::StatusCode::kResourceExhausted && ++busy == 2) {
      gate.set_value();
    }
  };
  std::vector<std::thread> clients;
  clients.emplace_back(client);  // runs
  first.get_future().wait();
  for (int i = 0; i < 4; ++i) clients.emplace_back(client);  // two wait, two are too many
  for (std::thread& thread : clients) thread.join();
  server_->Shutdown();  // the handler's thread is done with the gate
  EXPECT_EQ(served, 3);
  EXPECT_EQ(busy, 2);
}

// More than users may have, from as many connections as it takes, while none is answered.
TEST_F(ServerTest, UnaryAsync_CallsOfManyWorkers_WaitTogetherUpToTheClustersLimit) {
  constexpr int kConnections = 6;
  constexpr int kEach = 60;  // below rpc_limits::kConcurrentStreamsMax
  constexpr int kCalls = kConnections * kEach;
  static_assert(kCalls > rpc_limits::kHandlerThreads + rpc_limits::kHandlerQueueMax + 1);
  Mutex mutex;
  std::vector<Reply<v1::ReportRunResponse>> replies;
  std::promise<void> all_came;
  report_ = [&](Reply<v1::ReportRunResponse> reply) {
    MutexLock lock(mutex);
    replies.push_back(std::move(reply));
    if (replies.size() == kCalls - 1) all_came.set_value();
  };
  StartServer({.listen = {"0.0.0.0", 0}, .cluster_calls_max = kCalls - 1});
  // Before the poller, so that its threads have ended first: the last call lets go of its connection after its answer
  // was told, by a count of gRPC's that ThreadSanitizer cannot see.
  std::vector<std::unique_ptr<v1::WorkerRegistry::Stub>> stubs;
  CompletionPoller poller(std::make_unique<grpc::CompletionQueue>(), 1, "calls");
  std::atomic<int> served = 0;
  std::atomic<int> refused = 0;
  std::promise<void> done;
  for (int connection = 1; connection <= kConnections; ++connection) {
    const std::string address = absl::StrCat("127.0.0.", connection, ":", server_->address().port);
    stubs.push_back(v1::WorkerRegistry::NewStub(
        MakeControlChannel(address, grpc::InsecureChannelCredentials())));
    for (int call = 0; call < kEach; ++call) {
      CallAsync(address, *stubs.back(), &v1::WorkerRegistry::Stub::AsyncReportRun, {}, kTimeout,
                poller, [&](const absl::StatusOr<v1::ReportRunResponse>& response) {
                  if (absl::IsResourceExhausted(response.status())) ++refused;
                  if (response.ok()) ++served;
                  if (served + refused == kCalls) done.set_value();
                });
    }
  }
  all_came.get_future().wait();
  std::vector<Reply<v1::ReportRunResponse>> waiting;
  {
    MutexLock lock(mutex);
    waiting.swap(replies);
  }
  const absl::Time give_up = absl::Now() + kTimeout;
  while (refused == 0 && absl::Now() < give_up) absl::SleepFor(absl::Milliseconds(1));
  for (const Reply<v1::ReportRunResponse>& reply : waiting) reply(v1::ReportRunResponse());
  done.get_future().wait();
  EXPECT_EQ(served, kCalls - 1);
  EXPECT_EQ(refused, 1);
}

TEST_F(ServerTest, Unary_MoreCallsThanOnePeerMayHave_AreRefusedWithTheLimit) {
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  std::promise<void> entered;
  get_ = [&](const v1::GetJobRequest&, const CallInfo&) {
    entered.set_value();
    open.wait();
    return v1::GetJobResponse();
  };
  StartServer({.calls_per_peer_max = 1});
  std::thread first([&] { EXPECT_THAT(GetJob("a"), IsOk()); });
  entered.get_future().wait();
  EXPECT_THAT(GetJob("b"),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("ipv4:127.0.0.1 has 1 calls"), HasSubstr("one peer"))));
  gate.set_value();
  first.join();
  server_->Shutdown();
}

// Users' calls that have no end in sight, more than there is room for.
TEST_F(ServerTest, Lanes_FullOfUsersCalls_HeartbeatsAndProbesAreAnswered) {
  constexpr int kCalls = 8;
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  std::promise<void> refused;
  get_ = [open](const v1::GetJobRequest&, const CallInfo&) {
    open.wait();
    return v1::GetJobResponse();
  };
  StartServer({.handler_threads = 1, .handler_queue_max = 2});
  server_->SetServing(true);
  std::atomic<int> busy = 0;
  std::vector<std::thread> clients;
  clients.reserve(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    clients.emplace_back([&] {
      if (absl::IsResourceExhausted(GetJob("j").status()) && ++busy == kCalls - 3) {
        refused.set_value();
      }
    });
  }
  refused.get_future().wait();
  for (int i = 0; i < 10; ++i) EXPECT_THAT(Heartbeat(), IsOk());
  EXPECT_THAT(CheckHealth(server_->address(), kTimeout), IsOk());
  gate.set_value();
  for (std::thread& client : clients) client.join();
  server_->Shutdown();
}

TEST_F(ServerTest, Unary_RequestOverTheLimit_IsRefused) {
  StartServer();
  EXPECT_THAT(GetJob(std::string(rpc_limits::kControlMessageBytesMax + 1, 'x')),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("larger than max")));
}

TEST_F(ServerTest, Unary_CompressedRequest_IsRefused) {
  StartServer();
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  v1::GetJobRequest request;
  request.set_job_id(std::string(100'000, 'x'));
  v1::GetJobResponse response;
  EXPECT_EQ(stub_->GetJob(&context, request, &response).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ServerTest, Unary_BytesThatAreNoMessage_AreRefusedAndTheServerGoesOn) {
  StartServer();
  grpc::GenericStub stub(MakeControlChannel(peer_, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kTimeout));
  const grpc::Slice garbage("\xff\xff\xff\xff\xff");
  const grpc::ByteBuffer request(&garbage, 1);
  grpc::ByteBuffer response;
  grpc::CompletionQueue queue;
  auto reader = stub.PrepareUnaryCall(&context, "/penstock.v1.JobService/GetJob", request, &queue);
  reader->StartCall();
  grpc::Status status;
  reader->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INTERNAL) << status.error_message();
  EXPECT_THAT(GetJob("j"), IsOk());
}

TEST_F(ServerTest, CallAsync_Answer_ArrivesOnce) {
  StartServer();
  std::promise<absl::StatusOr<v1::GetJobResponse>> answer;
  CompletionPoller poller(std::make_unique<grpc::CompletionQueue>(), 1, "test");
  v1::GetJobRequest request;
  request.set_job_id("j9");
  CallAsync(
      peer_, *stub_, &v1::JobService::Stub::AsyncGetJob, request, kTimeout, poller,
      [&](absl::StatusOr<v1::GetJobResponse> response) { answer.set_value(std::move(response)); });
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::GetJobResponse response, answer.get_future().get());
  EXPECT_EQ(response.summary().job_id(), "j9");
}

TEST_F(ServerTest, Call_NobodyListens_IsUnavailableWithTheAddress) {
  StartServer();
  server_->Shutdown();
  EXPECT_THAT(GetJob("j"), StatusIs(absl::StatusCode::kUnavailable, HasSubstr(peer_)));
}

TEST_F(ServerTest, Stream_SourceEnds_ClientHasAllMessagesInOrderAndTheStatus) {
  watch_ = [](const v1::WatchJobRequest&, const CallInfo&, const StreamWaker&) {
    return [next = int64_t{0}]() mutable {
      if (++next > 1000) return StreamStep<v1::JobEvent>::End(absl::DataLossError("torn"));
      return StreamStep<v1::JobEvent>::Message(Event(next));
    };
  };
  StartServer();
  int64_t last = 0;
  EXPECT_THAT(Watch([&](const v1::JobEvent& event) {
                EXPECT_EQ(event.sequence(), last + 1);
                last = event.sequence();
                return true;
              }),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("torn")));
  EXPECT_EQ(last, 1000);
}

TEST_F(ServerTest, Stream_HandlerRefuses_ClientGetsTheError) {
  StartServer();
  EXPECT_THAT(Watch([](const v1::JobEvent&) { return true; }),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("not in this test")));
}

// What a coordinator does: events appear, watchers are woken.
struct Journal {
  Mutex mutex;
  int64_t events ABSL_GUARDED_BY(mutex) = 0;
  std::vector<StreamWaker> wakers ABSL_GUARDED_BY(mutex);

  void Append() {
    MutexLock lock(mutex);
    ++events;
    for (const StreamWaker& waker : wakers) waker.Wake();
  }
  StreamHandler<v1::WatchJobRequest, v1::JobEvent> Handler() {
    return [this](const v1::WatchJobRequest&, const CallInfo&, const StreamWaker& waker) {
      MutexLock lock(mutex);
      wakers.push_back(waker);
      return [this, sent = int64_t{0}]() mutable {
        MutexLock inner(mutex);
        if (sent == events) return StreamStep<v1::JobEvent>::Wait();
        return StreamStep<v1::JobEvent>::Message(Event(++sent));
      };
    };
  }
};

TEST_F(ServerTest, Stream_WokenByAnotherThread_NoEventIsMissed) {
  Journal journal;
  watch_ = journal.Handler();
  StartServer();
  std::thread writer([&] {
    for (int i = 0; i < 2000; ++i) journal.Append();
  });
  int64_t last = 0;
  EXPECT_THAT(Watch([&](const v1::JobEvent& event) {
                EXPECT_EQ(event.sequence(), last + 1);
                last = event.sequence();
                return last < 2000;
              }),
              StatusIs(absl::StatusCode::kCancelled, _));
  writer.join();
  EXPECT_EQ(last, 2000);
  server_->Shutdown();
}

// What wakes one stream wakes all that wait for the same: there is room for each of them, and users'
// calls do not stand before them.
TEST_F(ServerTest, Stream_MoreThanTheQueueTakesWokenAtOnce_AllGoOn) {
  constexpr int kStreams = 20;
  constexpr int64_t kEvents = 50;
  Journal journal;
  watch_ = journal.Handler();
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  std::promise<void> entered;
  get_ = [&](const v1::GetJobRequest&, const CallInfo&) {
    entered.set_value();
    open.wait();
    return v1::GetJobResponse();
  };
  StartServer({.handler_threads = 1, .handler_queue_max = 2});
  std::thread user([&] { EXPECT_THAT(GetJob("j"), IsOk()); });
  entered.get_future().wait();
  journal.Append();
  std::atomic<int> begun = 0, complete = 0;
  std::vector<std::thread> watchers;
  watchers.reserve(kStreams);
  for (int i = 0; i < kStreams; ++i) {
    watchers.emplace_back([&] {
      StreamCanceller canceller;
      int64_t last = 0;
      ReadStream(peer_, *stub_, &v1::JobService::Stub::WatchJob, v1::WatchJobRequest(), kTimeout,
                 canceller,
                 [&](const v1::JobEvent& event) {
                   if (last == 0) ++begun;
                   last = event.sequence();
                   return last < kEvents;
                 })
          .IgnoreError();
      if (last == kEvents) ++complete;
    });
  }
  const absl::Time limit = absl::Now() + kTimeout;
  while (begun < kStreams && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(1));
  for (int64_t i = 1; i < kEvents; ++i) journal.Append();
  for (std::thread& watcher : watchers) watcher.join();
  EXPECT_EQ(complete, kStreams);
  gate.set_value();
  user.join();
  server_->Shutdown();
}

TEST_F(ServerTest, Stream_ClientGoesAway_WakerDies) {
  Journal journal;
  watch_ = journal.Handler();
  StartServer();
  journal.Append();
  EXPECT_FALSE(Watch([&](const v1::JobEvent&) { return false; }).ok());
  const absl::Time limit = absl::Now() + kTimeout;
  const auto alive = [&] {
    MutexLock lock(journal.mutex);
    return journal.wakers.at(0).alive();
  };
  while (alive() && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_FALSE(alive());
  journal.Append();  // wakes nobody
  server_->Shutdown();
}

TEST_F(ServerTest, Stream_Cancelled_ReadStreamReturns) {
  Journal journal;
  watch_ = journal.Handler();
  StartServer();
  std::thread canceller([&] {
    absl::SleepFor(absl::Milliseconds(20));
    canceller_.Cancel();
  });
  EXPECT_THAT(Watch([](const v1::JobEvent&) { return true; }),
              StatusIs(absl::StatusCode::kCancelled, _));
  canceller.join();
  server_->Shutdown();
}

TEST_F(ServerTest, Shutdown_WaitingStream_EndsAsUnavailable) {
  Journal journal;
  watch_ = journal.Handler();
  StartServer();
  journal.Append();
  absl::Status status;
  std::promise<void> first;
  std::thread client([&] {
    status = Watch([&](const v1::JobEvent&) {
      first.set_value();
      return true;
    });
  });
  first.get_future().wait();
  server_->Shutdown();
  client.join();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting down")));
}

TEST_F(ServerTest, Shutdown_HandlerInProgress_MayFinish) {
  std::promise<void> entered;
  get_ = [&](const v1::GetJobRequest&, const CallInfo&) {
    entered.set_value();
    absl::SleepFor(absl::Milliseconds(50));
    return v1::GetJobResponse();
  };
  StartServer();
  std::promise<absl::Status> result;
  std::thread client([&] { result.set_value(GetJob("j").status()); });
  entered.get_future().wait();
  server_->Shutdown();
  EXPECT_THAT(result.get_future().get(), IsOk());
  client.join();
}

TEST_F(ServerTest, Start_OccupiedPort_SaysSoAndNothingIsLeft) {
  StartServer();
  RpcServer second({.listen = server_->address()});
  EXPECT_THAT(second.Start(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(peer_), HasSubstr("Address already in use"))));
  EXPECT_THAT(GetJob("j"), IsOk());
}

}  // namespace
}  // namespace penstock
