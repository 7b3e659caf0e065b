#include "services/transport/gather.h"

#include <vector>

#include "base/random.h"
#include "compute/buffer_pool.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::HasSubstr;

Tensor RandomTensor(BufferPool& pool, int64_t elements, RandomStream& random) {
  Tensor tensor = pool.AcquireTensor(DType::kI32, {elements});
  for (int64_t i = 0; i < elements; ++i) tensor.data<uint32_t>()[i] = random.Next();
  return tensor;
}

FrameHeader WholeTensor(const Tensor& tensor) {
  FrameHeader header;
  header.kind = FrameKind::kChunk;
  header.key.epoch = 1;
  header.dtype = tensor.dtype;
  header.shape = tensor.shape;
  header.tensor_bytes = tensor.size_bytes();
  header.payload_bytes = static_cast<int32_t>(tensor.size_bytes());
  return header;
}

std::string Bytes(const grpc::ByteBuffer& frame) {
  grpc::Slice slice;
  EXPECT_TRUE(frame.DumpToSingleSlice(&slice).ok());
  return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
}

// The same bytes in pieces of random length, as a network delivers them.
grpc::ByteBuffer Torn(const std::string& bytes, RandomStream& random) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size();) {
    const size_t size =
        std::min<size_t>(bytes.size() - at, 1 + random.Below(1 + random.Below(70'000)));
    slices.emplace_back(bytes.data() + at, size);
    at += size;
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

TEST(Gather, ChunkTornAnywhere_ArrivesWhole) {
  BufferPool pool(HostMemory());
  RandomStream random(7, 1);
  for (int round = 0; round < 100; ++round) {
    const Tensor sent = RandomTensor(pool, 1 + random.Below(100'000), random);
    grpc::ByteBuffer frame = Torn(Bytes(MakeChunkFrame(WholeTensor(sent), sent)), random);
    FrameReader reader(frame);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const FrameHeader header, reader.ReadHeader());
    const Tensor received = pool.AcquireTensor(header.dtype, header.shape);
    ASSERT_THAT(reader.ReadPayload(header, received.data<char>()), IsOk());
    ASSERT_EQ(std::memcmp(sent.data<char>(), received.data<char>(), sent.size_bytes()), 0);
  }
}

TEST(Gather, PayloadByteChanged_IsDataLoss) {
  BufferPool pool(HostMemory());
  RandomStream random(8, 1);
  const Tensor sent = RandomTensor(pool, 25'000, random);
  const std::string good = Bytes(MakeChunkFrame(WholeTensor(sent), sent));
  const Tensor received = pool.AcquireTensor(sent.dtype, sent.shape);
  for (int round = 0; round < 50; ++round) {
    std::string bytes = good;
    bytes[kFrameHeaderBytes + random.Below(sent.size_bytes())] ^=
        static_cast<char>(1 << random.Below(8));
    grpc::ByteBuffer frame = Torn(bytes, random);
    FrameReader reader(frame);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const FrameHeader header, reader.ReadHeader());
    EXPECT_THAT(reader.ReadPayload(header, received.data<char>()),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("checksum")));
  }
}

TEST(Gather, FrameCutShortOrPadded_IsRefusedByItsHeader) {
  BufferPool pool(HostMemory());
  RandomStream random(9, 1);
  const Tensor sent = RandomTensor(pool, 100, random);
  const std::string good = Bytes(MakeChunkFrame(WholeTensor(sent), sent));
  for (const size_t size : {size_t{0}, size_t{1}, size_t{kFrameHeaderBytes - 1},
                            size_t{kFrameHeaderBytes}, good.size() - 1}) {
    grpc::ByteBuffer frame = Torn(good.substr(0, size), random);
    EXPECT_THAT(FrameReader(frame).ReadHeader(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected")));
    EXPECT_THAT(FrameReader(frame).ReadLaterHeader(),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("expected")));
  }
  grpc::ByteBuffer padded = Torn(good + "x", random);
  EXPECT_THAT(FrameReader(padded).ReadHeader(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("got 401")));
}

// Both ends of a stream know that the other speaks the protocol, so another one came from the network.
TEST(Gather, LaterHeaderWithAnyByteChanged_IsDataLoss) {
  BufferPool pool(HostMemory());
  RandomStream random(11, 1);
  const Tensor sent = RandomTensor(pool, 100, random);
  const std::string good = Bytes(MakeChunkFrame(WholeTensor(sent), sent));
  for (int at = 0; at < kFrameHeaderBytes; ++at) {
    std::string bytes = good;
    bytes[at] ^= static_cast<char>(1 << random.Below(8));
    grpc::ByteBuffer frame = Torn(bytes, random);
    EXPECT_THAT(FrameReader(frame).ReadLaterHeader(), StatusIs(absl::StatusCode::kDataLoss, _))
        << "byte " << at;
  }
}

TEST(Gather, LaterHeaderThatIsWholeAndWrong_IsRefusedAsTheFirstWouldBe) {
  BufferPool pool(HostMemory());
  RandomStream random(12, 1);
  const Tensor sent = RandomTensor(pool, 100, random);
  FrameHeader wrong = WholeTensor(sent);
  wrong.tensor_bytes = 7;
  grpc::ByteBuffer frame = Torn(Bytes(MakeChunkFrame(wrong, sent)), random);
  EXPECT_THAT(FrameReader(frame).ReadLaterHeader(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("tensor bytes")));
}

TEST(Gather, ChunkFrame_CopiesNothingAndLetsGoWhenDropped) {
  BufferPool pool(HostMemory());
  RandomStream random(10, 1);
  Tensor sent = RandomTensor(pool, 1000, random);
  const char* const data = sent.data<char>();
  {
    const grpc::ByteBuffer frame = MakeChunkFrame(WholeTensor(sent), sent);
    sent = Tensor();
    EXPECT_GT(pool.stats().bytes_in_use, 0);  // the frame holds it
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(frame.Dump(&slices).ok());
    EXPECT_EQ(reinterpret_cast<const char*>(slices.back().begin()), data);
  }
  EXPECT_EQ(pool.stats().bytes_in_use, 0);
}

}  // namespace
}  // namespace penstock
