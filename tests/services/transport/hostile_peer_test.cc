// Peers that do not keep to the protocol, by mistake or on purpose: each gets an error that says what
// was wrong, the run fails cleanly, and the worker goes on.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>

#include "base/random.h"
#include "services/transport/gather.h"
#include "services/transport/grpc_transport.h"
#include "tests/services/transport/cluster.h"
#include "tests/services/transport/raw_sender.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr EdgeId kHostileEdge = {EdgeKind::kActivation, 0, 1};
constexpr int kWindow = 2;
constexpr int64_t kHostileLimit = 4096;

absl::Time InAWhile() { return absl::Now() + absl::Seconds(20); }

class HostilePeerTest : public ::testing::Test {
 protected:
  HostilePeerTest() {
    auto receiver = cluster_.right().OpenReceiver(kHostileEdge, kWindow, kHostileLimit,
                                                  cluster_.workers[1].pool);
    EXPECT_THAT(receiver, IsOk());
    receiver_ = *std::move(receiver);
  }

  // `stream`: its number among those of the edge.
  static FrameHeader HelloHeader(int64_t stream = 0) {
    FrameHeader header;
    header.kind = FrameKind::kHello;
    header.number = stream;
    header.key = {JobHash(kTestJob), 1, kHostileEdge};
    header.value = kWindow;
    header.tensor_bytes = kHostileLimit;
    return header;
  }
  static std::string HelloPayload() { return EncodeHello({11, 22, "left"}); }

  FrameHeader ChunkHeader(int64_t sequence, int64_t elements) {
    FrameHeader header;
    header.kind = FrameKind::kChunk;
    header.key = HelloHeader().key;
    header.number = header.sequence = sequence;
    header.shape = {elements};
    header.tensor_bytes = 4 * elements;
    header.payload_bytes = static_cast<int32_t>(4 * elements);
    return header;
  }
  grpc::ByteBuffer ChunkFrame(const FrameHeader& header) {
    return MakeChunkFrame(header, pool_.AcquireTensor(DType::kF32, header.shape));
  }

  // Asks how far the receiver is, having sent `messages`.
  static grpc::ByteBuffer AskFrame(int64_t messages) {
    FrameHeader header;
    header.kind = FrameKind::kAsk;
    header.key = HelloHeader().key;
    header.number = messages;
    return MakeTextFrame(header, "");
  }

  std::string address() { return cluster_.workers[1].server.address().ToString(); }

  // A sender that was welcomed by a receiver that has `received` messages.
  std::unique_ptr<RawSender> Welcomed(int64_t stream = 0, int64_t received = 0) {
    auto sender = std::make_unique<RawSender>(address());
    EXPECT_TRUE(sender->Write(MakeTextFrame(HelloHeader(stream), HelloPayload())));
    ExpectWord(*sender, FrameKind::kWelcome, received);
    return sender;
  }
  // The receiver's next frame.
  static void ExpectWord(RawSender& sender, FrameKind kind, int64_t received) {
    ASSERT_TRUE(sender.Read());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const FrameHeader header,
                                  FrameReader(sender.incoming()).ReadHeader());
    EXPECT_EQ(header.kind, kind);
    EXPECT_EQ(header.number, received);
  }
  static std::string Bytes(const grpc::ByteBuffer& frame) {
    grpc::Slice slice;
    EXPECT_TRUE(frame.DumpToSingleSlice(&slice).ok());
    return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  std::string WithDamagedPayload(int64_t sequence) {
    std::string bytes = Bytes(ChunkFrame(ChunkHeader(sequence, 4)));
    bytes.back() ^= 1;
    return bytes;
  }
  LinkTraffic Traffic() {
    const std::vector<LinkTraffic> traffic = cluster_.workers[1].hub.Traffic(kTestJob);
    EXPECT_EQ(traffic.size(), 1u);
    return traffic.empty() ? LinkTraffic() : traffic[0];
  }

  // What the run at the receiving worker sees.
  absl::Status Received(int64_t sequence = 0) {
    return receiver_->Receive({sequence, DType::kF32, {4}}, InAWhile()).status();
  }

  // The worker still takes a right stream, for another edge.
  void ExpectWorkerGoesOn() {
    const EdgeId edge = {EdgeKind::kCollective, 0, 1};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        auto receiver,
        cluster_.right().OpenReceiver(edge, 1, kHostileLimit, cluster_.workers[1].pool));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(auto sender, cluster_.left().OpenSender(edge, 1, kHostileLimit));
    ASSERT_THAT(sender->Send(0, pool_.AcquireTensor(DType::kF32, {4}), InAWhile()), IsOk());
    EXPECT_THAT(receiver->Receive({0, DType::kF32, {4}}, InAWhile()), IsOk());
  }

  int64_t Rejected(Rejection reason) { return cluster_.workers[1].hub.rejected().count(reason); }

  TestCluster cluster_;
  BufferPool pool_{HostMemory()};
  std::unique_ptr<Receiver> receiver_;
};

