#include "base/leader_note.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

constexpr char kLeaderType[] = "penstock/leader";  // the payload is HOST:PORT, or empty

}  // namespace

absl::Status WithLeader(absl::Status refusal, absl::string_view leader) {
  refusal.SetPayload(kLeaderType, absl::Cord(leader));
  return refusal;
}

absl::Status NotLeading(absl::string_view leader) {
  return WithLeader(
      absl::UnavailableError(
          leader.empty()
              ? "this coordinator does not lead the cluster, and none does yet; ask again, or "
                "another"
              : absl::StrCat("this coordinator does not lead the cluster; ask the one at ",
                             leader)),
      leader);
}

std::optional<std::string> LeaderOf(const absl::Status& status) {
  const auto payload = status.GetPayload(kLeaderType);
  if (!payload.has_value()) return std::nullopt;
  return std::string(*payload);
}

}  // namespace penstock
