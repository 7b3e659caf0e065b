// Edges that export tensors instead of carrying their bytes: between two servers on loopback, with devices
// that are played.
#include <gtest/gtest.h>

#include <functional>

#include "services/transport/gather.h"
#include "services/transport/grpc_transport.h"
#include "tests/services/transport/cluster.h"
#include "tests/services/transport/fake_share.h"
#include "tests/services/transport/raw_sender.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

constexpr EdgeId kExportingEdge = {EdgeKind::kActivation, 0, 1};
constexpr int64_t kExportingLimit = 1 << 24;

absl::Time Shortly() { return absl::Now() + absl::Milliseconds(50); }
absl::Time BeforeTheEnd() { return absl::Now() + absl::Seconds(20); }

bool Eventually(const std::function<bool()>& condition) {
  for (int attempt = 0; attempt < 4000; ++attempt) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return false;
}

// --------------------------------------------------------------------------- what is agreed upon

class ExportingTest : public ::testing::Test {
 protected:
  // Opens an edge whose ends use these shares; null: none.
  void Open(DeviceShare* left, DeviceShare* right, int capacity = 2) {
    cluster_.left().UseShare(left);
    cluster_.right().UseShare(right);
    auto receiver =
        cluster_.right().OpenReceiver(kExportingEdge, capacity, kExportingLimit, right_pool());
    auto sender = cluster_.left().OpenSender(kExportingEdge, capacity, kExportingLimit);
    ASSERT_THAT(receiver, IsOk());
    ASSERT_THAT(sender, IsOk());
    receiver_ = *std::move(receiver);
    sender_ = *std::move(sender);
  }
  void OpenExporting(int capacity = 2) { Open(&left_share_, &right_share_, capacity); }

  BufferPool& left_pool() { return cluster_.workers[0].pool; }
  BufferPool& right_pool() { return cluster_.workers[1].pool; }
  int64_t ExportedBytes() { return left_pool().stats().bytes_in_use; }

  Tensor Holding(int32_t value) {
    Tensor tensor = left_pool().AcquireTensor(DType::kI32, {4});
    for (int i = 0; i < 4; ++i) tensor.data<int32_t>()[i] = value;
    return tensor;
  }
  absl::Status Export(int32_t value, absl::Time deadline = BeforeTheEnd()) {
    const Tensor tensor = Holding(value);
    absl::Status reserved = sender_->Reserve(value, tensor, deadline);
    if (!reserved.ok()) return reserved;
    const absl::StatusOr<ShareBytes> descriptor = sender_->Describe(tensor);
    return descriptor.ok() ? sender_->Export(value, tensor, *descriptor) : descriptor.status();
  }
  struct Taken {
    Tensor tensor;
    bool fetched = false;
  };
  absl::StatusOr<Taken> Take(const TensorExpectation& expected,
                             absl::Time deadline = BeforeTheEnd()) {
    absl::StatusOr<Arrival> arrival = receiver_->Take(expected, deadline);
    if (!arrival.ok()) return arrival.status();
    if (!arrival->is_exported()) return Taken{arrival->tensor};
    absl::StatusOr<Importer::Fetched> fetched = receiver_->Fetch(*arrival);
    if (!fetched.ok()) return fetched.status();
    return Taken{fetched->tensor, /*fetched=*/true};
  }
  absl::StatusOr<Taken> Take(int32_t sequence) { return Take({sequence, DType::kI32, {4}}); }
  void ExpectArrives(int32_t value, bool fetched) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Taken arrival, Take(value));
    EXPECT_EQ(arrival.fetched, fetched);
    EXPECT_EQ(*arrival.tensor.data<int32_t>(), value);
  }
  // An edge that carries bytes, both ends of which say so and `why`.
  void ExpectHostMemory(const std::string& why) {
    ASSERT_THAT(sender_->Send(7, Holding(7), BeforeTheEnd()), IsOk());
    EXPECT_FALSE(sender_->exports());
    EXPECT_EQ(sender_->path(), "host");
    ExpectArrives(7, /*fetched=*/false);
    EXPECT_THAT(Opened(1), Contains(AllOf(HasSubstr("activation 0->1 from worker left"),
                                          HasSubstr(": host"), HasSubstr(why))));
    EXPECT_THAT(Opened(0),
                Contains(AllOf(HasSubstr("activation 0->1 to worker right"), HasSubstr(": host"))));
  }
  std::vector<std::string> Opened(int worker) {
    MutexLock lock(cluster_.workers[worker].mutex);
    return cluster_.workers[worker].opened;
  }

  FakeHost host_{1};
  TestCluster cluster_;
  FakeShare left_share_{host_, cluster_.workers[0].pool};
  FakeShare right_share_{host_, cluster_.workers[1].pool};
  std::unique_ptr<Receiver> receiver_;
  std::unique_ptr<Sender> sender_;
};

