#include "services/transport/message_assembler.h"

#include "base/status.h"
#include "compute/buffer_pool.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::HasSubstr;

class MessageAssemblerTest : public ::testing::Test {
 protected:
  static constexpr StreamKey kKey = {5, 2, {EdgeKind::kActivation, 0, 1}};
  static constexpr int64_t kLimit = 4000;

  FrameHeader Header(int64_t sequence, int64_t offset, int32_t bytes, int64_t elements = 1000) {
    FrameHeader header;
    header.kind = FrameKind::kChunk;
    header.key = kKey;
    header.sequence = sequence;
    header.shape = {elements};
    header.tensor_bytes = 4 * elements;
    header.chunk_offset = offset;
    header.payload_bytes = bytes;
    return header;
  }

  // Sends the header and a payload that fits it; `complete` if that ended a message.
  absl::Status Take(FrameHeader header, bool* complete = nullptr) {
    const Tensor source = pool_.AcquireTensor(header.dtype, header.shape);
    std::memset(source.data<char>(), static_cast<int>(header.sequence), source.size_bytes());
    grpc::ByteBuffer frame = MakeChunkFrame(header, source);
    FrameReader reader(frame);
    PENSTOCK_ASSIGN_OR_RETURN(const FrameHeader received, reader.ReadHeader());
    PENSTOCK_ASSIGN_OR_RETURN(last_, assembler_.Take(received, reader));
    if (complete != nullptr) *complete = last_.has_value();
    return absl::OkStatus();
  }

  BufferPool pool_{HostMemory()};
  int acquired_ = 0;
  MessageAssembler assembler_{kKey, kLimit, [this](DType dtype, const Shape& shape) {
                                ++acquired_;
                                return pool_.AcquireTensor(dtype, shape);
                              }};
  std::optional<Message> last_;
};

TEST_F(MessageAssemblerTest, ChunksInOrder_MakeTheMessage) {
  bool complete = true;
  ASSERT_THAT(Take(Header(9, 0, 1500), &complete), IsOk());
  EXPECT_FALSE(complete);
  ASSERT_THAT(Take(Header(9, 1500, 1), &complete), IsOk());
  EXPECT_FALSE(complete);
  ASSERT_THAT(Take(Header(9, 1501, 2499), &complete), IsOk());
  ASSERT_TRUE(complete);
  EXPECT_EQ(last_->sequence, 9);
  EXPECT_EQ(last_->tensor.shape, Shape({1000}));
  for (int64_t i = 0; i < 4000; ++i) ASSERT_EQ(last_->tensor.data<char>()[i], 9);
  EXPECT_THAT(Take(Header(10, 0, 4000), &complete), IsOk());
  EXPECT_TRUE(complete);
  EXPECT_EQ(acquired_, 2);
}

TEST_F(MessageAssemblerTest, ChunkMissingRepeatedOrOfAnotherTensor_IsRefused) {
  const auto refused =
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("expected message 9 of f32 [1000] from byte 1500")));
  ASSERT_THAT(Take(Header(9, 0, 1500)), IsOk());
  EXPECT_THAT(Take(Header(9, 1600, 100)), refused);
  EXPECT_THAT(Take(Header(9, 1400, 100)), refused);
  EXPECT_THAT(Take(Header(9, 0, 1500)), refused);
  EXPECT_THAT(Take(Header(10, 1500, 100)), refused);
  EXPECT_THAT(Take(Header(9, 1500, 100, 999)), refused);
  FrameHeader other_type = Header(9, 1500, 100);
  other_type.dtype = DType::kI32;
  EXPECT_THAT(Take(other_type), refused);
}

TEST_F(MessageAssemblerTest, MessageThatStartsInTheMiddle_IsRefusedWithoutMemory) {
  EXPECT_THAT(Take(Header(9, 4, 100)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected the first chunk")));
  EXPECT_EQ(acquired_, 0);
}

TEST_F(MessageAssemblerTest, TensorOverTheLimit_IsRefusedWithoutMemory) {
  EXPECT_THAT(Take(Header(9, 0, 100, 1001)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("at most 4000"), HasSubstr("got 4004"))));
  EXPECT_EQ(acquired_, 0);
}

TEST_F(MessageAssemblerTest, OtherJobEpochOrEdge_NamesBoth) {
  FrameHeader header = Header(9, 0, 100);
  header.key.job = 6;
  EXPECT_THAT(Take(header),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("0000000000000005"), HasSubstr("0000000000000006"))));
  header = Header(9, 0, 100);
  header.key.epoch = 1;
  EXPECT_THAT(Take(header), StatusIs(absl::StatusCode::kFailedPrecondition,
                                     AllOf(HasSubstr("epoch 2"), HasSubstr("epoch 1"))));
  header = Header(9, 0, 100);
  header.key.edge.kind = EdgeKind::kGradient;
  EXPECT_THAT(Take(header),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("activation 0->1"), HasSubstr("gradient 0->1"))));
  EXPECT_EQ(acquired_, 0);
}

TEST_F(MessageAssemblerTest, NoMemoryLeft_IsTheCallersError) {
  MessageAssembler assembler(kKey, kLimit, [](DType, const Shape&) -> absl::StatusOr<Tensor> {
    return absl::AbortedError("the run is over");
  });
  const Tensor source = pool_.AcquireTensor(DType::kF32, {1000});
  const FrameHeader header = Header(1, 0, 4000);
  grpc::ByteBuffer frame = MakeChunkFrame(header, source);
  FrameReader reader(frame);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const FrameHeader received, reader.ReadHeader());
  EXPECT_THAT(assembler.Take(received, reader), StatusIs(absl::StatusCode::kAborted, _));
}

}  // namespace
}  // namespace penstock
