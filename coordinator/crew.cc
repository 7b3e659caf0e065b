#include "coordinator/crew.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/seen_epoch.h"

namespace penstock {
namespace {

constexpr absl::string_view kCannotPrepare = "cannot prepare";

bool IsGone(const Crew::Part& part) { return part.stopped || part.lost; }

// Returns the number of the worker's first event that a record of the job does not have.
int64_t RecordedSequence(const Crew::Part& part) {
  int64_t first = part.next_sequence;
  for (const auto& [step, sequence] : part.undecided) first = std::min(first, sequence);
  return first;
}

// Returns whether the reason may be the job's: data that are not as they should be, and memory that does not suffice.
bool MayBeOfJob(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

// Returns how the worker prepared; nothing if this answers something else.
std::optional<absl::Status> PreparedBy(const WorkerResponse& response) {
  if (const auto* run = std::get_if<absl::StatusOr<v1::PrepareRunResponse>>(&response)) {
    return run->status();
  }
  const auto* profile = std::get_if<absl::StatusOr<v1::PrepareProfileResponse>>(&response);
  return profile == nullptr ? std::nullopt : std::optional(profile->status());
}

// Returns the epoch that a worker names because it does not prepare an older one.
std::optional<int64_t> SeenBy(const WorkerResponse& response) {
  const std::optional<absl::Status> prepared = PreparedBy(response);
  return prepared.has_value() ? SeenEpochOf(*prepared) : std::nullopt;
}

}  // namespace

Crew::Crew(JobRun& job, std::vector<WorkerOffer> workers)
    : job_(job), epoch_(job.epoch()), blame_(job.limits().blame_grace_ms * kNsPerMs) {
  Reorder(std::move(workers));
}

void Crew::Reorder(std::vector<WorkerOffer> workers) {
  parts_.clear();
  for (WorkerOffer& worker : workers) parts_.push_back({.worker = std::move(worker)});
}

bool Crew::OnSeenEpoch(int32_t worker_index, const WorkerResponse& response, Now now) {
  const std::optional<int64_t> seen = SeenBy(response);
  if (starting_ || !seen.has_value() || *seen < epoch_ || later_epochs_ >= size()) return false;
  job_.Log(absl::StrCat("worker ", parts_[worker_index].worker.name, " has seen epoch ", *seen,
                        " of the job, and this coordinator none above ", epoch_,
                        ": the workers are prepared again under a later one"),
           now);
  job_.BeginAfter(*seen);
  const int32_t told = later_epochs_ + 1;
  BeginAgain(Workers(), now);
  later_epochs_ = told;
  return true;
}

void Crew::BeginAgain(std::vector<WorkerOffer> workers, Now now) {
  epoch_ = job_.NextEpoch(now);
  blame_ = Blame(job_.limits().blame_grace_ms * kNsPerMs);
  asked_ = starting_ = adopted_ = false;
  later_epochs_ = 0;
  Reorder(std::move(workers));
}

std::vector<WorkerOffer> Crew::Workers() const {
  std::vector<WorkerOffer> workers;
  for (const Part& part : parts_) workers.push_back(part.worker);
  return workers;
}

std::vector<std::string> Crew::InUse() const {
  std::vector<std::string> names;
  for (const Part& part : parts_) {
    if (!IsGone(part)) names.push_back(part.worker.name);
  }
  return names;
}

std::optional<int32_t> Crew::Find(const std::string& worker, uint64_t incarnation) const {
  for (int32_t i = 0; i < size(); ++i) {
    const WorkerOffer& offer = parts_[i].worker;
    if (offer.name == worker && offer.incarnation == incarnation) return i;
  }
  return std::nullopt;
}

std::vector<int32_t> Crew::Missing() const {
  std::vector<int32_t> missing;
  for (int32_t i = 0; i < size(); ++i) {
    if (starting_ ? !parts_[i].started : !parts_[i].prepared) missing.push_back(i);
  }
  return missing;
}

bool Crew::AllDone() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.done; });
}