TEST_F(ExportingTest, BothCan_TensorIsFetchedAndBothEndsSayHow) {
  OpenExporting();
  ASSERT_THAT(Export(3), IsOk());
  EXPECT_TRUE(sender_->exports());
  EXPECT_EQ(sender_->path(), "fake-ipc");
  ExpectArrives(3, /*fetched=*/true);
  EXPECT_THAT(Opened(0), Contains(AllOf(HasSubstr("to worker right"), HasSubstr(": fake-ipc"))));
  EXPECT_THAT(Opened(1), Contains(AllOf(HasSubstr("from worker left"), HasSubstr(": fake-ipc"))));
  for (int worker : {0, 1}) {
    const auto traffic = cluster_.workers[worker].hub.Traffic(kTestJob);
    ASSERT_EQ(traffic.size(), 1u);
    EXPECT_EQ(traffic[0].path, "fake-ipc");
    EXPECT_EQ(traffic[0].bytes, 16);
  }
}

TEST_F(ExportingTest, OnlyTheSenderHasADevice_BytesTravel) {
  Open(&left_share_, nullptr);
  ExpectHostMemory("");
}

TEST_F(ExportingTest, OnlyTheReceiverHasADevice_BytesTravel) {
  Open(nullptr, &right_share_);
  ExpectHostMemory("");
}

TEST_F(ExportingTest, AnotherHost_BytesTravelAndTheReasonIsTold) {
  FakeHost other(2);
  FakeShare share(other, right_pool());
  Open(&left_share_, &share);
  ExpectHostMemory("another host");
  receiver_.reset();  // before its share
}

TEST_F(ExportingTest, SenderCannotExport_BytesTravelAndTheReasonIsTold) {
  left_share_.exports = false;
  OpenExporting();
  ExpectHostMemory("");
  EXPECT_THAT(Opened(0), Contains(HasSubstr("this system exports nothing")));
}

TEST_F(ExportingTest, HostTensorOnAExportingEdge_TravelsAsBytes) {
  OpenExporting();
  ASSERT_THAT(sender_->Send(5, Holding(5), BeforeTheEnd()), IsOk());
  ASSERT_THAT(Export(6), IsOk());
  ExpectArrives(5, /*fetched=*/false);
  ExpectArrives(6, /*fetched=*/true);
}

TEST_F(ExportingTest, Receive_OfAnExportedTensor_IsRefused) {
  OpenExporting();
  ASSERT_THAT(Export(0), IsOk());
  EXPECT_THAT(receiver_->Receive({0, DType::kI32, {4}}, BeforeTheEnd()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("got it exported")));
}

// ------------------------------------------------------------------------- who holds memory when

TEST_F(ExportingTest, Release_GivesTheSenderItsMemoryAndCreditBack) {
  OpenExporting(/*capacity=*/1);
  ASSERT_THAT(Export(0), IsOk());
  ExpectArrives(0, /*fetched=*/true);
  EXPECT_THAT(Export(1, Shortly()), StatusIs(absl::StatusCode::kDeadlineExceeded, _));
  EXPECT_GT(ExportedBytes(), 0);
  receiver_->Release();
  EXPECT_TRUE(Eventually([&] { return sender_->Ready(); }));
  EXPECT_TRUE(Eventually([&] { return ExportedBytes() == 0; }));
  EXPECT_THAT(Export(1), IsOk());
}

