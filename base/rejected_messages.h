// RejectedMessages: how many messages of others were refused, by reason, for metrics.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "absl/status/status.h"

namespace penstock {

enum class Rejection : uint8_t {
  kStaleEpoch,       // of an attempt at a job that is over, or of an earlier life of a worker
  kCorrupt,          // a checksum was wrong
  kMalformed,        // breaks a rule of the protocol
  kDuplicate,        // has come before
  kOverLimit,        // more than a limit allows
  kUnauthenticated,  // the caller is unknown
  kForbidden,        // it is known who asks, and that he may not
  kOtherVersion,     // a worker speaks another version of the protocol
  kOther,            // of another plan, say
};
inline constexpr int kRejections = 9;

constexpr const char* NameOf(Rejection reason) {
  constexpr const char* kNames[kRejections] = {"stale_epoch", "corrupt",       "malformed",
                                               "duplicate",   "over_limit",    "unauthenticated",
                                               "forbidden",   "other_version", "other"};
  return kNames[static_cast<int>(reason)];
}

// By what the refusal was answered with.
constexpr Rejection RejectionOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kAborted:
      return Rejection::kStaleEpoch;
    case absl::StatusCode::kDataLoss:
      return Rejection::kCorrupt;
    case absl::StatusCode::kInvalidArgument:
      return Rejection::kMalformed;
    case absl::StatusCode::kAlreadyExists:
      return Rejection::kDuplicate;
    case absl::StatusCode::kResourceExhausted:
      return Rejection::kOverLimit;
    case absl::StatusCode::kUnauthenticated:
      return Rejection::kUnauthenticated;
    case absl::StatusCode::kPermissionDenied:
      return Rejection::kForbidden;
    default:
      return Rejection::kOther;
  }
}

using RejectionCounts = std::array<int64_t, kRejections>;  // by Rejection

class RejectedMessages {
 public:
  void Count(Rejection reason, int64_t messages = 1) {
    counts_[static_cast<int>(reason)].fetch_add(messages, std::memory_order_relaxed);
  }
  // REQUIRES: `refusal` is not OK.
  void Count(const absl::Status& refusal) { Count(RejectionOf(refusal.code())); }
  int64_t count(Rejection reason) const {
    return counts_[static_cast<int>(reason)].load(std::memory_order_relaxed);
  }
  void AddTo(RejectionCounts& sum) const {
    for (int i = 0; i < kRejections; ++i) sum[i] += count(static_cast<Rejection>(i));
  }

 private:
  std::array<std::atomic<int64_t>, kRejections> counts_ = {};
};

}  // namespace penstock
