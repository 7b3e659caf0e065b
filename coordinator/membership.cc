#include "coordinator/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "base/utf8.h"

namespace penstock {

namespace {

constexpr size_t kBuildBytesMax = 64;
constexpr size_t kTextBytesMax = 300;  // for people; an address has that many at most

std::string BuildOf(const v1::RegisterWorkerRequest& request) {
  return request.build().empty() ? "unknown" : CleanUtf8(request.build(), kBuildBytesMax);
}

// Says which version each side speaks, and which of the two is to be replaced.
absl::Status OtherProtocol(const v1::RegisterWorkerRequest& request) {
  const bool worker_is_older = request.protocol_version() < v1::PROTOCOL_VERSION_CURRENT;
  return absl::FailedPreconditionError(absl::StrFormat(
      "worker %s (build %s) speaks protocol version %d, this coordinator (build %s) version %d: %s",
      request.name(), BuildOf(request), request.protocol_version(), PENSTOCK_VERSION,
      v1::PROTOCOL_VERSION_CURRENT,
      worker_is_older
          ? "install the coordinator's build on the worker's machine and start the worker again"
          : "install the worker's build on the coordinator's machine and start the coordinator "
            "again, then the worker"));
}

}  // namespace

absl::Status Membership::CheckRegistration(const v1::RegisterWorkerRequest& request) const {
  constexpr size_t kNameCharactersMax = 128;
  if (request.name().empty() || request.name().size() > kNameCharactersMax ||
      request.address().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a worker needs a name of 1 to ", kNameCharactersMax, " characters and an address, got \"",
        request.name().substr(0, kNameCharactersMax), "\" at \"", request.address(), "\""));
  }
  for (const auto& [key, text] : {std::pair("device", &request.device()),
                                  std::pair("metrics_address", &request.metrics_address()),
                                  std::pair("build", &request.build())}) {
    if (text->size() <= kTextBytesMax) continue;
    return absl::InvalidArgumentError(absl::StrCat("worker ", request.name(), ": its ", key,
                                                   " has ", text->size(), " bytes; at most ",
                                                   kTextBytesMax));
  }
  if (request.protocol_version() != v1::PROTOCOL_VERSION_CURRENT) {
    return OtherProtocol(request);
  }
  const Member* known = Find(request.name());
  if (known != nullptr && known->alive && known->registration.address() != request.address()) {
    return absl::AlreadyExistsError(absl::StrCat("a worker named ", request.name(), " is alive at ",
                                                 known->registration.address(), "; give this one (",
                                                 request.address(), ") another --name"));
  }
  return absl::OkStatus();
}