bool Crew::AllGone() const { return std::all_of(parts_.begin(), parts_.end(), IsGone); }

std::vector<WorkerOffer> Crew::StillTaken(bool reachable) const {
  std::vector<WorkerOffer> taken;
  for (const Part& part : parts_) {
    const bool may_stop = !part.unreachable && !part.stuck && !part.given_up;
    if (!IsGone(part) && (!reachable || may_stop)) taken.push_back(part.worker);
  }
  return taken;
}

void Crew::Ask(int32_t worker_index, WorkerRequest request) {
  asked_ = true;
  std::visit(
      [this](auto& typed) {
        typed.set_job_id(job_.id());
        typed.set_epoch(epoch_);
        typed.set_term(TermOf(job_.limits().epochs_from));
      },
      request);
  const WorkerOffer& worker = parts_[worker_index].worker;
  job_.Add(CallWorker{job_.id(), epoch_, worker_index, worker.name, worker.address,
                      std::move(request), job_.trace()});
}

bool Crew::OnLaunch(int32_t worker_index, const WorkerResponse& response,
                    const std::string& schedule_digest, Now now) {
  Part& part = parts_[worker_index];
  if (const std::optional<absl::Status> prepared = PreparedBy(response)) {
    if (starting_) return false;
    if (!prepared->ok()) {
      BlameCall(worker_index, kCannotPrepare, *prepared, now);
      return false;
    }
    const auto* run = std::get_if<absl::StatusOr<v1::PrepareRunResponse>>(&response);
    const std::string digest = run != nullptr ? (*run)->schedule_digest() : "";
    if (run != nullptr) part.arithmetic = (*run)->arithmetic();
    if (digest != schedule_digest) {
      blame_.Own(worker_index, absl::StrCat("derives schedule ", digest, ", the coordinator ",
                                            schedule_digest, "; run the same build on both"));
      return false;
    }
    part.prepared = true;
    starting_ = std::all_of(parts_.begin(), parts_.end(), [](const Part& p) { return p.prepared; });
    for (int32_t i = 0; i < size() && starting_; ++i) {
      parts_[i].start_asked = true;
      Ask(i, v1::StartRunRequest());
    }
  } else if (const auto* started = std::get_if<absl::StatusOr<v1::StartRunResponse>>(&response)) {
    if (!starting_) return false;
    if (!started->ok()) {
      BlameCall(worker_index, "cannot start", started->status(), now);
      return false;
    }
    part.started = true;
    return std::all_of(parts_.begin(), parts_.end(), [](const Part& p) { return p.started; });
  }
  return false;
}

void Crew::Stop(const std::string& reason) {
  for (int32_t i = 0; i < size(); ++i) {
    Part& part = parts_[i];
    if (part.stopped || (part.lost && (part.stop_asked || part.done))) continue;
    part.stop_asked = true;
    v1::StopRunRequest request;
    request.set_reason(reason);
    Ask(i, std::move(request));
  }
}

void Crew::GiveUpAtDeadLinks() {
  for (Part& part : parts_) {
    part.given_up = part.at_dead_link;
  }
}

void Crew::OnStopped(int32_t worker_index, const WorkerResponse& response) {
  const auto* stopped = std::get_if<absl::StatusOr<v1::StopRunResponse>>(&response);
  if (stopped == nullptr) return;
  Part& part = parts_[worker_index];
  part.stopped = part.stopped || stopped->ok();
  part.unreachable = absl::IsUnavailable(stopped->status());
}

std::vector<std::string> Crew::Arithmetics() const {
  std::vector<std::string> each;
  for (const Part& part : parts_) {
    if (part.arithmetic.empty()) return {};
    const bool is_new = std::find(each.begin(), each.end(), part.arithmetic) == each.end();
    if (is_new) each.push_back(part.arithmetic);
  }
  return each;
}

void Crew::Adopt(const v1::RunUnderWay& run) {
  asked_ = starting_ = adopted_ = true;
  for (int32_t i = 0; i < size(); ++i) {
    Part& part = parts_[i];
    part.prepared = part.start_asked = part.started = true;
    part.next_sequence = part.saved_sequence = part.stored_sequence =
        run.workers(i).next_sequence();
  }
}

