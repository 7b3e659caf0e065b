// From tensor memory to gRPC and back: slices that refer to a tensor on the way out, one copy into the
// tensor on the way in.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compute/tensor.h"
#include "services/transport/frame.h"

namespace penstock {

// A frame whose payload is short, and copied. Sets payload_bytes and payload_crc.
grpc::ByteBuffer MakeTextFrame(FrameHeader header, absl::string_view payload);

// The frame of `payload_bytes` of `tensor` from `chunk_offset` on. The payload is not copied: gRPC
// reads the tensor's memory, whose reference it holds until the bytes are sent. Sets payload_crc.
// Allocates only what gRPC allocates for a slice and a frame.
grpc::ByteBuffer MakeChunkFrame(FrameHeader header, const Tensor& tensor);

// Reads one received frame front to back.
class FrameReader {
 public:
  // REQUIRES: `frame` outlives the reader.
  explicit FrameReader(grpc::ByteBuffer& frame)
      : frame_bytes_(static_cast<int64_t>(frame.Length())), reader_(&frame) {}

  // The header; checks also that the frame is as long as it says. First, and once.
  // Errors: those of DecodeFrameHeader, InvalidArgument.
  absl::StatusOr<FrameHeader> ReadHeader();
  // Does the same for a peer that is known to speak this version. A frame of it that says otherwise, or is too short
  // or too long, was damaged on the way. Errors: DataLoss for these, too.
  absl::StatusOr<FrameHeader> ReadLaterHeader();

  // The payload, copied to `to`, which has room for it; its checksum is taken piece by piece while
  // the bytes are in the cache. Once.
  // Errors: DataLoss if the checksum is wrong.
  absl::Status ReadPayload(const FrameHeader& header, char* to);

 private:
  // Calls `take` with successive pieces of the next `size_bytes`. False if there are fewer.
  template <typename Take>
  bool ReadPieces(int64_t size_bytes, Take take);

  const int64_t frame_bytes_;
  bool is_whole_ = false;  // the header came as it was sent, and the frame is as long as it says
  grpc::ProtoBufferReader reader_;
};

}  // namespace penstock
