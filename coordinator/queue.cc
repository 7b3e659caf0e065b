// Coordinator: which job gets which workers, and when.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/coordinator.h"

namespace penstock {
namespace {

// Returns one spelling of "ck", "./ck", "ck/" and "a/../ck". Links are not followed: two names for one directory are
// found out by its lock.
std::string Normalised(const std::string& directory) {
  const std::filesystem::path normal = std::filesystem::path(directory).lexically_normal();
  return normal.has_filename() ? normal.string() : normal.parent_path().string();
}

}  // namespace

void Coordinator::Settle(Now now) {
  settled_ns_.reset();
  for (auto& [job_id, run] : runs_) run->GoOnPlanning(now);
  ForgetOver();
  if (draining_) {
    return;
  }
  bool are_wanted = false;
  do {
    are_wanted = StartWaiting(now);
  } while (ForgetOver());  // a job that failed at once has left its workers to the next
  if (!are_wanted) OfferSpare(now);
}

void Coordinator::OfferSpare(Now now) {
  for (auto& [job_id, run] : runs_) {
    if (run->WantsMore(now)) run->OnSpare(FreeWorkers(), now);
  }
}

bool Coordinator::ForgetOver() {
  const size_t before = runs_.size();
  for (auto run = runs_.begin(); run != runs_.end();) {
    for (const NotStopped& left : run->second->TakeNotStopped()) {
      orphans_[left.worker] = {.incarnation = left.incarnation,
                               .job_id = left.job_id,
                               .epoch = left.epoch,
                               .stuck = true};
    }
    if (run->second->Over()) {
      earlier_.steps.Learn(run->second->Record());
      ended_[run->first] = run->second->summary();
      run = runs_.erase(run);
    } else {
      ++run;
    }
  }
  std::erase_if(waiting_, [this](const std::string& job_id) {
    const JobRun* run = FindRun(job_id);
    return run == nullptr || !run->queued();
  });
  // A job that went back to the queue was there before those that wait, except for those that recovered before it.
  for (const auto& [job_id, run] : runs_) {
    if (run->queued() && std::find(waiting_.begin(), waiting_.end(), job_id) == waiting_.end()) {
      const auto behind = std::find_if(
          waiting_.begin(), waiting_.end(),
          [this](const std::string& before) { return !FindRun(before)->recovering(); });
      waiting_.insert(behind, job_id);
    }
  }
  return runs_.size() < before;
}

bool Coordinator::StartWaiting(Now now) {
  if (waiting_.empty()) {
    return false;
  }
  std::vector<WorkerOffer> free = FreeWorkers();
  std::string held_back_by;
  for (const std::string& job_id : waiting_) {
    JobRun* run = Find(job_id);
    if (!run->queued()) {
      continue;  // started in this round
    }
    if (const JobRun* other = DirectoryUser(*run); other != nullptr) {
      run->Wait(
          absl::StrCat("waits for job ", other->id(), ", which uses the same checkpoint.directory"),
          now);
    } else if (!held_back_by.empty()) {
      run->Wait(absl::StrCat("waits behind job ", held_back_by), now);
    } else {
      const bool holds_back = StartOrWait(*run, free, now);
      if (holds_back || (run->queued() && run->HoldsBack(now))) held_back_by = job_id;
    }
  }
  return !held_back_by.empty();
}

void Coordinator::BeginOn(JobRun& run, const std::vector<WorkerOffer>& chosen,
                          std::vector<WorkerOffer>& free, Now now) {
  run.Begin(chosen, now);
  std::erase_if(free, [&](const WorkerOffer& offer) {
    return std::any_of(chosen.begin(), chosen.end(),
                       [&](const WorkerOffer& taken) { return taken.name == offer.name; });
  });
}

bool Coordinator::StartOnNamed(JobRun& run, std::vector<WorkerOffer>& free, Now now) {
  const std::vector<const Member*> available = membership_.Available();
  const auto& names = run.spec().pipeline().worker_names();
  for (const std::string& name : names) {
    const auto found = std::find_if(available.begin(), available.end(), [&](const Member* member) {
      return member->registration.name() == name;
    });
    const std::string why = found == available.end() ? "" : WhyUnusable(**found);
    if (found != available.end() && why.empty()) continue;
    run.Wait(absl::StrCat("waits for worker ", name, ", which pipeline.worker_names asks for",
                          why.empty() ? " and the cluster does not have; start one of that name, "
                                        "or submit the job without it"
                                      : absl::StrCat(": ", why)),
             now);
    return false;
  }
  std::vector<WorkerOffer> chosen;
  for (const std::string& name : names) {
    const auto is_it = [&](const WorkerOffer& offer) { return offer.name == name; };
    if (const auto offer = std::find_if(free.begin(), free.end(), is_it); offer != free.end()) {
      chosen.push_back(*offer);
      continue;
    }
    run.Wait(absl::StrCat("waits for worker ", name,
                          ", which pipeline.worker_names asks for and which is not free"),
             now);
    return true;
  }
  BeginOn(run, chosen, free, now);
  return false;
}

bool Coordinator::StartOrWait(JobRun& run, std::vector<WorkerOffer>& free, Now now) {
  if (now.monotonic_ns < run.rests_until_ns()) return false;
  run.OnFree(free, now);
  if (!run.queued()) return false;  // it has ended
  if (run.NamesWorkers()) return StartOnNamed(run, free, now);
  std::string unusable;
  const size_t available = Usable(&unusable).size();
  const auto needed = static_cast<size_t>(run.WorkersNeeded());
  if (needed > available) {
    run.Wait(absl::StrCat("waits for workers: needs ", needed, ", the cluster has ", available,
                          unusable),
             now);
    return false;
  }
  if (needed > free.size()) {
    run.Wait(absl::StrCat("waits for workers: needs ", needed, ", ", free.size(), " of ", available,
                          " are free", unusable),
             now);
    return true;
  }
  if (run.TakesAllFree()) {
    if (const std::string reason = WhyNotAllFree(now); !reason.empty()) {
      run.Wait(reason, now);
      return true;
    }
  }
  const int64_t count = run.WorkersOf(static_cast<int64_t>(free.size()));
  std::vector<WorkerOffer> chosen = free;
  std::stable_partition(chosen.begin(), chosen.end(),
                        [&](const WorkerOffer& worker) { return !run.Avoids(worker.name, now); });
  chosen.resize(count);
  BeginOn(run, chosen, free, now);
  return false;
}

std::string Coordinator::WhyNotAllFree(Now now) {
  if (const int64_t stopping = StoppingWorkers(); stopping > 0) {
    return absl::StrCat("waits for workers: ", stopping, " still to leave a job that has ended");
  }
  const int64_t settled_ns = membership_.joined_ns().value_or(0) + limits_.settle_ms * kNsPerMs;
  if (now.monotonic_ns < settled_ns) {
    settled_ns_ = settled_ns;
    return "waits for workers: more may be about to join";
  }
  return "";
}

int64_t Coordinator::StoppingWorkers() const {
  const std::vector<const Member*> available = Usable();
  return std::count_if(available.begin(), available.end(), [this](const Member* member) {
    const JobRun* user = UserOf(member->registration.name());
    return user != nullptr && IsTerminal(user->state());
  });
}

const JobRun* Coordinator::DirectoryUser(const JobRun& run) const {
  const std::string directory = Normalised(run.spec().checkpoint().directory());
  for (const auto& [job_id, other] : runs_) {
    if (!directory.empty() && other.get() != &run && (!other->queued() || other->returned()) &&
        Normalised(other->spec().checkpoint().directory()) == directory) {
      return other.get();
    }
  }
  return nullptr;
}

std::vector<const Member*> Coordinator::Usable(std::string* reason) const {
  std::vector<const Member*> usable;
  std::string first_why;
  int64_t others = -1;  // besides the first
  for (const Member* member : membership_.Available()) {
    std::string why = WhyUnusable(*member);
    if (why.empty()) {
      usable.push_back(member);
    } else if (++others == 0) {
      first_why = std::move(why);
    }
  }
  if (reason != nullptr && others >= 0) absl::StrAppend(reason, "; ", first_why);
  if (reason != nullptr && others > 0)
    absl::StrAppend(reason, "; the same goes for ", others, " more");
  return usable;
}

std::vector<WorkerOffer> Coordinator::FreeWorkers() const {
  std::vector<WorkerOffer> free;
  for (const Member* member : Usable()) {
    const v1::RegisterWorkerRequest& worker = member->registration;
    if (UserOf(worker.name()) == nullptr) {
      free.push_back({.name = worker.name(),
                      .address = worker.address(),
                      .incarnation = worker.incarnation(),
                      .device = worker.device(),
                      .memory_bytes = worker.memory_bytes(),
                      .build = worker.build()});
    }
  }
  // Names in the order people count them: w2 before w10.
  std::sort(free.begin(), free.end(), [](const WorkerOffer& a, const WorkerOffer& b) {
    return std::pair(a.name.size(), a.name) < std::pair(b.name.size(), b.name);
  });
  return free;
}

JobRun* Coordinator::UserOf(const std::string& worker) const {
  for (const auto& [job_id, run] : runs_) {
    if (run->Uses(worker)) {
      return run.get();
    }
  }
  return nullptr;
}

}  // namespace penstock
