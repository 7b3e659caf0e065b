// Frames: what travels on a tensor stream, byte by byte.
//
// Every gRPC message of a stream is one frame: a header of 120 bytes, then `payload_bytes` of payload.
// All numbers are little-endian.
//
//   offset  bytes  field
//        0      4  magic "PSTK"
//        4      2  version, 2
//        6      1  kind: 1 hello, 2 welcome, 3 chunk, 4 credit, 5 end, 6 exported, 7 again, 8 ask
//        7      1  dtype of the tensor (compute/tensor.h); 0 if neither chunk nor exported
//        8      8  job: FNV-1a of its id
//       16      8  epoch: attempt at the job, from 1
//       24      1  edge kind (worker/transport.h)
//       25      1  rank of the tensor, 1 to 4; 0 if neither chunk nor exported
//       26      2  zero
//       28      4  edge source
//       32      4  edge destination
//       36      4  value: of hello the window in messages, of welcome, credit and again how many messages
//                  were received and not released yet, of end the absl::StatusCode of the reason
//       40      8  sequence of the message, as executors count; 0 if neither chunk nor exported
//       48     32  four dimensions, outermost first, unused ones zero
//       80      8  tensor bytes: of chunk and exported the whole tensor's, of hello the largest tensor's
//       88      8  chunk offset in the tensor; 0 if not a chunk
//       96      4  payload bytes
//      100      4  CRC32C of the payload
//      104      8  number: of hello the stream's among those of its edge, of chunk and exported the message's, both
//                  from 0; of welcome, credit and again how many messages were received, of end how many
//                  there were, of ask how many were sent (edge_window.h)
//      112      4  zero
//      116      4  CRC32C of the 116 bytes before
//
// Version 1 had no number, no frame `again`, and in credits what had become free since the last one.
//
// A stream: the sender says hello, the receiver welcomes it with how far it is; then chunks go forth, from the message
// that is due on, and credits come back, which say how far the receiver is now. `again` says the same, and that the
// message that is due must be sent once more, with all after it. A tensor travels in chunks of at most kChunkBytesMax, in
// order of offset, none of another tensor between them; or it is exported (compute/device_share.h), and one frame says
// where it lies. A sender that hears nothing asks how far the receiver is, and gets credit or `again`. It says end last;
// where messages are missing then, the stream counts as broken. A receiver ends the stream with a gRPC status. Payloads: of
// hello a Hello, of welcome the path on which tensors may be exported (empty: they may not), of a chunk tensor bytes, of
// exported the descriptor, of end the reason's text.
//
// Pure functions on bytes; any input is safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compute/device_share.h"
#include "compute/tensor.h"
#include "worker/transport.h"

namespace penstock {

// The gRPC method of a tensor stream.
inline constexpr char kTensorStreamMethod[] = "/penstock.v1.TensorStream/Exchange";

inline constexpr uint16_t kFrameVersion = 2;
inline constexpr int kFrameHeaderBytes = 120;
// Small enough to stay in a core's cache between checksum and copy, large enough that gRPC's cost per
// message does not count (README.md has the measurements).
inline constexpr int32_t kChunkBytesMax = 1 << 20;
// Bound on the payload of any other frame.
inline constexpr int32_t kTextBytesMax = 1024;

enum class FrameKind : uint8_t {
  kHello = 1,
  kWelcome = 2,
  kChunk = 3,
  kCredit = 4,
  kEnd = 5,
  kExported = 6,
  kAgain = 7,
  kAsk = 8
};

// Which edge of which attempt at which job a frame belongs to.
struct StreamKey {
  uint64_t job = 0;
  int64_t epoch = 0;
  EdgeId edge;

  std::string ToString() const;  // "job 1f0c…, epoch 2, edge activation 0->1"
  friend bool operator==(const StreamKey&, const StreamKey&) = default;
};

struct FrameHeader {
  FrameKind kind = FrameKind::kHello;
  StreamKey key;
  int32_t value = 0;
  int64_t number = 0;
  int64_t sequence = 0;
  DType dtype = DType::kF32;  // of chunk and exported
  Shape shape;                // of chunk and exported
  int64_t tensor_bytes = 0;
  int64_t chunk_offset = 0;
  int32_t payload_bytes = 0;
  uint32_t payload_crc = 0;

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

using FrameBytes = std::array<char, kFrameHeaderBytes>;

FrameBytes EncodeFrameHeader(const FrameHeader& header);

// Returns whether the header has come as it was sent: its checksum is right.
bool HasRightChecksum(const FrameBytes& bytes);
// A frame with a tensor: chunk or exported.
bool HasTensor(FrameKind kind);

// Decodes and checks a header on its own: magic, version, checksum, known kinds and types, no
// negative numbers, a tensor size that is the product of its shape, a chunk within its tensor.
// Errors: InvalidArgument naming the field, what was expected and what came; DataLoss if the checksum
// is wrong; FailedPrecondition for another version.
absl::StatusOr<FrameHeader> DecodeFrameHeader(const FrameBytes& bytes);

// Bytes of a tensor of this type and shape; -1 if that overflows or a dimension is below 1.
int64_t TensorBytes(DType dtype, const Shape& shape);

// The two ends of a stream, and the device memory that the opener offers to export.
struct Hello {
  uint64_t source_incarnation = 0;
  uint64_t destination_incarnation = 0;
  std::string source_name;
  ShareBytes offer;  // empty: none
  friend bool operator==(const Hello&, const Hello&) = default;
};

std::string EncodeHello(const Hello& hello);
// Errors: InvalidArgument.
absl::StatusOr<Hello> DecodeHello(absl::string_view payload);

// Names a job on the wire.
uint64_t JobHash(absl::string_view job_id);

}  // namespace penstock
