#include "services/rpc/status.h"

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/leader_note.h"
#include "base/seen_epoch.h"
#include "base/utf8.h"
#include "services/rpc/limits.h"

namespace penstock {
namespace {

constexpr char kSeenEpochKey[] = "seen_epoch=";
constexpr char kLeaderKey[] = "leader=";
constexpr size_t kLeaderBytesMax = 300;
constexpr char kRefusalType[] = "penstock/refusal";  // the payload is how the text began

// The details come from the network: what is no such note is left out.
absl::Status WithDetails(absl::Status status, absl::string_view details) {
  if (absl::ConsumePrefix(&details, kLeaderKey)) {
    if (details.size() > kLeaderBytesMax) return status;
    return WithLeader(std::move(status), CleanUtf8(details, kLeaderBytesMax));
  }
  int64_t epoch = 0;
  if (!absl::ConsumePrefix(&details, kSeenEpochKey) || !absl::SimpleAtoi(details, &epoch)) {
    return status;
  }
  return WithSeenEpoch(std::move(status), epoch);
}

// A call that gRPC itself gave up has no such text.
absl::Status WithRefusal(absl::Status status, absl::string_view said) {
  for (const absl::string_view beginning : {kNotDone, kPerhapsDone}) {
    if (absl::IsUnavailable(status) && absl::StartsWith(said, beginning)) {
      status.SetPayload(kRefusalType, absl::Cord(beginning));
    }
  }
  return status;
}

bool IsRefusal(const absl::Status& status, absl::string_view beginning) {
  return status.GetPayload(kRefusalType) == absl::Cord(beginning);
}

std::string DetailsOf(const absl::Status& status) {
  if (const auto epoch = SeenEpochOf(status); epoch.has_value()) {
    return absl::StrCat(kSeenEpochKey, *epoch);
  }
  if (const auto leader = LeaderOf(status); leader.has_value()) {
    return absl::StrCat(kLeaderKey, *leader);
  }
  return "";
}

}  // namespace

bool IsNotDone(const absl::Status& status) { return IsRefusal(status, kNotDone); }

bool IsPerhapsDone(const absl::Status& status) { return IsRefusal(status, kPerhapsDone); }

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const std::string message = CleanUtf8(status.message(), rpc_limits::kStatusMessageBytesMax);
  return grpc::Status(static_cast<grpc::StatusCode>(status.raw_code()), message, DetailsOf(status));
}

absl::Status FromGrpcStatus(const grpc::Status& status, absl::string_view peer) {
  if (status.ok()) return absl::OkStatus();
  // gRPC 1.51 says this when a connection breaks during a stream; it means the peer is gone.
  const bool broken = status.error_code() == grpc::StatusCode::UNKNOWN &&
                      status.error_message() == "Stream removed";
  const auto code =
      broken ? absl::StatusCode::kUnavailable : static_cast<absl::StatusCode>(status.error_code());
  const std::string said = CleanUtf8(status.error_message(), rpc_limits::kMetadataBytesMax);
  return WithDetails(WithRefusal(absl::Status(code, absl::StrCat(peer, ": ", said)), said),
                     status.error_details());
}

}  // namespace penstock