// The sender counts credits to know which memory is its own again.
TEST_F(ExportingTest, CreditOfAMessageBehindAnExportedOne_WaitsForTheRelease) {
  OpenExporting(/*capacity=*/3);
  ASSERT_THAT(Export(0), IsOk());
  ASSERT_THAT(sender_->Send(1, Holding(1), BeforeTheEnd()), IsOk());
  ASSERT_THAT(sender_->Send(2, Holding(2), BeforeTheEnd()), IsOk());
  ExpectArrives(0, /*fetched=*/true);
  ExpectArrives(1, /*fetched=*/false);
  ExpectArrives(2, /*fetched=*/false);
  absl::SleepFor(absl::Milliseconds(30));
  EXPECT_FALSE(sender_->Ready());
  EXPECT_GT(ExportedBytes(), 0);
  receiver_->Release();
  for (int m : {3, 4, 5}) EXPECT_THAT(Export(m), IsOk());
  for (int m : {3, 4, 5}) ExpectArrives(m, /*fetched=*/true);
  for (int i = 0; i < 3; ++i) receiver_->Release();
  // Each credit has come back once.
  for (int m : {6, 7, 8}) EXPECT_THAT(Export(m), IsOk());
  EXPECT_THAT(Export(9, Shortly()), StatusIs(absl::StatusCode::kDeadlineExceeded, _));
}

TEST_F(ExportingTest, ManyMessages_SenderReusesItsFewBlocks) {
  OpenExporting();
  const auto exchange = [&](int32_t m) {
    ASSERT_THAT(Export(m), IsOk());
    ExpectArrives(m, /*fetched=*/true);
    receiver_->Release();
    ASSERT_TRUE(Eventually([&] { return ExportedBytes() == 0; }));
  };
  exchange(0);
  const int64_t allocations = left_pool().stats().allocations;
  for (int32_t m = 1; m < 50; ++m) exchange(m);
  EXPECT_EQ(left_pool().stats().allocations, allocations);
}

TEST_F(ExportingTest, SenderLeavesAfterItsLastMessage_MemoryStaysUntilTheReceiverLeaves) {
  OpenExporting();
  ASSERT_THAT(Export(0), IsOk());
  ASSERT_THAT(Export(1), IsOk());
  sender_.reset();
  cluster_.workers[0].transport.reset();
  ExpectArrives(0, /*fetched=*/true);
  receiver_->Release();
  ExpectArrives(1, /*fetched=*/true);
  EXPECT_THAT(Take(2), StatusIs(absl::StatusCode::kAborted, HasSubstr("worker left")));
  EXPECT_GT(ExportedBytes(), 0);
  EXPECT_EQ(right_share_.open_importers, 1);
  receiver_.reset();
  EXPECT_EQ(right_share_.open_importers, 0);
  EXPECT_TRUE(Eventually([&] { return ExportedBytes() == 0; }));
}

TEST_F(ExportingTest, ReceiverDies_SenderGetsItsMemoryBack) {
  OpenExporting();
  ASSERT_THAT(Export(0), IsOk());
  ExpectArrives(0, /*fetched=*/true);
  cluster_.workers[1].proxy->Cut();
  EXPECT_TRUE(Eventually([&] { return ExportedBytes() == 0; }));
  EXPECT_THAT(Export(1), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker right")));
}

TEST_F(ExportingTest, SenderDies_TakeIsUnavailable) {
  OpenExporting();
  ASSERT_THAT(Export(0), IsOk());
  ExpectArrives(0, /*fetched=*/true);
  for (TestWorker& worker : cluster_.workers) worker.proxy->Cut();
  EXPECT_THAT(Take(1), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("worker left")));
  receiver_->Release();
}

TEST_F(ExportingTest, ReceiverCancels_SenderHearsWhyAndGetsItsMemoryBackWhenItIsClosed) {
  OpenExporting(/*capacity=*/1);
  ASSERT_THAT(Export(0), IsOk());
  ExpectArrives(0, /*fetched=*/true);
  cluster_.right().Cancel(absl::InternalError("disk full"));
  const auto aborted = StatusIs(absl::StatusCode::kAborted,
                                AllOf(HasSubstr("worker right"), HasSubstr("disk full")));
  EXPECT_THAT(Export(1), aborted);
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_GT(ExportedBytes(), 0);
  receiver_.reset();
  EXPECT_TRUE(Eventually([&] { return ExportedBytes() == 0; }));
  EXPECT_THAT(Export(2), aborted);
}

