// Coordinator: which job gets which workers, and when.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/coordinator.h"

namespace penstock {

void Coordinator::Settle(Now now) {
  ForgetOver();
  if (draining_) {
    return;
  }
  do {
    StartWaiting(now);
  } while (ForgetOver());  // a job that failed at once has left its workers to the next
}

bool Coordinator::ForgetOver() {
  const size_t before = runs_.size();
  for (auto run = runs_.begin(); run != runs_.end();) {
    if (run->second->Over()) {
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
  return runs_.size() < before;
}

void Coordinator::StartWaiting(Now now) {
  if (waiting_.empty()) {
    return;
  }
  const size_t alive = membership_.Alive().size();
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
      continue;
    }
    if (!held_back_by.empty()) {
      run->Wait(absl::StrCat("waits behind job ", held_back_by), now);
      continue;
    }
    const auto count =
        static_cast<size_t>(WorkersFor(run->spec(), run->job(), static_cast<int64_t>(free.size())));
    if (count > 0) {
      run->Begin(absl::MakeConstSpan(free).first(count), now);
      free.erase(free.begin(), free.begin() + static_cast<int64_t>(count));
      continue;
    }
    const size_t needed = std::max(1, run->spec().pipeline().stages());
    run->Wait(needed > alive
                  ? absl::StrCat("waits for workers: needs ", needed, ", the cluster has ", alive)
                  : absl::StrCat("waits for workers: needs ", needed, ", ", free.size(), " of ",
                                 alive, " are free"),
              now);
    if (needed <= alive) {
      held_back_by = job_id;
    }
  }
}

const JobRun* Coordinator::DirectoryUser(const JobRun& run) const {
  const std::string& directory = run.spec().checkpoint().directory();
  for (const auto& [job_id, other] : runs_) {
    if (!directory.empty() && other.get() != &run && !other->queued() &&
        other->spec().checkpoint().directory() == directory) {
      return other.get();
    }
  }
  return nullptr;
}

std::vector<WorkerOffer> Coordinator::FreeWorkers() const {
  std::vector<WorkerOffer> free;
  for (const Member* member : membership_.Alive()) {
    const v1::RegisterWorkerRequest& worker = member->registration;
    if (UserOf(worker.name()) == nullptr) {
      free.push_back({worker.name(), worker.address(), worker.incarnation()});
    }
  }
  // Names in the order people count them: w2 before w10.
  std::sort(free.begin(), free.end(), [](const WorkerOffer& a, const WorkerOffer& b) {
    return std::pair(a.name.size(), a.name) < std::pair(b.name.size(), b.name);
  });
  return free;
}

const JobRun* Coordinator::UserOf(const std::string& worker) const {
  for (const auto& [job_id, run] : runs_) {
    if (run->Uses(worker)) {
      return run.get();
    }
  }
  return nullptr;
}

}  // namespace penstock