TEST_F(HostilePeerTest, GarbageInsteadOfHello_IsRefused) {
  RawSender sender(address());
  sender.Write(std::string(500, 'x'));
  EXPECT_THAT(sender.Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("does not speak Penstock")));
  ExpectWorkerGoesOn();
  EXPECT_EQ(Rejected(Rejection::kMalformed), 1);
}

TEST_F(HostilePeerTest, EmptyMessage_IsRefused) {
  RawSender sender(address());
  sender.Write("");
  EXPECT_THAT(sender.Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at least 120 bytes")));
  ExpectWorkerGoesOn();
}

TEST_F(HostilePeerTest, ChunkBeforeHello_IsRefused) {
  RawSender sender(address());
  sender.Write(ChunkFrame(ChunkHeader(0, 4)));
  EXPECT_THAT(sender.Finish(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected hello")));
}

TEST_F(HostilePeerTest, UnknownMethod_IsUnimplemented) {
  grpc::GenericStub stub(MakeControlChannel(address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(InAWhile()));
  grpc::CompletionQueue queue;
  grpc::ByteBuffer response;
  grpc::Status status;
  auto call = stub.PrepareUnaryCall(&context, "/penstock.v1.JobService/ListJobs",
                                    grpc::ByteBuffer(), &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  ASSERT_TRUE(queue.Next(&tag, &ok));
  EXPECT_THAT(FromGrpcStatus(status, "server"),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("ListJobs")));
}

TEST_F(HostilePeerTest, EdgeThatEndsElsewhere_IsRefusedByName) {
  FrameHeader header = HelloHeader();
  header.key.edge = {EdgeKind::kGradient, 1, 0};
  RawSender sender(address());
  sender.Write(MakeTextFrame(header, HelloPayload()));
  EXPECT_THAT(sender.Finish(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                        AllOf(HasSubstr("gradient 1->0"), HasSubstr("right"))));
}

TEST_F(HostilePeerTest, AnotherWorkersName_IsRefused) {
  RawSender sender(address());
  sender.Write(MakeTextFrame(HelloHeader(), EncodeHello({11, 22, "middle"})));
  EXPECT_THAT(sender.Finish(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("expected worker left"), HasSubstr("got worker middle"))));
}

TEST_F(HostilePeerTest, SecondStreamForAnEdge_IsRefusedAndTheFirstGoesOn) {
  const auto first = Welcomed();
  RawSender second(address());
  second.Write(MakeTextFrame(HelloHeader(), HelloPayload()));
  EXPECT_THAT(second.Finish(),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("activation 0->1")));
  EXPECT_TRUE(first->Write(ChunkFrame(ChunkHeader(0, 4))));
  EXPECT_THAT(Received(), IsOk());
  EXPECT_EQ(Rejected(Rejection::kDuplicate), 1);
}

TEST_F(HostilePeerTest, TensorOverTheEdgesLimit_FailsBothEndsAndTakesNoMemory) {
  const auto sender = Welcomed();
  sender->Write(ChunkFrame(ChunkHeader(0, kHostileLimit / 4 + 1)));
  const auto refused =
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("0->1"), HasSubstr("at most 4096 bytes, got 4100")));
  EXPECT_THAT(sender->Finish(), refused);
  EXPECT_THAT(Received(), refused);
  EXPECT_EQ(cluster_.workers[1].pool.stats().allocations, 0);
  ExpectWorkerGoesOn();
}

TEST_F(HostilePeerTest, TensorExportedOnAnEdgeOfHostMemory_FailsBothEnds) {
  const auto sender = Welcomed();
  FrameHeader header = ChunkHeader(0, 4);
  header.kind = FrameKind::kExported;
  sender->Write(MakeTextFrame(header, "somewhere"));
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not agreed upon"));
  EXPECT_THAT(sender->Finish(), refused);
  EXPECT_THAT(Received(), refused);
  ExpectWorkerGoesOn();
}

