#include "services/rpc/status.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "services/rpc/limits.h"

namespace penstock {

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message = CleanUtf8(status.message(), rpc_limits::kStatusMessageBytesMax);
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()), message);
}

absl::Status FromGrpcStatus(const grpc::Status& status, absl::string_view peer) {
  if (status.ok()) return absl::OkStatus();
  // gRPC 1.51 says this when a connection breaks during a stream; it means the peer is gone.
  const bool broken = status.error_code() == grpc::StatusCode::UNKNOWN &&
                      status.error_message() == "Stream removed";
  const auto code =
      broken ? absl::StatusCode::kUnavailable : static_cast<absl::StatusCode>(status.error_code());
  const std::string said = CleanUtf8(status.error_message(), rpc_limits::kMetadataBytesMax);
  return absl::Status(code, absl::StrCat(peer, ": ", said));
}

}  // namespace penstock
