#include "services/transport/frame.h"

#include <cstring>
#include <limits>

#include "base/crc32c.h"
#include "base/random.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::HasSubstr;

FrameHeader Chunk() {
  FrameHeader header;
  header.kind = FrameKind::kChunk;
  header.key = {0x1122334455667788, 7, {EdgeKind::kGradient, 3, 2}};
  header.number = 0x0102030405;
  header.sequence = 41;
  header.dtype = DType::kBf16;
  header.shape = {2, 3, 5};
  header.tensor_bytes = 60;
  header.chunk_offset = 16;
  header.payload_bytes = 44;
  header.payload_crc = 0xdeadbeef;
  return header;
}

FrameHeader Hello5() {
  FrameHeader header;
  header.kind = FrameKind::kHello;
  header.key = {1, 1, {EdgeKind::kActivation, 0, 1}};
  header.value = 5;
  header.number = 2;
  header.tensor_bytes = 1 << 20;
  return header;
}

// The header with `value` at `offset` and a checksum that fits, as only an ill-meaning peer sends.
template <typename T>
FrameBytes Forged(FrameBytes bytes, int offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  const uint32_t crc = Crc32c(bytes.data(), 116);
  std::memcpy(bytes.data() + 116, &crc, sizeof(crc));
  return bytes;
}

TEST(Frame, EveryKind_DecodesToWhatWasEncoded) {
  EXPECT_THAT(DecodeFrameHeader(EncodeFrameHeader(Chunk())), IsOkAndHolds(Chunk()));
  FrameHeader exported = Chunk();
  exported.kind = FrameKind::kExported;
  exported.chunk_offset = 0;
  EXPECT_THAT(DecodeFrameHeader(EncodeFrameHeader(exported)), IsOkAndHolds(exported));
  for (int kind : {1, 2, 4, 5, 7, 8}) {
    FrameHeader header = Hello5();
    header.kind = static_cast<FrameKind>(kind);
    EXPECT_THAT(DecodeFrameHeader(EncodeFrameHeader(header)), IsOkAndHolds(header)) << kind;
  }
}

TEST(Frame, Chunk_HasTheDocumentedBytes) {
  const FrameBytes bytes = EncodeFrameHeader(Chunk());
  const unsigned char expected[116] = {
      'P',  'S',  'T',  'K',  2,    0,    3,    2,     // magic, version, kind, dtype
      0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11,  // job
      7,    0,    0,    0,    0,    0,    0,    0,     // epoch
      2,    3,    0,    0,    3,    0,    0,    0,     // edge kind, rank, zero, source
      2,    0,    0,    0,    0,    0,    0,    0,     // destination, value
      41,   0,    0,    0,    0,    0,    0,    0,     // sequence
      2,    0,    0,    0,    0,    0,    0,    0,    3, 0, 0, 0, 0, 0, 0, 0,  // dimensions
      5,    0,    0,    0,    0,    0,    0,    0,    0, 0, 0, 0, 0, 0, 0, 0,  //
      60,   0,    0,    0,    0,    0,    0,    0,                             // tensor bytes
      16,   0,    0,    0,    0,    0,    0,    0,                             // chunk offset
      44,   0,    0,    0,    0xef, 0xbe, 0xad, 0xde,              // payload bytes, checksum
      5,    4,    3,    2,    1,    0,    0,    0,    0, 0, 0, 0,  // number, zero
  };
  EXPECT_EQ(std::memcmp(bytes.data(), expected, sizeof(expected)), 0);
}

TEST(Frame, AnyFlippedBit_IsNoticed) {
  const FrameBytes good = EncodeFrameHeader(Chunk());
  for (int bit = 0; bit < 8 * kFrameHeaderBytes; ++bit) {
    FrameBytes bytes = good;
    bytes[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_FALSE(DecodeFrameHeader(bytes).ok()) << "bit " << bit;
  }
}

TEST(Frame, RandomBytesBehindAGoodEnvelope_AreRefusedOrConsistent) {
  RandomStream random(1, 1);
  int accepted = 0;
  for (int i = 0; i < 200'000; ++i) {
    FrameBytes bytes = EncodeFrameHeader(i % 2 == 0 ? Chunk() : Hello5());
    // A few fields with random, mostly small, values.
    for (int n = 0; n < 3; ++n) {
      const int offset = 6 + static_cast<int>(random.Below(95));
      const uint64_t value = random.Below(uint64_t{1} << (1 + random.Below(63)));
      bytes = Forged(bytes, offset, static_cast<uint16_t>(value));
    }
    const auto header = DecodeFrameHeader(bytes);
    if (!header.ok()) continue;
    ++accepted;
    ASSERT_EQ(EncodeFrameHeader(*header), bytes);  // nothing was overlooked
    if (header->kind != FrameKind::kChunk) continue;
    ASSERT_EQ(TensorBytes(header->dtype, header->shape), header->tensor_bytes);
    ASSERT_LE(header->chunk_offset + header->payload_bytes, header->tensor_bytes);
  }
  EXPECT_GT(accepted, 100);
}

TEST(Frame, OtherProtocol_IsNamedAsSuch) {
  FrameBytes bytes = {};
  std::memcpy(bytes.data(), "GET / HTTP/1.1", 14);
  EXPECT_THAT(DecodeFrameHeader(bytes),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("does not speak Penstock")));
}

