// What every transport must do, as one suite over a factory.
//
// To test a transport: implement TransportPair for it and write
//   INSTANTIATE_TEST_SUITE_P(Memory, TransportSuite,
//                            ::testing::Values(TransportPairFactory(MakeMemoryPair)));
// Worker 0 ("left") holds stage 0 and worker 1 ("right") stage 1.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "tests/support/status_matchers.h"
#include "worker/transport.h"

namespace penstock {

// Two workers that can reach each other.
class TransportPair {
 public:
  virtual ~TransportPair() = default;
  virtual Transport& transport(int worker) = 0;
  virtual BufferPool& pool(int worker) = 0;
  // The worker's process dies without a word; its transport is not used any more.
  virtual void Kill(int worker) = 0;
  // Cuts all connections between the two for a moment; nothing where there are none.
  virtual void Interrupt() {}
};

using TransportPairFactory = std::function<std::unique_ptr<TransportPair>()>;

class TransportSuite : public ::testing::TestWithParam<TransportPairFactory> {
 protected:
  static constexpr EdgeId kForward = {EdgeKind::kActivation, 0, 1};
  static constexpr EdgeId kBackward = {EdgeKind::kGradient, 1, 0};
  static constexpr int64_t kLimitBytes = 16 << 20;

  struct Edge {
    std::unique_ptr<Sender> sender;
    std::unique_ptr<Receiver> receiver;
  };

  Edge Open(const EdgeId& id, int capacity, int64_t limit_bytes = kLimitBytes) {
    const int from = id.source;
    const int to = id.destination;
    auto sender = pair_->transport(from).OpenSender(id, capacity, limit_bytes);
    auto receiver = pair_->transport(to).OpenReceiver(id, capacity, limit_bytes, pair_->pool(to));
    EXPECT_THAT(sender, IsOk());
    EXPECT_THAT(receiver, IsOk());
    return {std::move(*sender), std::move(*receiver)};
  }

  // A tensor whose every element depends on `sequence`.
  Tensor Numbered(int64_t sequence, const Shape& shape, int worker = 0) {
    Tensor tensor = pair_->pool(worker).AcquireTensor(DType::kF32, shape);
    for (int64_t i = 0; i < shape.elements(); ++i) tensor.data<float>()[i] = Value(sequence, i);
    return tensor;
  }
  static float Value(int64_t sequence, int64_t i) { return float(sequence * 31 + i % 1021); }

  static void ExpectNumbered(int64_t sequence, const Tensor& tensor) {
    for (int64_t i = 0; i < tensor.shape.elements(); ++i) {
      ASSERT_EQ(tensor.data<float>()[i], Value(sequence, i)) << "element " << i;
    }
  }

  static TensorExpectation Expect(int64_t sequence, const Shape& shape) {
    return {sequence, DType::kF32, shape};
  }

  static absl::Time Soon() { return absl::Now() + absl::Milliseconds(50); }
  static absl::Time Later() { return absl::Now() + absl::Seconds(20); }

