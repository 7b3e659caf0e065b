// MessageCompression: activations and gradients in fewer bytes, for messages between workers.
//
// int8  The numbers of a tensor in runs of kRun. A run has a scale, its greatest magnitude / 127, and each number is sent
//       as the nearest multiple of it, ties to even: linear quantization by blocks, as in Dettmers et al.,
//       arXiv 2110.02861, and in the messages of ZeRO++, arXiv 2306.10209. No number is wrong by more than half a scale.
// topk  Of each run of kRun numbers the k of the greatest magnitude, with their places; the others count as 0 (Aji and
//       Heafield, arXiv 1704.05021). Of equal magnitudes those with the lowest places go. What stays away has the least
//       norm that k numbers of each run can leave. By runs no part of a tensor goes without, and a place is a byte.
//
// Compress leaves in the place of the numbers what the message does not say of them. A caller that adds that to the next
// numbers before it compresses them has error feedback: what was sent by then differs from what should have been by
// what is left, however many messages there were (Seide et al., Interspeech 2014; Karimireddy et al., arXiv 1901.09847).
//
// Bytes of a message, little endian, of n numbers:
//   int8  f32 scales of the ceil(n / kRun) runs, then n bytes, two's complement, -127 to 127
//   topk  f32 values of the k numbers of each run, run after run, then their places in their runs as u8, ascending
// Its length follows from n, so both ends of an edge know it before.
//
// All results are the same for any number of threads and calls. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/dtype.h"

namespace penstock {

struct MessageCompression {
  static constexpr int64_t kRun = 256;
  enum class Kind : uint8_t { kOff, kInt8, kTopK };

  Kind kind = Kind::kOff;
  double keep = 0.0;  // of kTopK: k / numbers of the run, to the nearest k of 1 to all

  bool any() const { return kind != Kind::kOff; }
  friend bool operator==(const MessageCompression&, const MessageCompression&) = default;
};

// Bytes of the message of `elements` numbers that are `dtype` otherwise (kF32 or kBf16); 0 where that is no less, so that the tensor
// travels as it is.
int64_t CompressedBytes(const MessageCompression& compression, DType dtype, int64_t elements);

// `values` += `from`, of the same number of `dtype` (kF32 or kBf16).
void AddNumbers(DType dtype, const void* from, absl::Span<float> values);

// Makes the message of `values`, and leaves in their place what it does not say of them. Allocates nothing.
// REQUIRES: `message` has CompressedBytes, which are not 0.
// Errors: FailedPrecondition (a value is not finite; what `message` and `values` hold then is undefined).
absl::Status Compress(const MessageCompression& compression, absl::Span<float> values,
                      absl::Span<std::byte> message);

// The numbers of a message, `elements` of `dtype` at `values`, rounded to nearest even where that is kBf16.
// Errors: InvalidArgument, saying which byte is wrong: another length, a scale that is negative or none, a number outside
// of its range, places that do not ascend or lie outside of their run, a value that is not finite. What `values` holds then is undefined.
absl::Status Expand(const MessageCompression& compression, absl::Span<const std::byte> message,
                    DType dtype, int64_t elements, void* values);

}  // namespace penstock
