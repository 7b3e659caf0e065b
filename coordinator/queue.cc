// Coordinator: which job gets which workers, and when.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/coordinator.h"

namespace penstock {
void Coordinator::Settle(Now now) {
  settled_ns_.reset();
  deadlines_.clear();
  for (auto& [job_id, run] : runs_) run->GoOnPlanning(now);
  ForgetOver();
  if (draining_) {
    return;
  }
  bool are_wanted = false;
  do {
    are_wanted = StartWaiting(now);
  } while (ForgetOver());  // a job that failed at once has left its workers to the next
  OfferSpare(are_wanted, now);
}

void Coordinator::OfferSpare(bool are_wanted, Now now) {
  std::optional<Supply> supply;
  for (auto& [job_id, run] : runs_) {
    if (!run->WantsMore(now)) continue;
    if (!supply.has_value()) supply = are_wanted ? Supply() : MakeSupply();
    const int64_t phases = run->phases_begun();
    run->OnSpare(supply->free, now);
    if (run->phases_begun() != phases) supply.reset();  // it has taken some
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
      WaitFirst(job_id);
    }
  }
  return runs_.size() < before;
}

void Coordinator::WaitFirst(const std::string& job_id) {
  const auto behind =
      std::find_if(waiting_.begin(), waiting_.end(),
                   [this](const std::string& before) { return !FindRun(before)->recovering(); });
  waiting_.insert(behind, job_id);
}

bool Coordinator::StartWaiting(Now now) {
  const std::string stopping = FirstToRecover(now);
  if (waiting_.empty()) return !stopping.empty();
  Supply supply = MakeSupply();
  std::string held_back_by;
  for (const std::string& job_id : waiting_) {
    JobRun* run = Find(job_id);
    if (!run->queued()) {
      continue;  // started in this round
    }
    const std::vector<const JobRun*>& writers = supply.writers[run->directory()];
    const auto other = std::find_if(writers.begin(), writers.end(),
                                    [run](const JobRun* writer) { return writer != run; });
    if (other != writers.end()) {
      run->Wait(absl::StrCat("waits for job ", (*other)->id(),
                             ", which uses the same checkpoint.directory"),
                now);
      continue;
    }
    // A job that recovers comes behind those that recovered before it, and before all others.
    if (held_back_by.empty() && !run->recovering()) held_back_by = stopping;
    if (!held_back_by.empty()) {
      run->Wait(absl::StrCat("waits behind job ", held_back_by), now);
    } else {
      const bool holds_back = StartOrWait(*run, supply, now);
      if (holds_back || (run->queued() && run->HoldsBack(now))) held_back_by = job_id;
    }
  }
  return !held_back_by.empty() || !stopping.empty();
}

std::string Coordinator::FirstToRecover(Now now) const {
  for (const auto& [job_id, run] : runs_) {
    if (!run->queued() && run->HoldsBack(now)) return job_id;
  }
  return "";
}

Coordinator::Supply Coordinator::MakeSupply() const {
  Supply supply;
  const std::unordered_map<std::string, JobRun*> users = Users();
  std::string first_why;
  int64_t unusable = 0;
  for (const Member* member : membership_.Available()) {
    const v1::RegisterWorkerRequest& worker = member->registration;
    if (std::string why = WhyUnusable(*member); !why.empty()) {
      if (unusable++ == 0) first_why = std::move(why);
      continue;
    }
    ++supply.usable;
    if (const auto user = users.find(worker.name()); user != users.end()) {
      if (IsTerminal(user->second->state())) ++supply.stopping;
      continue;
    }
    supply.free.push_back({.name = worker.name(),
                           .address = worker.address(),
                           .incarnation = worker.incarnation(),
                           .device = worker.device(),
                           .memory_bytes = worker.memory_bytes(),
                           .build = worker.build()});
  }
  if (unusable > 0) supply.unusable = absl::StrCat("; ", first_why);
  if (unusable > 1) {
    absl::StrAppend(&supply.unusable, "; the same goes for ", unusable - 1, " more");
  }
  // Names in the order people count them: w2 before w10.
  std::sort(supply.free.begin(), supply.free.end(), [](const WorkerOffer& a, const WorkerOffer& b) {
    return std::pair(a.name.size(), a.name) < std::pair(b.name.size(), b.name);
  });
  for (const auto& [job_id, run] : runs_) {
    const bool writes = !run->queued() || run->returned();
    if (writes && !run->directory().empty()) {
      supply.writers[run->directory()].push_back(run.get());
    }
  }
  return supply;
}

