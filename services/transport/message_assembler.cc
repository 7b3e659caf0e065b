#include "services/transport/message_assembler.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

std::string Describe(const FrameHeader& header) {
  return absl::StrCat("message ", header.sequence, " of ", Name(header.dtype), " ",
                      header.shape.ToString(), ", bytes ", header.chunk_offset, " to ",
                      header.chunk_offset + header.payload_bytes);
}

}  // namespace

absl::StatusOr<std::optional<Message>> MessageAssembler::Take(const FrameHeader& header,
                                                              FrameReader& frame) {
  PENSTOCK_RETURN_IF_ERROR(CheckKey(header));
  if (!message_.tensor) {
    PENSTOCK_RETURN_IF_ERROR(CheckFirst(header));
    PENSTOCK_ASSIGN_OR_RETURN(message_.tensor, acquire_(header.dtype, header.shape));
    message_.sequence = header.sequence;
    received_bytes_ = 0;
  } else {
    PENSTOCK_RETURN_IF_ERROR(CheckNext(header));
  }
  char* const to = message_.tensor.data<char>() + header.chunk_offset;
  PENSTOCK_RETURN_IF_ERROR(Annotate(frame.ReadPayload(header, to), Describe(header)));
  received_bytes_ += header.payload_bytes;
  if (received_bytes_ < header.tensor_bytes) return std::optional<Message>();
  return std::optional<Message>(std::exchange(message_, Message()));
}

absl::StatusOr<Message> MessageAssembler::TakeExported(const FrameHeader& header,
                                                       FrameReader& frame) {
  PENSTOCK_RETURN_IF_ERROR(CheckKey(header));
  if (message_.tensor) PENSTOCK_RETURN_IF_ERROR(CheckNext(header));
  PENSTOCK_RETURN_IF_ERROR(CheckFirst(header));
  std::array<char, ShareBytes::kMax> descriptor;  // which the header's check keeps within bounds
  PENSTOCK_RETURN_IF_ERROR(
      Annotate(frame.ReadPayload(header, descriptor.data()), Describe(header)));
  Message message = {.sequence = header.sequence,
                     .tensor = {.buffer = {}, .dtype = header.dtype, .shape = header.shape}};
  const auto size = static_cast<size_t>(header.payload_bytes);
  PENSTOCK_ASSIGN_OR_RETURN(message.exported, ShareBytes::Of({descriptor.data(), size}));
  return message;
}

absl::Status MessageAssembler::CheckKey(const FrameHeader& header) const {
  if (header.key == key_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("expected a tensor of ", key_.ToString(),
                                                    ", got one of ", header.key.ToString()));
}

absl::Status MessageAssembler::CheckFirst(const FrameHeader& header) const {
  if (header.chunk_offset != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(header), ": expected the first chunk of a message"));
  }
  if (header.tensor_bytes > tensor_bytes_max_) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(header), ": expected a tensor of at most ", tensor_bytes_max_,
                     " bytes, got ", header.tensor_bytes));
  }
  return absl::OkStatus();
}

absl::Status MessageAssembler::CheckNext(const FrameHeader& header) const {
  const Tensor& tensor = message_.tensor;
  if (header.kind == FrameKind::kChunk && header.sequence == message_.sequence &&
      header.dtype == tensor.dtype && header.shape == tensor.shape &&
      header.chunk_offset == received_bytes_) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      Describe(header), ": expected message ", message_.sequence, " of ", Name(tensor.dtype), " ",
      tensor.shape.ToString(), " from byte ", received_bytes_));
}

}  // namespace penstock