TEST_F(ExportingTest, ReceiverCancelsAndNeverCloses_SenderGetsItsMemoryBackAtTheDeadline) {
  OpenExporting();
  ASSERT_THAT(Export(0), IsOk());
  ExpectArrives(0, /*fetched=*/true);
  cluster_.right().Cancel(absl::InternalError("disk full"));
  EXPECT_TRUE(Eventually([&] { return ExportedBytes() == 0; }));
}

TEST_F(ExportingTest, ReceiverCancelsWhileMoreIsExported_MemoryStaysUntilItIsClosed) {
  OpenExporting(/*capacity=*/4);
  ASSERT_THAT(Export(0), IsOk());
  ExpectArrives(0, /*fetched=*/true);
  cluster_.right().Cancel(absl::InternalError("disk full"));
  for (int m = 1; m < 4; ++m) (void)Export(m);  // arrives or not, as it comes
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_GT(ExportedBytes(), 0);
  receiver_.reset();
  EXPECT_TRUE(Eventually([&] { return ExportedBytes() == 0; }));
}

TEST_F(ExportingTest, BothCancel_SenderGetsItsMemoryBackWhenItIsClosed) {
  OpenExporting();
  ASSERT_THAT(Export(0), IsOk());
  ExpectArrives(0, /*fetched=*/true);
  cluster_.right().Cancel(absl::InternalError("disk full"));
  cluster_.left().Cancel(absl::AbortedError("stopped"));
  sender_.reset();
  cluster_.workers[0].transport.reset();
  absl::SleepFor(absl::Milliseconds(100));
  EXPECT_GT(ExportedBytes(), 0);
  receiver_.reset();
  EXPECT_TRUE(Eventually([&] { return ExportedBytes() == 0; }));
}

TEST_F(ExportingTest, ServerOfAnImporterShutsDown_NothingHangs) {
  OpenExporting();
  ASSERT_THAT(Export(0), IsOk());
  ExpectArrives(0, /*fetched=*/true);
  sender_.reset();
  cluster_.workers[0].transport.reset();
  EXPECT_THAT(Take(1), StatusIs(absl::StatusCode::kAborted, _));
  cluster_.workers[1].server.Shutdown(absl::Milliseconds(100));
}

// ------------------------------------------------------------------------------- hostile exporters

class HostileExporterTest : public ExportingTest {
 protected:
  HostileExporterTest() {
    cluster_.right().UseShare(&right_share_);
    auto receiver = cluster_.right().OpenReceiver(kExportingEdge, 2, 4096, right_pool());
    EXPECT_THAT(receiver, IsOk());
    receiver_ = *std::move(receiver);
  }

  static FrameHeader Header(FrameKind kind) {
    FrameHeader header;
    header.kind = kind;
    header.key = {JobHash(kTestJob), 1, kExportingEdge};
    if (kind == FrameKind::kHello) {
      header.value = 2;
      header.tensor_bytes = 4096;
    } else {
      header.dtype = DType::kI32;
      header.shape = {4};
      header.tensor_bytes = 16;
    }
    return header;
  }
  // A sender whose offer was tried; how its tensors travel is in the welcome.
  std::unique_ptr<RawSender> Welcomed(const ShareBytes& offer, const std::string& path) {
    auto sender = std::make_unique<RawSender>(cluster_.workers[1].server.address().ToString());
    EXPECT_TRUE(sender->Write(
        MakeTextFrame(Header(FrameKind::kHello), EncodeHello({11, 22, "left", offer}))));
    EXPECT_TRUE(sender->Read());
    FrameReader welcome(sender->incoming());
    const auto header = welcome.ReadHeader();
    EXPECT_THAT(header, IsOk());
    std::string payload(header->payload_bytes, '\0');
    EXPECT_THAT(welcome.ReadPayload(*header, payload.data()), IsOk());
    EXPECT_EQ(payload, path);
    return sender;
  }
  std::unique_ptr<RawSender> Exporter() {
    return Welcomed(ShareBytes::From(host_.id()), "fake-ipc");
  }
  static std::string Descriptor(int64_t number) {
    const ShareBytes bytes = ShareBytes::From(number);
    return std::string(bytes.view());
  }
};

