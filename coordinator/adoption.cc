#include "coordinator/adoption.h"

#include <google/protobuf/util/message_differencer.h>

#include <utility>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "coordinator/attempt_record.h"
#include "coordinator/start_query.h"
#include "coordinator/training_phases.h"

namespace penstock {

v1::RunStart RunStartOf(const FoundStart& start) {
  v1::RunStart run;
  run.set_checkpoint(start.checkpoint);
  run.set_step(start.step);
  run.set_updates(start.updates);
  run.mutable_layer_updates()->Assign(start.layer_updates.begin(), start.layer_updates.end());
  run.mutable_extra_cuts()->Assign(start.extra_cuts.begin(), start.extra_cuts.end());
  run.set_method(start.method);
  run.mutable_stage_layers()->Assign(start.stage_layers.begin(), start.stage_layers.end());
  run.mutable_layer_order()->Assign(start.layer_order.begin(), start.layer_order.end());
  run.set_schedule(start.schedule);
  run.set_snapshot(start.snapshot);
  run.mutable_arithmetics()->Assign(start.arithmetics.begin(), start.arithmetics.end());
  return run;
}

FoundStart FoundStartOf(const v1::RunStart& start) {
  return {.checkpoint = start.checkpoint(),
          .step = start.step(),
          .updates = start.updates(),
          .layer_updates = {start.layer_updates().begin(), start.layer_updates().end()},
          .extra_cuts = {start.extra_cuts().begin(), start.extra_cuts().end()},
          .method = start.method(),
          .stage_layers = {start.stage_layers().begin(), start.stage_layers().end()},
          .layer_order = {start.layer_order().begin(), start.layer_order().end()},
          .schedule = start.schedule(),
          .arithmetics = {start.arithmetics().begin(), start.arithmetics().end()},
          .snapshot = start.snapshot()};
}

std::vector<WorkerOffer> OffersOf(const v1::RunUnderWay& run) {
  std::vector<WorkerOffer> workers;
  for (const v1::RunWorker& worker : run.workers()) {
    workers.push_back({.name = worker.name(),
                       .address = worker.address(),
                       .incarnation = worker.incarnation(),
                       .device = worker.device(),
                       .memory_bytes = worker.memory_bytes(),
                       .build = worker.build()});
  }
  return workers;
}

bool CanBeAdopted(const v1::GetJobResponse& record, const ResolvedJob& job) {
  if (record.summary().state() != v1::JOB_STATE_RUNNING || !record.has_run() ||
      !record.cancel_reason().empty()) {
    return false;
  }
  v1::JobResult result = record.result();
  const v1::Attempt* const open = OpenAttempt(result);
  if (open == nullptr || open->detected_ms() > 0 || open->ends_to_grow()) return false;
  for (const v1::RunWorker& worker : record.run().workers()) {
    if (worker.next_sequence() < 0) return false;
  }
  const FoundStart start = FoundStartOf(record.run().start());
  const absl::StatusOr<v1::Plan> plan =
      MakePlan(record.spec(), job, OffersOf(record.run()), start.step, start.extra_cuts);
  return plan.ok() && google::protobuf::util::MessageDifferencer::Equals(*plan, record.plan());
}

namespace {

// The workers have trained while the coordinator was away, and make themselves known again. Until all have, and the checkpoint
// directory is the job's own again, they keep what they have to report.
class Adopting final : public AttemptPhase {
 public:
  using AttemptPhase::AttemptPhase;

  NextPhase Enter(Now now) override {
    attempt().adopting = true;
    Await(WhatItWaitsFor(), job_.limits().adopt_timeout_ms, now);
    is_claimed_ = !job_.IsSaved();
    if (is_claimed_) return nullptr;
    StartQuery query = StartQueryOf(job_.spec(), job_.resolved());
    query.resume.clear();
    job_.Add(FindCheckpoint{.job_id = job_.id(),
                            .query = std::move(query),
                            .limit_ms = job_.limits().find_timeout_ms,
                            .adopted_tag = attempt().staging_tag});
    return nullptr;
  }

  NextPhase OnAnswer(EffectAnswer& answer, Now now) override {
    auto* const found = std::get_if<StartFound>(&answer);
    if (found == nullptr) return AttemptPhase::OnAnswer(answer, now);
    if (!found->adopted) return nullptr;
    if (!found->start.ok()) {
      return FailAttempt(absl::StrCat("the coordinator was restarted, and cannot have the "
                                      "checkpoint directory again: ",
                                      found->start.status().message()),
                         v1::ATTEMPT_CAUSE_COORDINATOR_RESTARTED, now);
    }
    for (const std::string& note : found->start->notes) job_.Log(note, now);
    crew_->SetLease(std::move(found->lease));
    is_claimed_ = true;
    return GoOnIfReady(now);
  }

  NextPhase OnHeard(int32_t worker_index, bool is_held, Now now) override {
    if (is_held) return FailAsHeld(worker_index, now);
    crew_->parts()[worker_index].heard = true;
    return GoOnIfReady(now);
  }

  // It drains as soon as it is known to train, and the checkpoint of that can be committed.
  NextPhase Cancel(Now now) override {
    return waits_for_disk_ ? EndUndrained(WhatItWaitsFor(), now) : nullptr;
  }

  bool Fits(v1::JobState state) const override { return state == v1::JOB_STATE_RUNNING; }

 private:
  std::vector<int32_t> Unheard() const {
    std::vector<int32_t> unheard;
    for (int32_t i = 0; i < crew_->size(); ++i) {
      if (!crew_->parts()[i].heard) unheard.push_back(i);
    }
    return unheard;
  }

  std::string WhatItWaitsFor() const {
    std::vector<std::string> names;
    for (const int32_t worker : Unheard()) names.push_back(crew_->parts()[worker].worker.name);
    return absl::StrCat("the coordinator was restarted, and waits for ",
                        names.empty() ? "the checkpoint directory" : AFewOf(std::move(names)));
  }

  NextPhase GoOnIfReady(Now now) {
    if (!Unheard().empty() || !is_claimed_) {
      job_.summary().set_reason(WhatItWaitsFor());
      return nullptr;
    }
    StopAwaiting();
    attempt().adopting = false;
    job_.Log("the coordinator was restarted; the workers have trained on, and no step is lost",
             now);
    return Train(job_, std::move(crew_));
  }

  NextPhase OnOverdue(int64_t seconds, Now now) override {
    for (const int32_t worker : Unheard()) {
      const WorkerOffer& offer = crew_->parts()[worker].worker;
      crew_->OnLost(offer.name, offer.incarnation,
                    absl::StrCat("it has told nothing of its run for ", seconds,
                                 " s since the coordinator was restarted"));
    }
    if (NextPhase failed = FailIfBlamed(now)) return failed;
    if (!std::exchange(waits_for_disk_, true)) {
      Await(WhatItWaitsFor(), job_.limits().find_timeout_ms, now);
      return nullptr;
    }
    return FailAttempt(
        absl::StrCat("the coordinator was restarted, and nothing was heard from the disk of ",
                     job_.spec().checkpoint().directory(), " for ", seconds, " s"),
        v1::ATTEMPT_CAUSE_COORDINATOR_RESTARTED, now);
  }

  bool is_claimed_ = false;
  bool waits_for_disk_ = false;  // all workers are there
};

}  // namespace

NextPhase Adopt(TrainingJob& job, std::unique_ptr<Crew> crew) {
  return std::make_unique<Adopting>(job, std::move(crew));
}

}  // namespace penstock