TEST(Frame, OtherVersion_NamesBoth) {
  EXPECT_THAT(DecodeFrameHeader(Forged(EncodeFrameHeader(Chunk()), 4, uint16_t{9})),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("version 2"), HasSubstr("got 9"))));
}

TEST(Frame, WrongField_IsNamedWithWhatWasExpected) {
  const FrameBytes chunk = EncodeFrameHeader(Chunk());
  const auto refused = [](const char* field) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(field));
  };
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 6, uint8_t{9})),
              refused("kind: expected 1 to 8, got 9"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 7, uint8_t{9})), refused("dtype"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 16, int64_t{0})), refused("epoch"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 24, uint8_t{0})), refused("edge kind"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 25, uint8_t{5})), refused("rank: expected 1 to 4"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 26, uint16_t{1})), refused("reserved"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 28, int32_t{-1})), refused("edge source"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 32, int32_t{-1})), refused("edge destination"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 36, int32_t{-1})), refused("value"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 40, int64_t{-1})), refused("sequence"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 48, int64_t{0})), refused("shape"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 72, int64_t{1})), refused("unused dimension"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 80, int64_t{61})),
              refused("tensor bytes: expected 60"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 88, int64_t{17})),
              refused("chunk offset: expected 0 to 16"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 88, int64_t{-1})), refused("chunk offset"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 96, int32_t{0})), refused("chunk bytes"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 96, int32_t{-1})), refused("chunk bytes"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 96, kChunkBytesMax + 1)), refused("chunk bytes"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 104, int64_t{-1})), refused("number"));
  EXPECT_THAT(DecodeFrameHeader(Forged(chunk, 112, uint32_t{1})), refused("reserved"));
  const FrameBytes exported = Forged(Forged(chunk, 6, uint8_t{6}), 88, int64_t{0});
  EXPECT_THAT(DecodeFrameHeader(Forged(exported, 88, int64_t{4})),
              refused("chunk offset: expected 0"));
  EXPECT_THAT(DecodeFrameHeader(Forged(exported, 96, int32_t{0})), refused("descriptor bytes"));
  EXPECT_THAT(DecodeFrameHeader(Forged(exported, 96, int32_t{ShareBytes::kMax + 1})),
              refused("descriptor bytes"));
  EXPECT_THAT(DecodeFrameHeader(Forged(exported, 80, int64_t{61})),
              refused("tensor bytes: expected 60"));
  const FrameBytes hello = EncodeFrameHeader(Hello5());
  EXPECT_THAT(DecodeFrameHeader(Forged(hello, 40, int64_t{1})), refused("without a tensor"));
  EXPECT_THAT(DecodeFrameHeader(Forged(hello, 96, kTextBytesMax + 1)), refused("payload bytes"));
  EXPECT_THAT(DecodeFrameHeader(Forged(hello, 80, int64_t{-1})), refused("tensor bytes"));
}

TEST(Frame, ShapeWhoseSizeOverflows_IsRefused) {
  FrameBytes bytes = EncodeFrameHeader(Chunk());
  bytes = Forged(bytes, 25, uint8_t{4});
  // 2^32 * 2^32 * 1 * 1 wraps to 0, and 4194305 * 4194305 * 211106198978564 to something small.
  for (const auto& dims : {std::array<int64_t, 4>{int64_t{1} << 32, int64_t{1} << 32, 1, 1},
                           std::array<int64_t, 4>{4194305, 4194305, 211106198978564, 1},
                           std::array<int64_t, 4>{std::numeric_limits<int64_t>::max(), 1, 1, 1}}) {
    for (int i = 0; i < 4; ++i) bytes = Forged(bytes, 48 + 8 * i, dims[i]);
    EXPECT_THAT(DecodeFrameHeader(bytes),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("shape")));
  }
}

TEST(Hello, Payload_RoundTripsAndOtherSizesAreRefused) {
  Hello hello = {1, ~uint64_t{0}, "worker-3"};
  EXPECT_THAT(DecodeHello(EncodeHello(hello)), IsOkAndHolds(hello));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(hello.offer, ShareBytes::Of(std::string(ShareBytes::kMax, 'o')));
  EXPECT_THAT(DecodeHello(EncodeHello(hello)), IsOkAndHolds(hello));
  EXPECT_THAT(DecodeHello(EncodeHello(hello) + "x"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 256")));
  std::string lies_about_its_name = EncodeHello({1, 2, "worker-3"});
  lies_about_its_name[16] = 9;
  EXPECT_THAT(DecodeHello(lies_about_its_name),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("name")));
  EXPECT_THAT(DecodeHello("short"), StatusIs(absl::StatusCode::kInvalidArgument, _));
  EXPECT_THAT(DecodeHello(std::string(1000, 'x')), StatusIs(absl::StatusCode::kInvalidArgument, _));
}

TEST(JobHash, KnownAnswers_OfFnv1a) {
  EXPECT_EQ(JobHash(""), 0xcbf29ce484222325);
  EXPECT_EQ(JobHash("a"), 0xaf63dc4c8601ec8c);
  EXPECT_EQ(JobHash("foobar"), 0x85944171f73967e8);
}

}  // namespace
}  // namespace penstock