TEST_F(HostilePeerTest, ChunkOfAnotherEpoch_FailsBothEnds) {
  const auto sender = Welcomed();
  FrameHeader header = ChunkHeader(0, 4);
  header.key.epoch = 2;
  sender->Write(ChunkFrame(header));
  const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition,
                                AllOf(HasSubstr("epoch 1"), HasSubstr("epoch 2")));
  EXPECT_THAT(sender->Finish(), refused);
  EXPECT_THAT(Received(), refused);
}

TEST_F(HostilePeerTest, PayloadThatDoesNotMatchItsChecksum_IsAskedForAgainAFewTimes) {
  const auto sender = Welcomed();
  for (int i = 0; i < rpc_limits::kTensorAsksMax; ++i) {
    sender->Write(WithDamagedPayload(0));
    ExpectWord(*sender, FrameKind::kAgain, 0);
  }
  EXPECT_TRUE(sender->Write(ChunkFrame(ChunkHeader(0, 4))));
  EXPECT_THAT(Received(0), IsOk());
  ExpectWord(*sender, FrameKind::kCredit, 1);
  for (int i = 0; i < rpc_limits::kTensorAsksMax; ++i) {
    sender->Write(WithDamagedPayload(1));
    ExpectWord(*sender, FrameKind::kAgain, 1);
  }
  EXPECT_EQ(Traffic().damaged, 2 * rpc_limits::kTensorAsksMax);
  sender->Write(WithDamagedPayload(1));
  const auto refused =
      StatusIs(absl::StatusCode::kDataLoss,
               AllOf(HasSubstr("0->1"), HasSubstr("message 1"), HasSubstr("checksum: expected"),
                     HasSubstr("damaged 4 times")));
  EXPECT_THAT(sender->Finish(), refused);
  EXPECT_THAT(Received(1), refused);
  EXPECT_EQ(Rejected(Rejection::kCorrupt), 2 * rpc_limits::kTensorAsksMax + 1);
  ExpectWorkerGoesOn();
}

// Nothing else follows what was lost, so only the question shows it.
TEST_F(HostilePeerTest, QuestionAfterALostMessage_IsAnsweredWithAgain) {
  const auto sender = Welcomed();
  sender->Write(AskFrame(2));
  ExpectWord(*sender, FrameKind::kAgain, 0);
  // Its answer may have been lost, too; that is no other damage.
  for (int i = 0; i <= rpc_limits::kTensorAsksMax; ++i) {
    sender->Write(AskFrame(2));
    ExpectWord(*sender, FrameKind::kAgain, 0);
  }
  FrameHeader first = ChunkHeader(0, 4);
  first.payload_bytes = 8;  // a sender that hears two answers begins twice
  sender->Write(ChunkFrame(first));
  sender->Write(ChunkFrame(ChunkHeader(0, 4)));
  sender->Write(ChunkFrame(ChunkHeader(1, 4)));
  EXPECT_THAT(Received(0), IsOk());
  EXPECT_THAT(Received(1), IsOk());
}

TEST_F(HostilePeerTest, QuestionWhenAllHasCome_IsAnsweredWithCredit) {
  const auto sender = Welcomed();
  sender->Write(ChunkFrame(ChunkHeader(0, 4)));
  sender->Write(AskFrame(1));
  ExpectWord(*sender, FrameKind::kCredit, 1);
  EXPECT_THAT(Received(0), IsOk());
}

// The chunks that were under way when a message was asked for again are none of what comes again.
TEST_F(HostilePeerTest, WhatCameBehindADamagedChunk_IsDroppedUntilItComesAgain) {
  const auto sender = Welcomed();
  sender->Write(WithDamagedPayload(0));
  sender->Write(ChunkFrame(ChunkHeader(1, 4)));
  ExpectWord(*sender, FrameKind::kAgain, 0);
  sender->Write(ChunkFrame(ChunkHeader(0, 4)));
  sender->Write(ChunkFrame(ChunkHeader(1, 4)));
  EXPECT_THAT(Received(0), IsOk());
  EXPECT_THAT(Received(1), IsOk());
}

TEST_F(HostilePeerTest, HeaderThatDoesNotMatchItsChecksum_EndsTheStreamAlone) {
  const auto first = Welcomed();
  std::string bytes = Bytes(ChunkFrame(ChunkHeader(0, 4)));
  bytes[0] ^= 1;
  first->Write(bytes);
  EXPECT_THAT(first->Finish(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("cannot be read")));
  const auto second = Welcomed(/*stream=*/1);
  second->Write(ChunkFrame(ChunkHeader(0, 4)));
  EXPECT_THAT(Received(), IsOk());
  EXPECT_EQ(Traffic().redials, 1);
}