  // Polls until `condition` holds; a network may need a moment.
  static bool Eventually(const std::function<bool()>& condition) {
    for (int attempt = 0; attempt < 2000; ++attempt) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  std::unique_ptr<TransportPair> pair_ = GetParam()();
};

TEST_P(TransportSuite, Messages_ManySent_ArriveOnceInOrder) {
  Edge edge = Open(kForward, 3);
  const Shape shape = {5, 7};
  std::thread sender([&] {
    for (int64_t m = 0; m < 200; ++m) {
      ASSERT_THAT(edge.sender->Send(m, Numbered(m, shape), Later()), IsOk());
    }
  });
  for (int64_t m = 0; m < 200; ++m) {
    auto tensor = edge.receiver->Receive(Expect(m, shape), Later());
    ASSERT_THAT(tensor, IsOk());
    ExpectNumbered(m, *tensor);
  }
  sender.join();
  EXPECT_FALSE(edge.receiver->Ready());
}

TEST_P(TransportSuite, Messages_ConnectionsCutMeanwhile_ArriveOnceInOrder) {
  Edge edge = Open(kForward, 3);
  const Shape shape = {5, 7};
  std::thread sender([&] {
    for (int64_t m = 0; m < 200; ++m) {
      ASSERT_THAT(edge.sender->Send(m, Numbered(m, shape), Later()), IsOk());
    }
  });
  for (int64_t m = 0; m < 200; ++m) {
    if (m % 50 == 25) pair_->Interrupt();
    auto tensor = edge.receiver->Receive(Expect(m, shape), Later());
    EXPECT_THAT(tensor, IsOk());
    if (!tensor.ok()) break;
    ExpectNumbered(m, *tensor);
  }
  sender.join();
  EXPECT_FALSE(edge.receiver->Ready());
  EXPECT_EQ(edge.sender->messages_sent(), 200);
}

TEST_P(TransportSuite, Doorbell_RingsForEveryMessageOfAnyEdge_AndAtTheEnd) {
  Doorbell bell;
  Edge forward = Open(kForward, 3);
  Edge back = Open(kBackward, 3);
  forward.receiver->RingOnArrival(&bell);
  back.receiver->RingOnArrival(&bell);
  const auto until = [] { return CondVar::Clock::now() + std::chrono::seconds(20); };
  int64_t heard = bell.rings();
  ASSERT_THAT(forward.sender->Send(0, Numbered(0, {5}), Later()), IsOk());
  ASSERT_TRUE(bell.WaitBeyond(heard, until()));
  EXPECT_TRUE(forward.receiver->Ready());
  EXPECT_FALSE(back.receiver->Ready());
  heard = bell.rings();
  ASSERT_THAT(back.sender->Send(0, Numbered(0, {5}, /*worker=*/1), Later()), IsOk());
  ASSERT_TRUE(bell.WaitBeyond(heard, until()));
  EXPECT_TRUE(back.receiver->Ready());
  // The peer's end makes Ready true on an edge that had nothing.
  EXPECT_THAT(forward.receiver->Receive(Expect(0, {5}), Later()), IsOk());
  EXPECT_FALSE(forward.receiver->Ready());
  heard = bell.rings();
  pair_->transport(0).Cancel(absl::AbortedError("enough"));
  ASSERT_TRUE(bell.WaitBeyond(heard, until()));
  EXPECT_TRUE(Eventually([&] { return forward.receiver->Ready(); }));
  // Nobody is rung who does not listen any more.
  forward.receiver.reset();
  back.receiver.reset();
  heard = bell.rings();
  EXPECT_FALSE(bell.WaitBeyond(heard, CondVar::Clock::now() + std::chrono::milliseconds(20)));
}

TEST_P(TransportSuite, Messages_OfAllSizes_ArriveContiguous) {
  Edge edge = Open(kForward, 1);
  const Shape shapes[] = {{1},      {2, 3},           {255},         {128 * 1024},
                          {131073}, {3, 100, 1, 999}, {1024 * 1024}, {2 * 1024 * 1024 + 1}};
  int64_t sequence = 0;
  for (const Shape& shape : shapes) {
    ASSERT_THAT(edge.sender->Send(sequence, Numbered(sequence, shape), Later()), IsOk());
    auto tensor = edge.receiver->Receive(Expect(sequence, shape), Later());
    ASSERT_THAT(tensor, IsOk());
    EXPECT_EQ(tensor->shape, shape);
    ExpectNumbered(sequence, *tensor);
    ++sequence;
  }
}

TEST_P(TransportSuite, Messages_BothDirections_DoNotDisturbEachOther) {
  Edge forward = Open(kForward, 2);
  Edge backward = Open(kBackward, 2);
  const Shape shape = {64, 65};
  std::thread right([&] {
    for (int64_t m = 0; m < 100; ++m) {
      auto tensor = forward.receiver->Receive(Expect(m, shape), Later());
      ASSERT_THAT(tensor, IsOk());
      ASSERT_THAT(backward.sender->Send(m, *tensor, Later()), IsOk());
    }
  });
  for (int64_t m = 0; m < 100; ++m) {
    ASSERT_THAT(forward.sender->Send(m, Numbered(m, shape), Later()), IsOk());
    auto tensor = backward.receiver->Receive(Expect(m, shape), Later());
    ASSERT_THAT(tensor, IsOk());
    ExpectNumbered(m, *tensor);
  }
  right.join();
}

TEST_P(TransportSuite, Messages_OtherTypes_KeepTheirBytes) {
  Edge edge = Open(kForward, 1);
  Tensor tensor = pair_->pool(0).AcquireTensor(DType::kI32, {3});
  tensor.data<int32_t>()[0] = -1;
  tensor.data<int32_t>()[1] = 0x7f800001;  // a signalling NaN, were it a float
  tensor.data<int32_t>()[2] = 7;
  ASSERT_THAT(edge.sender->Send(0, tensor, Later()), IsOk());
  auto received = edge.receiver->Receive({0, DType::kI32, {3}}, Later());
  ASSERT_THAT(received, IsOk());
  EXPECT_EQ(received->data<int32_t>()[0], -1);
  EXPECT_EQ(received->data<int32_t>()[1], 0x7f800001);
  EXPECT_EQ(received->data<int32_t>()[2], 7);
}

TEST_P(TransportSuite, Window_Full_BlocksUntilAMessageIsReceived) {
  Edge edge = Open(kForward, 2);
  const Shape shape = {4};
  ASSERT_THAT(edge.sender->Send(0, Numbered(0, shape), Later()), IsOk());
  ASSERT_THAT(edge.sender->Send(1, Numbered(1, shape), Later()), IsOk());
  EXPECT_FALSE(edge.sender->Ready());
  EXPECT_THAT(edge.sender->Send(2, Numbered(2, shape), Soon()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, ::testing::HasSubstr("0->1")));
  ASSERT_THAT(edge.receiver->Receive(Expect(0, shape), Later()), IsOk());
  ASSERT_THAT(edge.sender->Send(2, Numbered(2, shape), Later()), IsOk());
  ASSERT_THAT(edge.receiver->Receive(Expect(1, shape), Later()), IsOk());
  ASSERT_THAT(edge.receiver->Receive(Expect(2, shape), Later()), IsOk());
  EXPECT_TRUE(Eventually([&] { return edge.sender->Ready(); }));
}

TEST_P(TransportSuite, Ready_AfterAMessageArrived_IsTrue) {
  Edge edge = Open(kForward, 1);
  EXPECT_FALSE(edge.receiver->Ready());
  ASSERT_THAT(edge.sender->Send(0, Numbered(0, {8}), Later()), IsOk());
  EXPECT_TRUE(Eventually([&] { return edge.receiver->Ready(); }));
}

TEST_P(TransportSuite, Receive_NothingSent_EndsAtTheDeadlineNamingTheEdge) {
  Edge edge = Open(kForward, 1);
  EXPECT_THAT(edge.receiver->Receive(Expect(0, {4}), Soon()),
              StatusIs(absl::StatusCode::kDeadlineExceeded, ::testing::HasSubstr("0->1")));
}

TEST_P(TransportSuite, Receive_OtherSequence_NamesBoth) {
  Edge edge = Open(kForward, 1);
  ASSERT_THAT(edge.sender->Send(3, Numbered(3, {4}), Later()), IsOk());
  EXPECT_THAT(edge.receiver->Receive(Expect(4, {4}), Later()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::AllOf(::testing::HasSubstr("message 4"),
                                        ::testing::HasSubstr("message 3"))));
}

TEST_P(TransportSuite, Receive_OtherShape_NamesBoth) {
  Edge edge = Open(kForward, 1);
  ASSERT_THAT(edge.sender->Send(0, Numbered(0, {4, 2}), Later()), IsOk());
  EXPECT_THAT(
      edge.receiver->Receive(Expect(0, {2, 4}), Later()),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               ::testing::AllOf(::testing::HasSubstr("[2, 4]"), ::testing::HasSubstr("[4, 2]"))));
}

TEST_P(TransportSuite, Receive_OtherType_NamesBoth) {
  Edge edge = Open(kForward, 1);
  ASSERT_THAT(edge.sender->Send(0, Numbered(0, {4}), Later()), IsOk());
  EXPECT_THAT(edge.receiver->Receive({0, DType::kI32, {4}}, Later()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       ::testing::AllOf(::testing::HasSubstr("f32"), ::testing::HasSubstr("i32"))));
}

TEST_P(TransportSuite, Send_OverTheSizeLimit_IsRefused) {
  Edge edge = Open(kForward, 1, 64);
  EXPECT_THAT(edge.sender->Send(0, Numbered(0, {16}), Later()), IsOk());
  EXPECT_THAT(edge.sender->Send(1, Numbered(1, {17}), Later()),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("68 bytes")));
}

