// Frames of a tensor stream, as a peer sends them one after the other: headers, hellos, and chunks that become tensors.
//
// An input is frames: 120 bytes of header, of which magic, version and checksum are put right (no fuzzer finds a checksum),
// a byte that says how long the payload is, and the payload.
#include <cstring>
#include <optional>

#include "base/crc32c.h"
#include "compute/buffer_pool.h"
#include "services/transport/frame.h"
#include "services/transport/gather.h"
#include "services/transport/message_assembler.h"
#include "tests/fuzz/fuzz_target.h"

namespace penstock {
namespace {

constexpr StreamKey kFuzzedEdge = {5, 2, {EdgeKind::kActivation, 0, 1}};
constexpr int64_t kFuzzedTensorBytesMax = 4096;

FrameBytes WithRightEnvelope(absl::string_view header) {
  FrameBytes bytes = {};
  std::memcpy(bytes.data(), header.data(), header.size());
  FrameHeader any;
  any.key = kFuzzedEdge;
  std::memcpy(bytes.data(), EncodeFrameHeader(any).data(), 6);  // magic and version
  constexpr size_t kChecksumAt = 116;
  const uint32_t crc = Crc32c(bytes.data(), kChecksumAt);
  std::memcpy(bytes.data() + kChecksumAt, &crc, sizeof(crc));
  return bytes;
}

void CheckHello(absl::string_view payload) {
  const absl::StatusOr<Hello> hello = DecodeHello(payload);
  if (!hello.ok()) return;
  PENSTOCK_CHECK(EncodeHello(*hello) == payload);
}

// What a header that was taken promises.
void CheckHeader(const FrameHeader& header) {
  PENSTOCK_CHECK(header.payload_bytes >= 0 && header.payload_bytes <= kChunkBytesMax);
  PENSTOCK_CHECK(header.key.epoch >= 1 && header.value >= 0 && header.tensor_bytes >= 0);
  if (header.kind != FrameKind::kChunk) return;
  PENSTOCK_CHECK(TensorBytes(header.dtype, header.shape) == header.tensor_bytes);
  PENSTOCK_CHECK(header.chunk_offset >= 0 &&
                 header.chunk_offset <= header.tensor_bytes - header.payload_bytes);
}

// The frame as the network brings it: with the payload that is there, whatever the header says.
void CheckStream(FrameHeader header, absl::string_view payload, MessageAssembler& assembler) {
  header.key = kFuzzedEdge;
  grpc::ByteBuffer frame = MakeTextFrame(header, payload);
  FrameReader reader(frame);
  const absl::StatusOr<FrameHeader> read = reader.ReadHeader();
  if (!read.ok()) return;
  PENSTOCK_CHECK(read->payload_bytes == static_cast<int64_t>(payload.size()));
  if (read->kind == FrameKind::kChunk) {
    const absl::StatusOr<std::optional<Message>> message = assembler.Take(*read, reader);
    if (!message.ok() || !message->has_value()) return;
    PENSTOCK_CHECK((*message)->tensor.size_bytes() <= kFuzzedTensorBytesMax);
  } else if (read->kind == FrameKind::kExported) {
    const absl::StatusOr<Message> message = assembler.TakeExported(*read, reader);
    if (message.ok()) PENSTOCK_CHECK(message->exported.view() == payload);
  }
}

}  // namespace
}  // namespace penstock

PENSTOCK_FUZZ_TARGET(frame) {
  using namespace penstock;
  BufferPool pool{HostMemory()};
  MessageAssembler assembler(kFuzzedEdge, kFuzzedTensorBytesMax,
                             [&pool](DType dtype, const Shape& shape) {
                               PENSTOCK_CHECK(TensorBytes(dtype, shape) <= kFuzzedTensorBytesMax);
                               return pool.AcquireTensor(dtype, shape);
                             });
  FuzzBytes input(data, size);
  while (!input.empty()) {
    const FrameBytes bytes = WithRightEnvelope(input.TakeText(kFrameHeaderBytes));
    const absl::string_view payload = input.TakeText(input.Take<uint8_t>());
    CheckHello(payload);
    const absl::StatusOr<FrameHeader> header = DecodeFrameHeader(bytes);
    if (!header.ok()) continue;
    FuzzAccepted();
    CheckHeader(*header);
    PENSTOCK_CHECK(EncodeFrameHeader(*header) == bytes);
    CheckStream(*header, payload, assembler);
  }
  return 0;
}