void Crew::WriteTo(v1::RunUnderWay& run) const {
  for (const Part& part : parts_) {
    v1::RunWorker& worker = *run.add_workers();
    worker.set_name(part.worker.name);
    worker.set_address(part.worker.address);
    worker.set_incarnation(part.worker.incarnation);
    worker.set_device(part.worker.device);
    worker.set_memory_bytes(part.worker.memory_bytes);
    worker.set_build(part.worker.build);
    worker.set_next_sequence(RecordedSequence(part));
  }
}

void Crew::AwaitDecision(int32_t worker_index, int64_t step) {
  Part& part = parts_[worker_index];
  part.undecided.try_emplace(step, part.next_sequence - 1);
}

void Crew::OnDecided(int64_t step) {
  for (Part& part : parts_) part.undecided.erase(step);
}

void Crew::OnSaved() {
  for (Part& part : parts_) part.saved_sequence = RecordedSequence(part);
}

void Crew::OnStored() {
  for (Part& part : parts_) part.stored_sequence = part.saved_sequence;
}

void Crew::OnLost(const std::string& worker, uint64_t incarnation, const std::string& reason) {
  const std::optional<int32_t> index = Find(worker, incarnation);
  if (!index.has_value() || IsGone(parts_[*index])) return;
  parts_[*index].lost = true;
  if (parts_[*index].done) return;
  blame_.Own(*index, absl::StrCat("was lost: ", reason), v1::ATTEMPT_CAUSE_WORKER_LOST);
}

void Crew::BlameCall(int32_t worker_index, absl::string_view what, const absl::Status& status,
                     Now now) {
  const std::string message = absl::StrCat(what, ": ", status.message());
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    job_.SetUnreachable();
    blame_.Pointing(worker_index, Blame::kNobody, message, now.monotonic_ns);
  } else {
    BlameOwn(worker_index, status.code(), message);
  }
}

void Crew::BlameOwn(int32_t worker_index, absl::StatusCode code, const std::string& message) {
  if (MayBeOfJob(code)) return blame_.OwnOfJob(worker_index, message);
  blame_.Own(worker_index, message);
}

void Crew::OnLatePreparation(int32_t worker_index, const WorkerResponse& response, Now now) {
  const std::optional<absl::Status> prepared = PreparedBy(response);
  // Whatever else a worker says now may come of its being stopped.
  if (!prepared.has_value() || !MayBeOfJob(prepared->code())) return;
  BlameCall(worker_index, kCannotPrepare, *prepared, now);
}

void Crew::OnRunFailed(int32_t worker_index, const v1::RunFailed& failed, Now now) {
  if (failed.peer().empty()) {
    if (failed.not_finite()) {
      return blame_.Own(worker_index, failed.message(), v1::ATTEMPT_CAUSE_WOULD_REPEAT);
    }
    return BlameOwn(worker_index, static_cast<absl::StatusCode>(failed.code()), failed.message());
  }
  int32_t peer = Blame::kNobody;
  for (int32_t i = 0; i < size(); ++i) {
    const WorkerOffer& offer = parts_[i].worker;
    if (offer.name == failed.peer() || offer.address == failed.peer()) peer = i;
  }
  blame_.Pointing(worker_index, peer, failed.message(), now.monotonic_ns);
}

absl::Status Crew::CheckInvariants() const {
  const bool all_prepared =
      std::all_of(parts_.begin(), parts_.end(), [](const Part& part) { return part.prepared; });
  for (const Part& part : parts_) {
    if (part.start_asked && !all_prepared) {
      return absl::InternalError("a worker was started before all were prepared");
    }
    if (part.done && !part.start_asked) {
      return absl::InternalError("a worker is done that was never started");
    }
    if (job_.ended() && !AllDone() && !part.stop_asked && !IsGone(part)) {
      return absl::InternalError("ended without asking every worker to stop");
    }
  }
  return absl::OkStatus();
}

}  // namespace penstock
