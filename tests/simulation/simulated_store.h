// SimulatedStore: what a coordinator keeps, in memory, and the ways in which that fails.
//
// The kept things are a value of their own (KeptState), which outlives the processes that write it.
//
// Thread-compatible.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/random.h"
#include "services/coordinator/state_store.h"

namespace penstock {

struct KeptState {
  struct Job {
    v1::GetJobResponse record;
    std::string key;
    std::vector<v1::JobEvent> events;
    size_t durable_events = 0;  // that a power failure leaves
  };

  std::map<std::string, Job> jobs;
  std::vector<std::string> order;  // of their submission
  std::map<std::string, v1::DeviceProfile> layer_times;
  int64_t gaps = 0;  // events that came before one that was to come first

  // Takes some of the events away that came after the last record.
  void LosePower(RandomStream& random) {
    for (auto& [id, job] : jobs) {
      const size_t unsynced = job.events.size() - job.durable_events;
      job.events.resize(job.durable_events + random.Below(unsynced + 1));
      job.durable_events = job.events.size();
    }
  }
};

enum class StoreTrouble {
  kNone,
  kFull,     // nothing is written
  kSilent,   // nobody answers, and what was written then, nobody knows
  kPartial,  // fails after the events
};

class SimulatedStore final : public StateStore {
 public:
  // `written` is called after each write that has told that it succeeded. REQUIRES: the first three outlive the store.
  SimulatedStore(KeptState& kept, const StoreTrouble& trouble, RandomStream& random,
                 std::function<void()> written)
      : kept_(kept), trouble_(trouble), random_(random), written_(std::move(written)) {}

  std::string name() const override { return "state"; }
  std::string remedy() const override { return "wait"; }
  absl::Status Write(absl::Span<const Change> changes) override {
    if (trouble_ == StoreTrouble::kFull) return Full();
    if (trouble_ == StoreTrouble::kPartial) {
      PutEvents(changes);
      return Full();
    }
    if (trouble_ == StoreTrouble::kSilent) {
      for (const Change& change : changes) Doubt(change);
      if (random_.Below(2) == 0) Put(changes);
      return Silent();
    }
    Put(changes);
    doubtful_.clear();
    written_();
    return absl::OkStatus();
  }
  absl::Status Touch() override {
    if (trouble_ == StoreTrouble::kSilent) return Silent();
    if (trouble_ != StoreTrouble::kNone) return Full();
    Put({});
    doubtful_.clear();
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<StoredJob>> Load() override {
    if (trouble_ == StoreTrouble::kSilent) return Silent();
    std::vector<StoredJob> jobs;
    for (const std::string& id : kept_.order) {
      const KeptState::Job& job = kept_.jobs.at(id);
      jobs.push_back({.record = job.record,
                      .idempotency_key = job.key,
                      .last_sequence = static_cast<int64_t>(job.events.size())});
    }
    return jobs;
  }
  absl::StatusOr<v1::GetJobResponse> ReadRecord(const std::string& job_id) override {
    const auto job = kept_.jobs.find(job_id);
    if (job == kept_.jobs.end()) return absl::NotFoundError(job_id);
    return job->second.record;
  }
  absl::StatusOr<v1::GetTimelineResponse> ReadTimeline(const std::string& job_id) override {
    return absl::NotFoundError(job_id);
  }
  absl::StatusOr<v1::DeviceProfile> ReadLayerTimes(const std::string& key) override {
    const auto times = kept_.layer_times.find(key);
    if (times == kept_.layer_times.end()) return absl::NotFoundError(key);
    return times->second;
  }
  absl::StatusOr<std::vector<v1::JobEvent>> ReadEvents(const std::string& job_id,
                                                       int64_t after_sequence,
                                                       int count_max) override {
    std::vector<v1::JobEvent> events;
    for (const v1::JobEvent& event : kept_.jobs[job_id].events) {
      if (event.sequence() > after_sequence && static_cast<int>(events.size()) < count_max) {
        events.push_back(event);
      }
    }
    return events;
  }

 private:
  static absl::Status Full() { return absl::ResourceExhaustedError("No space left on device"); }
  static absl::Status Silent() { return absl::UnavailableError("nobody answers"); }

  static const std::string& IdOf(const SaveJob& save) { return save.record.summary().job_id(); }

  // A job that was new in a write without an answer was refused to its submitter. As with etcd, each write after that removes
  // it, until one is answered (services/coordinator/etcd_store.h).
  void Doubt(const Change& change) {
    if (change.job != nullptr && kept_.jobs.count(IdOf(*change.job)) == 0) {
      doubtful_.insert(IdOf(*change.job));
    }
  }
  void Put(absl::Span<const Change> changes) {
    for (const std::string& id : doubtful_) {
      kept_.jobs.erase(id);
      std::erase(kept_.order, id);
    }
    for (const Change& change : changes) {
      if (change.layer_times != nullptr) {
        kept_.layer_times[change.layer_times->key] = change.layer_times->times;
      }
      if (change.job == nullptr) continue;
      const std::string& id = IdOf(*change.job);
      if (kept_.jobs.count(id) == 0) kept_.order.push_back(id);
      KeptState::Job& job = kept_.jobs[id];
      job.record = change.job->record;
      if (!change.job->idempotency_key.empty()) job.key = change.job->idempotency_key;
    }
    PutEvents(changes);
    // A record is made durable, and what was written before it with it.
    const bool has_record = std::any_of(changes.begin(), changes.end(),
                                        [](const Change& change) { return change.job != nullptr; });
    if (!has_record) return;
    for (auto& [id, job] : kept_.jobs) job.durable_events = job.events.size();
  }
  // An event that is there already changes nothing.
  void PutEvents(absl::Span<const Change> changes) {
    for (const Change& change : changes) {
      if (change.event == nullptr) continue;
      const auto job = kept_.jobs.find(change.event->job_id);
      if (job == kept_.jobs.end()) continue;
      std::vector<v1::JobEvent>& events = job->second.events;
      const auto next = static_cast<int64_t>(events.size()) + 1;
      if (change.event->event.sequence() > next) ++kept_.gaps;
      if (change.event->event.sequence() >= next) events.push_back(change.event->event);
    }
  }

  KeptState& kept_;
  const StoreTrouble& trouble_;
  RandomStream& random_;
  const std::function<void()> written_;
  std::set<std::string> doubtful_;  // jobs, by id
};

}  // namespace penstock
