#include "coordinator/blame.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace penstock {

void Blame::Own(int32_t worker, std::string message, v1::AttemptCause cause) {
  if (!own_.has_value()) {
    own_ = Verdict{worker, std::move(message), cause};
  }
}

void Blame::OwnOfJob(int32_t worker, std::string message) {
  Own(worker, std::move(message));
  if (accuses_job_.value_or(worker) != worker) own_->cause = v1::ATTEMPT_CAUSE_WOULD_REPEAT;
  accuses_job_ = accuses_job_.value_or(worker);
}

void Blame::Pointing(int32_t worker, int32_t peer, std::string message, int64_t now_ns) {
  if (pointing_.empty()) {
    first_pointing_ = worker;
    first_pointing_ns_ = now_ns;
  }
  pointing_.emplace(worker, Report{peer, std::move(message)});
}

std::optional<int64_t> Blame::DecideAtNs() const {
  if (own_.has_value()) {
    return 0;
  }
  return pointing_.empty() ? std::nullopt : std::optional(first_pointing_ns_ + grace_ns_);
}

std::optional<Blame::Verdict> Blame::Decide(int64_t now_ns) const {
  const std::optional<int64_t> at_ns = DecideAtNs();
  return at_ns.has_value() && now_ns >= *at_ns ? std::optional(Best()) : std::nullopt;
}

Blame::Verdict Blame::Best() const {
  if (own_.has_value()) return *own_;
  // Follow the pointing from the first report to a worker that reported nothing, or until it turns
  // back to one already seen.
  int32_t last = first_pointing_;
  std::set<int32_t> seen;
  while (pointing_.count(last) > 0 && pointing_.at(last).peer != kNobody &&
         seen.insert(last).second) {
    const int32_t peer = pointing_.at(last).peer;
    if (seen.count(peer) > 0) {
      break;
    }
    last = peer;
  }
  const auto report = pointing_.find(last);
  if (report != pointing_.end()) {
    return {last, report->second.message, v1::ATTEMPT_CAUSE_UNREACHABLE};
  }
  return {last, absl::StrCat("went away: ", pointing_.at(first_pointing_).message),
          v1::ATTEMPT_CAUSE_WORKER_LOST};
}

}  // namespace penstock