TEST_F(HostileExporterTest, OfferThatIsNone_IsAnsweredWithHostMemory) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ShareBytes offer, ShareBytes::Of("nonsense?!"));
  Welcomed(offer, "");
  EXPECT_THAT(Opened(1), Contains(AllOf(HasSubstr(": host"), HasSubstr("not an offer"))));
}

TEST_F(HostileExporterTest, UnknownMemory_FailsTheRunAndNamesTheMessage) {
  const auto sender = Exporter();
  sender->Write(MakeTextFrame(Header(FrameKind::kExported), Descriptor(99)));
  EXPECT_THAT(Take(0), StatusIs(absl::StatusCode::kInvalidArgument,
                                AllOf(HasSubstr("0->1"), HasSubstr("message 0"),
                                      HasSubstr("nothing of that size is exported"))));
}

TEST_F(HostileExporterTest, TensorLargerThanItsMemory_FailsTheRun) {
  const auto sender = Exporter();
  const Tensor small = Holding(1);
  FrameHeader header = Header(FrameKind::kExported);
  header.shape = {1000};
  header.tensor_bytes = 4000;
  sender->Write(MakeTextFrame(
      header, Descriptor(host_.NumberOf(small.data<void>(), small.buffer.size_bytes()))));
  EXPECT_THAT(Take({0, DType::kI32, {1000}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nothing of that size")));
}

TEST_F(HostileExporterTest, DescriptorThatIsNone_FailsTheRun) {
  const auto sender = Exporter();
  sender->Write(MakeTextFrame(Header(FrameKind::kExported), "x"));
  EXPECT_THAT(Take(0), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a descriptor")));
}

TEST_F(HostileExporterTest, DescriptorTooLong_FailsBothEnds) {
  const auto sender = Exporter();
  sender->Write(
      MakeTextFrame(Header(FrameKind::kExported), std::string(ShareBytes::kMax + 1, 'x')));
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument,
                                HasSubstr("descriptor bytes: expected 1 to 256"));
  EXPECT_THAT(sender->Finish(), refused);
  EXPECT_THAT(Take(0), refused);
}

TEST_F(HostileExporterTest, TensorOverTheEdgesLimit_FailsBothEnds) {
  const auto sender = Exporter();
  FrameHeader header = Header(FrameKind::kExported);
  header.shape = {1025};
  header.tensor_bytes = 4100;
  sender->Write(MakeTextFrame(header, Descriptor(1)));
  const auto refused =
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 4096 bytes"));
  EXPECT_THAT(sender->Finish(), refused);
  EXPECT_THAT(Take(0), refused);
}

TEST_F(HostileExporterTest, ExportedInTheMiddleOfChunks_FailsBothEnds) {
  const auto sender = Exporter();
  FrameHeader half = Header(FrameKind::kChunk);
  half.payload_bytes = 8;
  sender->Write(MakeChunkFrame(half, Holding(1)));
  sender->Write(MakeTextFrame(Header(FrameKind::kExported), Descriptor(1)));
  const auto refused = StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("from byte 8"));
  EXPECT_THAT(sender->Finish(), refused);
  EXPECT_THAT(Take(0), refused);
}

TEST_F(HostileExporterTest, ExportedOfAnotherEpoch_FailsBothEnds) {
  const auto sender = Exporter();
  FrameHeader header = Header(FrameKind::kExported);
  header.key.epoch = 2;
  sender->Write(MakeTextFrame(header, Descriptor(1)));
  const auto refused = StatusIs(absl::StatusCode::kFailedPrecondition,
                                AllOf(HasSubstr("epoch 1"), HasSubstr("epoch 2")));
  EXPECT_THAT(sender->Finish(), refused);
  EXPECT_THAT(Take(0), refused);
}

TEST_F(HostileExporterTest, MoreThanTheWindow_FailsBothEnds) {
  const auto sender = Exporter();
  for (int64_t m = 0; m < 3; ++m) {
    FrameHeader header = Header(FrameKind::kExported);
    header.number = header.sequence = m;
    sender->Write(MakeTextFrame(header, Descriptor(1)));
  }
  const auto refused = StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("window of 2"));
  EXPECT_THAT(sender->Finish(), refused);
  EXPECT_THAT(Take(0), refused);
}

}  // namespace
}  // namespace penstock