absl::Status Membership::MakeRoom() {
  if (members_.size() < limits_.workers_max) {
    return absl::OkStatus();
  }
  auto oldest = members_.end();
  for (auto member = members_.begin(); member != members_.end(); ++member) {
    if (!member->second.alive &&
        (oldest == members_.end() || member->second.heard_ns < oldest->second.heard_ns)) {
      oldest = member;
    }
  }
  if (oldest == members_.end()) {
    return absl::ResourceExhaustedError(absl::StrCat("the coordinator has ", members_.size(),
                                                     " workers alive, which is its limit"));
  }
  members_.erase(oldest);
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Departure>> Membership::Register(
    const v1::RegisterWorkerRequest& request, int64_t now_ns) {
  latest_ns_ = std::max(latest_ns_, now_ns);
  PENSTOCK_RETURN_IF_ERROR(CheckRegistration(request));
  const auto known = members_.find(request.name());
  if (known == members_.end()) {
    PENSTOCK_RETURN_IF_ERROR(MakeRoom());
    members_[request.name()] = {
        .registration = request, .heard_ns = now_ns, .number = next_number_++};
    joined_ns_ = now_ns;
    return std::nullopt;
  }
  Member& member = known->second;
  std::optional<Departure> departure;
  if (member.alive && member.registration.incarnation() != request.incarnation()) {
    departure = Departure{.worker = request.name(),
                          .incarnation = member.registration.incarnation(),
                          .reason = "its process was restarted",
                          .cause = LossCause::kRestarted,
                          .detection_ns = now_ns - member.suspected_ns.value_or(member.heard_ns)};
  }
  if (!member.alive) {
    joined_ns_ = now_ns;
  }
  if (member.registration.incarnation() != request.incarnation()) member.stream = 0;
  member.suspected_ns.reset();
  member.registration = request;
  member.alive = true;
  member.leaving = false;
  member.heard_ns = now_ns;
  return departure;
}

absl::StatusOr<Member*> Membership::Hear(const std::string& worker, uint64_t incarnation,
                                         int64_t now_ns) {
  latest_ns_ = std::max(latest_ns_, now_ns);
  const auto known = members_.find(worker);
  if (known == members_.end() || !known->second.alive ||
      known->second.registration.incarnation() != incarnation) {
    const absl::string_view why = known == members_.end() ? "unknown here"
                                  : !known->second.alive  ? "counted as lost"
                                                          : "known with another incarnation";
    return absl::NotFoundError(absl::StrCat("worker ", worker, " is ", why, "; register again"));
  }
  Member& member = known->second;
  member.heard_ns = std::max(member.heard_ns, now_ns);
  return &member;
}

absl::Status Membership::Heartbeat(const std::string& worker, uint64_t incarnation,
                                   int64_t now_ns) {
  return Hear(worker, incarnation, now_ns).status();
}

absl::StatusOr<int64_t> Membership::Attach(const std::string& worker, uint64_t incarnation,
                                           int64_t now_ns) {
  PENSTOCK_ASSIGN_OR_RETURN(Member* const member, Hear(worker, incarnation, now_ns));
  member->stream = ++last_stream_;
  member->suspected_ns.reset();
  return member->stream;
}

bool Membership::Detach(const std::string& worker, int64_t stream, int64_t now_ns) {
  latest_ns_ = std::max(latest_ns_, now_ns);
  const auto known = members_.find(worker);
  if (known == members_.end() || !known->second.alive || known->second.stream != stream) {
    return false;
  }
  known->second.suspected_ns = now_ns;
  return true;
}

std::optional<int64_t> Membership::Doubt(const std::string& worker, int64_t now_ns) {
  constexpr int64_t kPauseNs = 1000 * kNsPerMs;
  latest_ns_ = std::max(latest_ns_, now_ns);
  const auto known = members_.find(worker);
  if (known == members_.end() || !known->second.alive) return std::nullopt;
  Member& member = known->second;
  if (member.suspected_ns.has_value() && now_ns - *member.suspected_ns < kPauseNs) {
    return std::nullopt;
  }
  member.suspected_ns = now_ns;
  return member.stream;
}

std::optional<Departure> Membership::OnProbed(const std::string& worker, int64_t stream,
                                              const absl::Status& answer, int64_t now_ns) {
  latest_ns_ = std::max(latest_ns_, now_ns);
  const auto known = members_.find(worker);
  if (known == members_.end()) return std::nullopt;
  Member& member = known->second;
  if (!member.alive || member.stream != stream || !member.suspected_ns.has_value()) {
    return std::nullopt;
  }
  const bool gone = absl::IsUnavailable(answer);
  const bool unanswered =
      absl::IsDeadlineExceeded(answer) && member.heard_ns <= *member.suspected_ns;
  if (!gone && !unanswered) return std::nullopt;
  member.alive = false;
  heard_since_ns_.reset();
  return Departure{.worker = worker,
                   .incarnation = member.registration.incarnation(),
                   .reason = absl::StrCat(member.stream > 0 ? "its connection closed, and " : "",
                                          answer.message()),
                   .cause = gone ? LossCause::kGone : LossCause::kUnanswered,
                   .detection_ns = now_ns - *member.suspected_ns};
}

int64_t Membership::HeartbeatIntervalMs() const {
  const int64_t least = limits_.heartbeat_interval_ms;
  const int64_t most = std::max(least, limits_.heartbeat_timeout_ms / kHeartbeatChecks);
  const auto together = static_cast<int64_t>(members_.size()) * 1000 / kHeartbeatsPerSecond;
  return std::clamp(together, least, most);
}

std::vector<Departure> Membership::Expire(int64_t now_ns) {
  latest_ns_ = std::max(latest_ns_, now_ns);
  // For so long the coordinator itself stood still, and heartbeats waited to be taken: no worker was silent meanwhile. After a
  // gap they all wait, and nobody knows since when.
  const int64_t late_ns = expired_ns_.has_value()
                              ? std::max<int64_t>(0, now_ns - *expired_ns_ - expire_interval_ns())
                              : 0;
  const bool gap = late_ns > expire_interval_ns();
  expired_ns_ = now_ns;
  const int64_t timeout_ns = limits_.heartbeat_timeout_ms * kNsPerMs;
  heard_since_ns_.reset();
  std::vector<Departure> departures;
  std::erase_if(members_, [&](const auto& entry) {
    const Member& member = entry.second;
    return !member.alive && now_ns - member.heard_ns >= limits_.remember_lost_ms * kNsPerMs;
  });
  for (auto& [name, member] : members_) {
    if (member.alive) {
      member.heard_ns = gap ? now_ns : std::min(now_ns, member.heard_ns + late_ns);
    }
    if (member.alive && now_ns - member.heard_ns >= timeout_ns) {
      member.alive = false;
      departures.push_back(
          {.worker = name,
           .incarnation = member.registration.incarnation(),
           .reason = absl::StrFormat("no heartbeat for %.1f s",
                                     1e-9 * static_cast<double>(now_ns - member.heard_ns)),
           .cause = LossCause::kSilent,
           .detection_ns = now_ns - member.heard_ns});
    }
    if (member.alive) {
      heard_since_ns_ = std::min(heard_since_ns_.value_or(member.heard_ns), member.heard_ns);
    }
  }
  return departures;
}

std::optional<int64_t> Membership::NextExpiryNs() const {
  const int64_t timeout_ns = limits_.heartbeat_timeout_ms * kNsPerMs;
  // No member that is alive was silent for longer than since then, so that the interval ends before any of their times.
  if (heard_since_ns_.has_value() && expired_ns_.has_value() &&
      *expired_ns_ + expire_interval_ns() <= *heard_since_ns_ + timeout_ns) {
    return *expired_ns_ + expire_interval_ns();
  }
  std::optional<int64_t> next;
  for (const auto& [name, member] : members_) {
    if (member.alive) {
      const int64_t expiry = member.heard_ns + timeout_ns;
      next = std::min(next.value_or(expiry), expiry);
    }
  }
  if (!next.has_value()) {
    return std::nullopt;
  }
  return expired_ns_.has_value() ? std::min(*next, *expired_ns_ + expire_interval_ns()) : 0;
}

const Member* Membership::Find(const std::string& worker) const {
  const auto known = members_.find(worker);
  return known == members_.end() ? nullptr : &known->second;
}

void Membership::SetLeaving(const std::string& worker) { members_.at(worker).leaving = true; }

std::vector<const Member*> Membership::Available() const {
  std::vector<const Member*> available;
  for (const auto& [name, member] : members_) {
    if (member.alive && !member.leaving) {
      available.push_back(&member);
    }
  }
  std::sort(available.begin(), available.end(),
            [](const Member* a, const Member* b) { return a->number < b->number; });
  return available;
}

absl::Status Membership::CheckInvariants() const {
  const int64_t timeout_ns = limits_.heartbeat_timeout_ms * kNsPerMs;
  for (const auto& [name, member] : members_) {
    if (name != member.registration.name()) {
      return absl::InternalError(absl::StrCat("member ", name, " has another name"));
    }
    if (member.alive && expired_ns_.value_or(0) - member.heard_ns >= timeout_ns) {
      return absl::InternalError(absl::StrCat("worker ", name, " is alive after the timeout"));
    }
    if (std::max(member.heard_ns, member.suspected_ns.value_or(0)) > latest_ns_) {
      return absl::InternalError(absl::StrCat("worker ", name, " was heard of in the future"));
    }
  }
  if (members_.size() > limits_.workers_max) {
    return absl::InternalError(absl::StrCat(members_.size(), " workers are too many"));
  }
  return absl::OkStatus();
}

}  // namespace penstock