TEST_P(TransportSuite, Send_EmptyTensor_IsRefused) {
  Edge edge = Open(kForward, 1);
  EXPECT_THAT(edge.sender->Send(0, Tensor(), Later()),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("0 bytes")));
}

TEST_P(TransportSuite, Open_ZeroLimits_AreRefused) {
  Transport& left = pair_->transport(0);
  EXPECT_THAT(left.OpenSender(kForward, 0, 64),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("capacity")));
  EXPECT_THAT(left.OpenSender(kForward, 1, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("bytes")));
  EXPECT_THAT(left.OpenReceiver(kBackward, 0, 64, pair_->pool(0)),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("capacity")));
  EXPECT_THAT(left.OpenReceiver(kBackward, 1, 0, pair_->pool(0)),
              StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("bytes")));
}

TEST_P(TransportSuite, Open_SameEndTwice_IsRefused) {
  Edge edge = Open(kForward, 1);
  EXPECT_THAT(pair_->transport(0).OpenSender(kForward, 1, kLimitBytes),
              StatusIs(absl::StatusCode::kAlreadyExists, ::testing::HasSubstr("0->1")));
}

TEST_P(TransportSuite, Open_EndOfAnotherWorker_IsRefused) {
  EXPECT_THAT(pair_->transport(1).OpenSender(kForward, 1, kLimitBytes),
              StatusIs(absl::StatusCode::kFailedPrecondition, ::testing::HasSubstr("0->1")));
}

