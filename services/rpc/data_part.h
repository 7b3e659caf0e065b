// A part of a file that travels in a message with the fields `bytes` and `crc32c`, which both ends fill and check alike.
//
// Plain functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/crc32c.h"

namespace penstock {

// Puts `bytes` and their CRC32C into a message.
template <typename Message>
void SetPart(std::string bytes, Message& message) {
  message.set_crc32c(Crc32c(bytes.data(), bytes.size()));
  *message.mutable_bytes() = std::move(bytes);
}

// Errors: DataLoss (the bytes are not those that were sent).
template <typename Message>
absl::Status CheckPart(const Message& message) {
  const uint32_t found = Crc32c(message.bytes().data(), message.bytes().size());
  if (found == message.crc32c()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("a part came damaged: its CRC32C is ", found,
                                          ", expected ", message.crc32c(), "; send it again"));
}

}  // namespace penstock
