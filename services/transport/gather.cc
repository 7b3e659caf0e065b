#include "services/transport/gather.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/crc32c.h"
#include "base/status.h"

namespace penstock {
namespace {

// Copied and summed at a time: half of a first-level cache.
constexpr int64_t kPieceBytes = 16 << 10;

void DropReference(void* reference) { Buffer::Attach(reference); }

}  // namespace

grpc::ByteBuffer MakeTextFrame(FrameHeader header, absl::string_view payload) {
  header.payload_bytes = static_cast<int32_t>(payload.size());
  header.payload_crc = Crc32c(payload.data(), payload.size());
  const FrameBytes head = EncodeFrameHeader(header);
  const grpc::Slice slices[] = {grpc::Slice(head.data(), head.size()),
                                grpc::Slice(payload.data(), payload.size())};
  return grpc::ByteBuffer(slices, payload.empty() ? 1 : 2);
}

grpc::ByteBuffer MakeChunkFrame(FrameHeader header, const Tensor& tensor) {
  char* const data = tensor.data<char>() + header.chunk_offset;
  const size_t size = static_cast<size_t>(header.payload_bytes);
  header.payload_crc = Crc32c(data, size);
  const FrameBytes head = EncodeFrameHeader(header);
  const grpc::Slice slices[] = {
      grpc::Slice(head.data(), head.size()),
      grpc::Slice(data, size, DropReference, Buffer(tensor.buffer).Detach())};
  return grpc::ByteBuffer(slices, 2);
}

template <typename Take>
bool FrameReader::ReadPieces(int64_t size_bytes, Take take) {
  while (size_bytes > 0) {
    const void* data = nullptr;
    int available = 0;
    if (!reader_.Next(&data, &available)) return false;
    const int taken = static_cast<int>(std::min<int64_t>(available, size_bytes));
    take(static_cast<const char*>(data), taken);
    size_bytes -= taken;
    if (taken < available) reader_.BackUp(available - taken);
  }
  return true;
}

absl::StatusOr<FrameHeader> FrameReader::ReadHeader() {
  FrameBytes bytes;
  char* to = bytes.data();
  if (frame_bytes_ < kFrameHeaderBytes ||
      !ReadPieces(kFrameHeaderBytes, [&](const char* from, int n) {
        std::memcpy(to, from, n);
        to += n;
      })) {
    return absl::InvalidArgumentError(absl::StrCat("frame: expected at least ", kFrameHeaderBytes,
                                                   " bytes, got ", frame_bytes_,
                                                   "; the peer does not speak Penstock's tensor "
                                                   "stream"));
  }
  is_whole_ = HasRightChecksum(bytes);
  PENSTOCK_ASSIGN_OR_RETURN(const FrameHeader header, DecodeFrameHeader(bytes));
  if (frame_bytes_ != kFrameHeaderBytes + header.payload_bytes) {
    is_whole_ = false;
    return absl::InvalidArgumentError(absl::StrCat("frame: expected ", header.payload_bytes,
                                                   " bytes of payload, got ",
                                                   frame_bytes_ - kFrameHeaderBytes));
  }
  return header;
}

absl::StatusOr<FrameHeader> FrameReader::ReadLaterHeader() {
  absl::StatusOr<FrameHeader> header = ReadHeader();
  if (header.ok() || is_whole_) return header;
  return absl::DataLossError(header.status().message());
}

absl::Status FrameReader::ReadPayload(const FrameHeader& header, char* to) {
  uint32_t crc = 0;
  const bool complete = ReadPieces(header.payload_bytes, [&](const char* from, int available) {
    for (int64_t left = available; left > 0;) {
      const int64_t piece = std::min(left, kPieceBytes);
      std::memcpy(to, from, piece);
      crc = Crc32c(to, piece, crc);
      to += piece;
      from += piece;
      left -= piece;
    }
  });
  if (!complete || crc != header.payload_crc) {
    return absl::DataLossError(
        absl::StrFormat("payload checksum: expected %08x, got %08x", header.payload_crc, crc));
  }
  return absl::OkStatus();
}

}  // namespace penstock