TEST_F(HostilePeerTest, NewerStream_TakesTheOldersPlaceAndGoesOn) {
  const auto first = Welcomed();
  first->Write(ChunkFrame(ChunkHeader(0, 4)));
  EXPECT_THAT(Received(0), IsOk());
  FrameHeader half = ChunkHeader(1, 4);
  half.payload_bytes = 8;
  first->Write(ChunkFrame(half));
  const auto second = Welcomed(/*stream=*/5, /*received=*/1);
  EXPECT_THAT(first->Finish(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("has taken its place")));
  second->Write(ChunkFrame(ChunkHeader(1, 4)));
  EXPECT_THAT(Received(1), IsOk());
  RawSender late(address());
  late.Write(MakeTextFrame(HelloHeader(4), HelloPayload()));
  EXPECT_THAT(late.Finish(),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("after stream 5")));
}

TEST_F(HostilePeerTest, NewerStreamOfAnotherWorker_TakesNothing) {
  const auto first = Welcomed();
  RawSender second(address());
  second.Write(MakeTextFrame(HelloHeader(1), EncodeHello({11, 22, "middle"})));
  EXPECT_THAT(second.Finish(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("expected worker left")));
  first->Write(ChunkFrame(ChunkHeader(0, 4)));
  EXPECT_THAT(Received(), IsOk());
}

TEST_F(HostilePeerTest, MessageThatHasCome_IsDroppedAndCounted) {
  const auto sender = Welcomed();
  for (const int64_t number : {0, 0, 1}) sender->Write(ChunkFrame(ChunkHeader(number, 4)));
  EXPECT_THAT(Received(0), IsOk());
  EXPECT_THAT(Received(1), IsOk());
  EXPECT_EQ(Traffic().duplicates, 1);
  // A message is counted when the run may already have it.
  for (const absl::Time end = InAWhile(); Traffic().messages < 2 && absl::Now() < end;) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(Traffic().messages, 2);
}

TEST_F(HostilePeerTest, GapInTheNumbers_IsAskedFor) {
  const auto sender = Welcomed();
  sender->Write(ChunkFrame(ChunkHeader(1, 4)));
  ExpectWord(*sender, FrameKind::kAgain, 0);
  for (const int64_t number : {0, 1}) sender->Write(ChunkFrame(ChunkHeader(number, 4)));
  EXPECT_THAT(Received(0), IsOk());
  EXPECT_THAT(Received(1), IsOk());
}

TEST_F(HostilePeerTest, MoreMessagesThanTheWindow_FailBothEnds) {
  const auto sender = Welcomed();
  for (int i = 0; i <= kWindow; ++i) sender->Write(ChunkFrame(ChunkHeader(i, 4)));
  const auto refused = StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("window of 2"));
  EXPECT_THAT(sender->Finish(), refused);
  EXPECT_THAT(Received(), refused);
  EXPECT_EQ(Rejected(Rejection::kOverLimit), 1);
}

