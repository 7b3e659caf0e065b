// The one place where absl::Status meets grpc::Status. Codes have the same numbers on both sides.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace penstock {

// Servers answer UNAVAILABLE where they cannot do now what they were asked for, and gRPC says so where it reaches none. A
// coordinator that refuses a user begins its text with this, so that it is not taken for one that was not reached.
inline constexpr absl::string_view kNotDone = "not done, because ";
// With this where nobody can know: its store has not answered, and may have done it.
inline constexpr absl::string_view kPerhapsDone = "perhaps not done, because ";

// Return whether a status from FromGrpcStatus is such a refusal. The first is final. To ask again, or another coordinator, is
// worth while after the second.
bool IsNotDone(const absl::Status& status);
bool IsPerhapsDone(const absl::Status& status);

// Both ways keep what a worker notes about epochs (base/seen_epoch.h), as `seen_epoch=NUMBER` in the details of a
// grpc::Status, and what a coordinator notes about who leads (base/leader_note.h), as `leader=HOST:PORT`.

// Text beyond rpc_limits::kStatusMessageBytesMax is cut off, for it travels in the metadata. Bytes
// that are not UTF-8 are replaced, both ways: the text ends up in messages (base/utf8.h).
grpc::Status ToGrpcStatus(const absl::Status& status);

// `peer` names who was called ("coordinator 127.0.0.1:7070") and goes in front of the message.
absl::Status FromGrpcStatus(const grpc::Status& status, absl::string_view peer);

}  // namespace penstock