TEST_P(TransportSuite, Cancel_WhileReceiving_ReturnsItsReason) {
  Edge edge = Open(kForward, 1);
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pair_->transport(1).Cancel(absl::AbortedError("the user said stop"));
  });
  EXPECT_THAT(edge.receiver->Receive(Expect(0, {4}), Later()),
              StatusIs(absl::StatusCode::kAborted, ::testing::HasSubstr("the user said stop")));
  canceller.join();
  EXPECT_THAT(edge.receiver->Receive(Expect(0, {4}), Later()),
              StatusIs(absl::StatusCode::kAborted, ::testing::HasSubstr("the user said stop")));
}

TEST_P(TransportSuite, Cancel_WhileWaitingForCredit_ReturnsItsReason) {
  Edge edge = Open(kForward, 1);
  ASSERT_THAT(edge.sender->Send(0, Numbered(0, {4}), Later()), IsOk());
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pair_->transport(0).Cancel(absl::AbortedError("the user said stop"));
  });
  EXPECT_THAT(edge.sender->Send(1, Numbered(1, {4}), Later()),
              StatusIs(absl::StatusCode::kAborted, ::testing::HasSubstr("the user said stop")));
  canceller.join();
}

TEST_P(TransportSuite, Cancel_OfThePeer_AbortsWithItsNameAndReason) {
  Edge edge = Open(kForward, 1);
  ASSERT_THAT(edge.sender->Send(0, Numbered(0, {4}), Later()), IsOk());
  ASSERT_THAT(edge.receiver->Receive(Expect(0, {4}), Later()), IsOk());
  pair_->transport(0).Cancel(absl::InternalError("disk full"));
  EXPECT_THAT(
      edge.receiver->Receive(Expect(1, {4}), Later()),
      StatusIs(absl::StatusCode::kAborted,
               ::testing::AllOf(::testing::HasSubstr("left"), ::testing::HasSubstr("disk full"))));
}

TEST_P(TransportSuite, Kill_OfTheSender_MakesReceiveUnavailableWithItsName) {
  Edge edge = Open(kForward, 1);
  ASSERT_THAT(edge.sender->Send(0, Numbered(0, {4}), Later()), IsOk());
  ASSERT_THAT(edge.receiver->Receive(Expect(0, {4}), Later()), IsOk());
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pair_->Kill(0);
  });
  EXPECT_THAT(edge.receiver->Receive(Expect(1, {4}), Later()),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::HasSubstr("left")));
  killer.join();
}

TEST_P(TransportSuite, Kill_OfTheReceiver_MakesSendUnavailableWithItsName) {
  Edge edge = Open(kForward, 1);
  ASSERT_THAT(edge.sender->Send(0, Numbered(0, {4}), Later()), IsOk());
  std::thread killer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pair_->Kill(1);
  });
  EXPECT_THAT(edge.sender->Send(1, Numbered(1, {4}), Later()),
              StatusIs(absl::StatusCode::kUnavailable, ::testing::HasSubstr("right")));
  killer.join();
}

TEST_P(TransportSuite, Counters_AfterMessages_AreExact) {
  Edge edge = Open(kForward, 4);
  EXPECT_EQ(edge.sender->messages_sent(), 0);
  for (int64_t m = 0; m < 3; ++m) {
    ASSERT_THAT(edge.sender->Send(m, Numbered(m, {10}), Later()), IsOk());
  }
  EXPECT_EQ(edge.sender->messages_sent(), 3);
  EXPECT_EQ(edge.sender->bytes_sent(), 120);
}

TEST_P(TransportSuite, SteadyState_RepeatedSizes_TakeNoNewMemory) {
  Edge edge = Open(kForward, 2);
  const Shape shape = {300, 300};
  const auto exchange = [&](int64_t m) {
    ASSERT_THAT(edge.sender->Send(m, Numbered(m, shape), Later()), IsOk());
    ASSERT_THAT(edge.receiver->Receive(Expect(m, shape), Later()), IsOk());
    // The sender's block comes back once the network has read it.
    ASSERT_TRUE(Eventually([&] { return pair_->pool(0).stats().bytes_in_use == 0; }));
    ASSERT_TRUE(Eventually([&] { return pair_->pool(1).stats().bytes_in_use == 0; }));
  };
  exchange(0);
  const int64_t left = pair_->pool(0).stats().allocations;
  const int64_t right = pair_->pool(1).stats().allocations;
  for (int64_t m = 1; m < 20; ++m) exchange(m);
  EXPECT_EQ(pair_->pool(0).stats().allocations, left);
  EXPECT_EQ(pair_->pool(1).stats().allocations, right);
}

}  // namespace penstock
