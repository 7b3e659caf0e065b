#include "services/transport/frame.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/crc32c.h"
#include "base/status.h"

namespace penstock {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors travel in the machine's own byte order, which must be little-endian");

constexpr char kMagic[4] = {'P', 'S', 'T', 'K'};
constexpr int kHeaderCrcOffset = 116;
constexpr size_t kNameBytesMax = 256;
constexpr size_t kHelloFixedBytes = 2 * sizeof(uint64_t) + sizeof(uint16_t);

// Offsets of the fields; the table is in the header.
enum Offset {
  kVersionAt = 4,
  kKindAt = 6,
  kDTypeAt = 7,
  kJobAt = 8,
  kEpochAt = 16,
  kEdgeKindAt = 24,
  kRankAt = 25,
  kZeroAt = 26,
  kSourceAt = 28,
  kDestinationAt = 32,
  kValueAt = 36,
  kSequenceAt = 40,
  kDimsAt = 48,
  kTensorBytesAt = 80,
  kChunkOffsetAt = 88,
  kPayloadBytesAt = 96,
  kPayloadCrcAt = 100,
  kNumberAt = 104,
  kSecondZeroAt = 112,
};

template <typename T>
void Put(FrameBytes& bytes, int offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}
template <typename T>
T Get(const FrameBytes& bytes, int offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

template <typename Expected, typename Got>
absl::Status Wrong(absl::string_view field, const Expected& expected, const Got& got) {
  return absl::InvalidArgumentError(
      absl::StrCat("frame: ", field, ": expected ", expected, ", got ", got));
}

bool IsKnown(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kI32;
}

// Is it a frame of ours at all, in this version and undamaged?
absl::Status CheckEnvelope(const FrameBytes& bytes) {
  if (std::memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0) {
    return absl::InvalidArgumentError(
        "frame: the magic bytes are missing; the peer does not speak Penstock's tensor stream");
  }
  // Before the checksum, whose place another version may change.
  const int version = Get<uint16_t>(bytes, kVersionAt);
  if (version != kFrameVersion) {
    return absl::FailedPreconditionError(absl::StrCat("frame: expected version ", kFrameVersion,
                                                      ", got ", version,
                                                      "; run the same release on all workers"));
  }
  if (!HasRightChecksum(bytes)) {
    return absl::DataLossError(absl::StrFormat("frame: header checksum: expected %08x, got %08x",
                                               Get<uint32_t>(bytes, kHeaderCrcOffset),
                                               Crc32c(bytes.data(), kHeaderCrcOffset)));
  }
  if (Get<uint16_t>(bytes, kZeroAt) != 0) return Wrong("reserved", 0, "another value");
  if (Get<uint32_t>(bytes, kSecondZeroAt) != 0) return Wrong("reserved", 0, "another value");
  return absl::OkStatus();
}

absl::Status DecodeKey(const FrameBytes& bytes, StreamKey& key) {
  key.job = Get<uint64_t>(bytes, kJobAt);
  key.epoch = Get<int64_t>(bytes, kEpochAt);
  if (key.epoch < 1) return Wrong("epoch", "at least 1", key.epoch);
  const int kind = Get<uint8_t>(bytes, kEdgeKindAt);
  if (kind < 1 || kind > 7) return Wrong("edge kind", "1 to 7", kind);
  key.edge.kind = static_cast<EdgeKind>(kind);
  key.edge.source = Get<int32_t>(bytes, kSourceAt);
  key.edge.destination = Get<int32_t>(bytes, kDestinationAt);
  if (key.edge.source < 0) return Wrong("edge source", "at least 0", key.edge.source);
  if (key.edge.destination < 0) {
    return Wrong("edge destination", "at least 0", key.edge.destination);
  }
  return absl::OkStatus();
}

absl::Status DecodeTensor(const FrameBytes& bytes, FrameHeader& header) {
  const int dtype = Get<uint8_t>(bytes, kDTypeAt);
  header.dtype = static_cast<DType>(dtype);
  if (!IsKnown(header.dtype)) return Wrong("dtype", "1 (f32), 2 (bf16) or 3 (i32)", dtype);
  header.shape.rank = Get<uint8_t>(bytes, kRankAt);
  if (header.shape.rank < 1 || header.shape.rank > 4) {
    return Wrong("rank", "1 to 4", header.shape.rank);
  }
  for (int i = 0; i < 4; ++i) {
    header.shape.dims[i] = Get<int64_t>(bytes, kDimsAt + 8 * i);
    if (i >= header.shape.rank && header.shape.dims[i] != 0) {
      return Wrong("unused dimension", 0, header.shape.dims[i]);
    }
  }
  if (header.sequence < 0) return Wrong("sequence", "at least 0", header.sequence);
  const int64_t size = TensorBytes(header.dtype, header.shape);
  if (size < 0) return Wrong("shape", "dimensions of at least 1 and a size below 2^63", "another");
  if (header.tensor_bytes != size) {
    return Wrong("tensor bytes", absl::StrCat(size, " for ", header.shape.ToString()),
                 header.tensor_bytes);
  }
  if (header.kind == FrameKind::kExported) {
    if (header.chunk_offset != 0) return Wrong("chunk offset", 0, header.chunk_offset);
    if (header.payload_bytes >= 1 && header.payload_bytes <= ShareBytes::kMax) {
      return absl::OkStatus();
    }
    return Wrong("descriptor bytes", absl::StrCat("1 to ", ShareBytes::kMax), header.payload_bytes);
  }
  if (header.payload_bytes < 1 || header.payload_bytes > kChunkBytesMax) {
    return Wrong("chunk bytes", absl::StrCat("1 to ", kChunkBytesMax), header.payload_bytes);
  }
  if (header.chunk_offset < 0 || header.chunk_offset > size - header.payload_bytes) {
    return Wrong("chunk offset", absl::StrCat("0 to ", size - header.payload_bytes),
                 header.chunk_offset);
  }
  return absl::OkStatus();
}

// Fields for tensors alone must be zero in other frames.
absl::Status CheckNoTensor(const FrameBytes& bytes, const FrameHeader& header) {
  bool zero = Get<uint8_t>(bytes, kDTypeAt) == 0 && Get<uint8_t>(bytes, kRankAt) == 0 &&
              header.sequence == 0 && header.chunk_offset == 0;
  for (int i = 0; i < 4; ++i) zero = zero && Get<int64_t>(bytes, kDimsAt + 8 * i) == 0;
  if (!zero) return Wrong("tensor fields of a frame without a tensor", 0, "another value");
  if (header.payload_bytes < 0 || header.payload_bytes > kTextBytesMax) {
    return Wrong("payload bytes", absl::StrCat("0 to ", kTextBytesMax), header.payload_bytes);
  }
  if (header.tensor_bytes < 0) return Wrong("tensor bytes", "at least 0", header.tensor_bytes);
  return absl::OkStatus();
}

}  // namespace

std::string StreamKey::ToString() const {
  return absl::StrFormat("job %016x, epoch %d, edge %s", job, epoch, edge.ToString());
}

bool HasRightChecksum(const FrameBytes& bytes) {
  return Crc32c(bytes.data(), kHeaderCrcOffset) == Get<uint32_t>(bytes, kHeaderCrcOffset);
}

bool HasTensor(FrameKind kind) { return kind == FrameKind::kChunk || kind == FrameKind::kExported; }

FrameBytes EncodeFrameHeader(const FrameHeader& header) {
  FrameBytes bytes = {};
  std::memcpy(bytes.data(), kMagic, sizeof(kMagic));
  Put(bytes, kVersionAt, kFrameVersion);
  Put(bytes, kKindAt, header.kind);
  if (HasTensor(header.kind)) {
    Put(bytes, kDTypeAt, header.dtype);
    Put(bytes, kRankAt, static_cast<uint8_t>(header.shape.rank));
    for (int i = 0; i < header.shape.rank; ++i) Put(bytes, kDimsAt + 8 * i, header.shape.dims[i]);
  }
  Put(bytes, kJobAt, header.key.job);
  Put(bytes, kEpochAt, header.key.epoch);
  Put(bytes, kEdgeKindAt, header.key.edge.kind);
  Put(bytes, kSourceAt, header.key.edge.source);
  Put(bytes, kDestinationAt, header.key.edge.destination);
  Put(bytes, kValueAt, header.value);
  Put(bytes, kSequenceAt, header.sequence);
  Put(bytes, kTensorBytesAt, header.tensor_bytes);
  Put(bytes, kChunkOffsetAt, header.chunk_offset);
  Put(bytes, kPayloadBytesAt, header.payload_bytes);
  Put(bytes, kPayloadCrcAt, header.payload_crc);
  Put(bytes, kNumberAt, header.number);
  Put(bytes, kHeaderCrcOffset, Crc32c(bytes.data(), kHeaderCrcOffset));
  return bytes;
}

absl::StatusOr<FrameHeader> DecodeFrameHeader(const FrameBytes& bytes) {
  PENSTOCK_RETURN_IF_ERROR(CheckEnvelope(bytes));
  FrameHeader header;
  const int kind = Get<uint8_t>(bytes, kKindAt);
  if (kind < 1 || kind > 8) return Wrong("kind", "1 to 8", kind);
  header.kind = static_cast<FrameKind>(kind);
  PENSTOCK_RETURN_IF_ERROR(DecodeKey(bytes, header.key));
  header.value = Get<int32_t>(bytes, kValueAt);
  if (header.value < 0) return Wrong("value", "at least 0", header.value);
  header.number = Get<int64_t>(bytes, kNumberAt);
  if (header.number < 0) return Wrong("number", "at least 0", header.number);
  header.sequence = Get<int64_t>(bytes, kSequenceAt);
  header.tensor_bytes = Get<int64_t>(bytes, kTensorBytesAt);
  header.chunk_offset = Get<int64_t>(bytes, kChunkOffsetAt);
  header.payload_bytes = Get<int32_t>(bytes, kPayloadBytesAt);
  header.payload_crc = Get<uint32_t>(bytes, kPayloadCrcAt);
  PENSTOCK_RETURN_IF_ERROR(HasTensor(header.kind) ? DecodeTensor(bytes, header)
                                                  : CheckNoTensor(bytes, header));
  return header;
}

int64_t TensorBytes(DType dtype, const Shape& shape) {
  int64_t size = SizeOf(dtype);
  for (int i = 0; i < shape.rank; ++i) {
    if (shape.dims[i] < 1 || __builtin_mul_overflow(size, shape.dims[i], &size)) return -1;
  }
  return size;
}

// Two incarnations, the length of the name in 16 bits, the name, and what is left is the offer.
std::string EncodeHello(const Hello& hello) {
  const std::string name = hello.source_name.substr(0, kNameBytesMax);
  const auto name_bytes = static_cast<uint16_t>(name.size());
  std::string payload(kHelloFixedBytes, '\0');
  std::memcpy(payload.data(), &hello.source_incarnation, sizeof(uint64_t));
  std::memcpy(payload.data() + sizeof(uint64_t), &hello.destination_incarnation, sizeof(uint64_t));
  std::memcpy(payload.data() + 2 * sizeof(uint64_t), &name_bytes, sizeof(name_bytes));
  return absl::StrCat(payload, name, hello.offer.view());
}

absl::StatusOr<Hello> DecodeHello(absl::string_view payload) {
  constexpr size_t kMax = kHelloFixedBytes + kNameBytesMax + ShareBytes::kMax;
  if (payload.size() < kHelloFixedBytes || payload.size() > kMax) {
    return Wrong("hello", absl::StrCat(kHelloFixedBytes, " to ", kMax, " bytes"), payload.size());
  }
  Hello hello;
  uint16_t name_bytes = 0;
  std::memcpy(&hello.source_incarnation, payload.data(), sizeof(uint64_t));
  std::memcpy(&hello.destination_incarnation, payload.data() + sizeof(uint64_t), sizeof(uint64_t));
  std::memcpy(&name_bytes, payload.data() + 2 * sizeof(uint64_t), sizeof(name_bytes));
  payload.remove_prefix(kHelloFixedBytes);
  if (name_bytes > std::min(payload.size(), kNameBytesMax)) {
    return Wrong("bytes of the name", absl::StrCat("at most ", kNameBytesMax, ", in the payload"),
                 name_bytes);
  }
  hello.source_name = std::string(payload.substr(0, name_bytes));
  PENSTOCK_ASSIGN_OR_RETURN(hello.offer, ShareBytes::Of(payload.substr(name_bytes)));
  return hello;
}

uint64_t JobHash(absl::string_view job_id) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : job_id) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace penstock