TEST_F(HostilePeerTest, GrpcMessageOverTheLimit_FailsBothEnds) {
  const auto sender = Welcomed();
  sender->Write(std::string(rpc_limits::kTensorMessageBytesMax + 1, 'x'));
  EXPECT_FALSE(sender->Finish().ok());
  EXPECT_THAT(Received(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker left")));
  ExpectWorkerGoesOn();
}

TEST_F(HostilePeerTest, SecondHelloOrAReceiversFrame_IsRefused) {
  for (const FrameKind kind :
       {FrameKind::kHello, FrameKind::kCredit, FrameKind::kWelcome, FrameKind::kAgain}) {
    TestCluster cluster;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(auto receiver,
                                  cluster.right().OpenReceiver(kHostileEdge, kWindow, kHostileLimit,
                                                               cluster.workers[1].pool));
    RawSender sender(cluster.workers[1].server.address().ToString());
    ASSERT_TRUE(sender.Write(MakeTextFrame(HelloHeader(), HelloPayload())));
    ASSERT_TRUE(sender.Read());
    FrameHeader header = HelloHeader();
    header.kind = kind;
    sender.Write(MakeTextFrame(header, ""));
    EXPECT_THAT(sender.Finish(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not expected")));
  }
}

TEST_F(HostilePeerTest, SenderThatDiesInMidMessageAndStaysAway_FailsTheRun) {
  {
    const auto sender = Welcomed();
    FrameHeader header = ChunkHeader(0, 4);
    header.payload_bytes = 8;
    sender->Write(ChunkFrame(header));
  }
  EXPECT_THAT(Received(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker left")));
}

TEST_F(HostilePeerTest, ManyStreamsForRunsThatNeverCome_AreBounded) {
  std::vector<std::unique_ptr<RawSender>> senders;
  FrameHeader header = HelloHeader();
  header.key.job = 99;
  for (size_t i = 0; i < TensorHub::kParkedStreamsMax; ++i) {
    header.key.epoch = static_cast<int64_t>(i) + 1;
    senders.push_back(std::make_unique<RawSender>(address()));
    ASSERT_TRUE(senders.back()->Write(MakeTextFrame(header, HelloPayload())));
  }
  RawSender last(address());
  last.Write(MakeTextFrame(header, HelloPayload()));
  EXPECT_THAT(last.Finish(), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("64")));
  ExpectWorkerGoesOn();
}

TEST_F(HostilePeerTest, RandomFrames_NeverCrashTheWorker) {
  RandomStream random(3, 1);
  for (int round = 0; round < 60; ++round) {
    RawSender sender(address());
    bool open = true;
    for (int i = 0; open && i < 4; ++i) {
      FrameHeader header = i == 0 ? HelloHeader() : ChunkHeader(i - 1, 4);
      header.key.job = 1000 + round;
      grpc::ByteBuffer frame = i == 0 ? MakeTextFrame(header, HelloPayload()) : ChunkFrame(header);
      grpc::Slice slice;
      ASSERT_TRUE(frame.DumpToSingleSlice(&slice).ok());
      std::string bytes(reinterpret_cast<const char*>(slice.begin()), slice.size());
      for (uint64_t n = random.Below(3); n > 0; --n) {
        bytes[random.Below(bytes.size())] = static_cast<char>(random.Next());
      }
      open = sender.Write(bytes.substr(0, random.Below(8) == 0 ? random.Below(bytes.size()) : ~0));
    }
  }
  ExpectWorkerGoesOn();
}

// ------------------------------------------------------------------- the other way: a wrong receiver

class WrongReceiverTest : public ::testing::Test {
 protected:
  // Opens the edge to `address` instead of the worker named right.
  absl::StatusOr<std::unique_ptr<Sender>> OpenTo(const std::string& address, int window,
                                                 int64_t limit) {
    RunPeers peers = cluster_.Peers(0, 2);
    peers.workers[1].address = address;
    cluster_.workers[0].transport.reset();
    auto transport = cluster_.workers[0].hub.Join(peers);
    if (!transport.ok()) return transport.status();
    cluster_.workers[0].transport = *std::move(transport);
    return cluster_.left().OpenSender(kHostileEdge, window, limit);
  }
  absl::Status Send(Sender& sender, int64_t sequence, int64_t elements) {
    return sender.Send(sequence, cluster_.workers[0].pool.AcquireTensor(DType::kF32, {elements}),
                       InAWhile());
  }
  absl::Status SendTo(const std::string& address) {
    auto sender = OpenTo(address, 1, kHostileLimit);
    return sender.ok() ? Send(**sender, 0, 4) : sender.status();
  }
  TestCluster cluster_;
};

TEST_F(WrongReceiverTest, GrpcServerThatIsNoWorker_IsNamedAsSuch) {
  RpcServer server({.listen = {"127.0.0.1", 0}});
  ASSERT_THAT(server.Start(), IsOk());
  EXPECT_THAT(SendTo(server.address().ToString()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("worker right"), HasSubstr("not a Penstock worker"))));
}

TEST_F(WrongReceiverTest, ServerThatSpeaksNoHttp2_IsUnavailable) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  socklen_t size = sizeof(address);
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  std::thread server([&] {
    const int client = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    const std::string answer = "220 mail.example.com ESMTP ready\r\n";
    EXPECT_GT(send(client, answer.data(), answer.size(), MSG_NOSIGNAL), 0);
    char buffer[4096];
    while (recv(client, buffer, sizeof(buffer), 0) > 0) {
    }
    close(client);
    close(listener);
  });
  EXPECT_THAT(SendTo(absl::StrCat("127.0.0.1:", ntohs(address.sin_port))),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker right")));
  server.join();
}

// A receiver that answers a hello with `answer`, and, where there is one, writes `later` when told to.
// Until then it reads nothing more.
class AnsweringReceiver {
 public:
  explicit AnsweringReceiver(const grpc::ByteBuffer& answer,
                             const std::optional<grpc::ByteBuffer>& later = std::nullopt) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterAsyncGenericService(&service_);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    thread_ = std::thread([this, answer, later] {
      service_.RequestCall(&context_, &stream_, queue_.get(), queue_.get(), nullptr);
      if (!Next()) return;
      stream_.Read(&hello_, nullptr);
      Next();
      stream_.Write(answer, nullptr);
      Next();
      if (later.has_value()) {
        go_on_.wait(false);
        stream_.Write(*later, nullptr);
        Next();
      }
      do {  // until the client gives up
        stream_.Read(&hello_, nullptr);
      } while (Next());
      stream_.Finish(grpc::Status::OK, nullptr);
      Next();
    });
  }
  ~AnsweringReceiver() {
    GoOn();
    thread_.join();
    server_->Shutdown();
    queue_->Shutdown();
    while (Next()) {
    }
  }
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  void GoOn() {
    go_on_ = true;
    go_on_.notify_one();
  }

 private:
  bool Next() {
    void* tag = nullptr;
    bool ok = false;
    return queue_->Next(&tag, &ok) && ok;
  }

  int port_ = 0;
  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  grpc::ByteBuffer hello_;
  std::atomic<bool> go_on_ = false;
  std::thread thread_;
};

// Of a receiver that has `received` messages and took all of them.
FrameHeader WelcomeOf(int64_t received) {
  FrameHeader header;
  header.kind = FrameKind::kWelcome;
  header.key = {JobHash(kTestJob), 2, kHostileEdge};
  header.number = received;
  return header;
}

TEST_F(WrongReceiverTest, GarbageInsteadOfWelcome_IsRefused) {
  const grpc::Slice garbage(std::string(300, 'y'));
  AnsweringReceiver receiver(grpc::ByteBuffer(&garbage, 1));
  EXPECT_THAT(SendTo(receiver.address()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("worker right"), HasSubstr("does not speak Penstock"))));
}

TEST_F(WrongReceiverTest, WelcomeForMessagesThatWereNeverSent_IsRefused) {
  AnsweringReceiver receiver(MakeTextFrame(WelcomeOf(1000), ""));
  EXPECT_THAT(SendTo(receiver.address()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("0 to 0 messages received")));
}

TEST_F(WrongReceiverTest, WelcomeWithMoreMessagesInTheMailboxThanCame_IsRefused) {
  FrameHeader welcome = WelcomeOf(0);
  welcome.value = 1;
  AnsweringReceiver receiver(MakeTextFrame(welcome, ""));
  EXPECT_THAT(SendTo(receiver.address()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("released")));
}

TEST_F(WrongReceiverTest, CreditForMessagesThatWereNotSentYet_IsRefused) {
  FrameHeader credit = WelcomeOf(kWindow);
  credit.kind = FrameKind::kCredit;
  AnsweringReceiver receiver(MakeTextFrame(WelcomeOf(0), ""), MakeTextFrame(credit, ""));
  constexpr int64_t kElements = 8 << 20;  // more than the network takes in unread
  PENSTOCK_ASSERT_OK_AND_ASSIGN(auto sender, OpenTo(receiver.address(), kWindow, 4 * kElements));
  for (int i = 0; i < kWindow; ++i) ASSERT_THAT(Send(*sender, i, kElements), IsOk());
  receiver.GoOn();
  EXPECT_THAT(Send(*sender, kWindow, kElements),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("worker right"), HasSubstr("0 to 0 messages received"))));
}

TEST_F(WrongReceiverTest, WelcomeToExportWhereNothingWasOffered_IsRefused) {
  AnsweringReceiver receiver(MakeTextFrame(WelcomeOf(0), "cuda-ipc"));
  EXPECT_THAT(SendTo(receiver.address()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("worker right"), HasSubstr("nothing was offered"))));
}

TEST_F(WrongReceiverTest, WelcomeForAnotherEdge_IsRefused) {
  FrameHeader header = WelcomeOf(0);
  header.key.edge.destination = 5;
  AnsweringReceiver receiver(MakeTextFrame(header, ""));
  EXPECT_THAT(SendTo(receiver.address()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("expected welcome"), HasSubstr("0->5"))));
}

}  // namespace
}  // namespace penstock