void Coordinator::BeginOn(JobRun& run, const std::vector<WorkerOffer>& chosen, Supply& supply,
                          Now now) {
  run.Begin(chosen, now);
  std::erase_if(supply.free, [&](const WorkerOffer& offer) {
    return std::any_of(chosen.begin(), chosen.end(),
                       [&](const WorkerOffer& taken) { return taken.name == offer.name; });
  });
  if (!run.directory().empty()) supply.writers[run.directory()].push_back(&run);
}

bool Coordinator::StartOnNamed(JobRun& run, Supply& supply, Now now) {
  const auto& names = run.spec().pipeline().worker_names();
  for (const std::string& name : names) {
    const Member* const member = membership_.Find(name);
    const bool available = member != nullptr && member->alive && !member->leaving;
    const std::string why = available ? WhyUnusable(*member) : "";
    if (available && why.empty()) continue;
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
    if (const auto offer = std::find_if(supply.free.begin(), supply.free.end(), is_it);
        offer != supply.free.end()) {
      chosen.push_back(*offer);
      continue;
    }
    run.Wait(absl::StrCat("waits for worker ", name,
                          ", which pipeline.worker_names asks for and which is not free"),
             now);
    return true;
  }
  BeginOn(run, chosen, supply, now);
  return false;
}

bool Coordinator::StartOrWait(JobRun& run, Supply& supply, Now now) {
  if (now.monotonic_ns < run.rests_until_ns()) return false;
  run.OnFree(supply.free, now);
  if (!run.queued()) return false;  // it has ended
  if (run.NamesWorkers()) return StartOnNamed(run, supply, now);
  const auto needed = static_cast<size_t>(run.WorkersNeeded());
  if (needed > supply.usable) {
    run.Wait(absl::StrCat("waits for workers: needs ", needed, ", the cluster has ", supply.usable,
                          supply.unusable),
             now);
    return false;
  }
  if (needed > supply.free.size()) {
    run.Wait(absl::StrCat("waits for workers: needs ", needed, ", ", supply.free.size(), " of ",
                          supply.usable, " are free", supply.unusable),
             now);
    return true;
  }
  if (run.TakesAllFree()) {
    if (const std::string reason = WhyNotAllFree(supply, now); !reason.empty()) {
      run.Wait(reason, now);
      return true;
    }
  }
  const int64_t count = run.WorkersOf(static_cast<int64_t>(supply.free.size()));
  std::vector<WorkerOffer> chosen = supply.free;
  std::stable_partition(chosen.begin(), chosen.end(),
                        [&](const WorkerOffer& worker) { return !run.Avoids(worker.name, now); });
  BeginOn(run, run.ChooseWorkers(std::move(chosen), count, now), supply, now);
  return false;
}

std::string Coordinator::WhyNotAllFree(const Supply& supply, Now now) {
  if (supply.stopping > 0) {
    return absl::StrCat("waits for workers: ", supply.stopping,
                        " still to leave a job that has ended");
  }
  const int64_t settled_ns = membership_.joined_ns().value_or(0) + limits_.settle_ms * kNsPerMs;
  if (now.monotonic_ns < settled_ns) {
    settled_ns_ = settled_ns;
    return "waits for workers: more may be about to join";
  }
  return "";
}

std::unordered_map<std::string, JobRun*> Coordinator::Users() const {
  std::unordered_map<std::string, JobRun*> users;
  for (const auto& [job_id, run] : runs_) {
    for (std::string& worker : run->InUse()) users.emplace(std::move(worker), run.get());
  }
  return users;
}

}  // namespace penstock
