// JobRun: profiles, whose workers measure instead of training.
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "coordinator/job_run.h"
#include "job/defaults.h"

namespace penstock {

void MakeProfileRecord(const v1::ProfileSpec& profile, v1::GetJobResponse& record) {
  *record.mutable_profile_spec() = profile;
  record.mutable_spec()->clear_checkpoint();
  record.mutable_spec()->clear_prediction();
  record.mutable_spec()->clear_feedback();
  FillDefaults(*record.mutable_spec());
  record.mutable_summary()->set_method("profile");
  record.mutable_summary()->clear_steps();
}

void JobRun::BeginProfile(Now now) {
  std::vector<WorkerOffer> workers;
  for (const Part& part : parts_) {
    workers.push_back(part.worker);
  }
  profile_.emplace(record_.profile_spec(), job_, std::move(workers));
  if (record_.profile_spec().fresh()) {
    return On(LayerTimesFound{}, now);
  }
  effects_.push_back(FindLayerTimes{id(), profile_->Keys()});
}

void JobRun::On(const LayerTimesFound& found, Now now) {
  if (phase_ == Phase::kPlanning) {
    planning_->OnLayerTimesFound(found.known, now);
    return GoOnPlanning(now);
  }
  if (phase_ != Phase::kFinding || !profile_.has_value()) {
    return;
  }
  profile_->TakeKnown(found.known);
  for (const std::string& note : profile_->Notes()) {
    Log(note, now);
  }
  record_.mutable_summary()->set_steps(profile_->total());
  PlanProfile();
  PrepareAll();
}

// A stage on every worker, without layers: enough for the workers to know each other.
void JobRun::PlanProfile() {
  v1::Plan& plan = *record_.mutable_plan();
  plan.set_method(summary().method());
  for (int32_t i = 0; i <= last_worker(); ++i) {
    const WorkerOffer& worker = parts_[i].worker;
    v1::StageAssignment& stage = *plan.add_stages();
    stage.set_stage(i);
    stage.set_worker_index(i);
    stage.set_worker(worker.name);
    stage.set_address(worker.address);
    stage.set_incarnation(worker.incarnation);
  }
}

void JobRun::OnProfileEvent(int32_t worker_index, const v1::RunEvent& event, Now now) {
  switch (event.kind_case()) {
    case v1::RunEvent::kMeasurementBegun: {
      profile_->OnBegun(worker_index, event.measurement_begun());
      record_.mutable_summary()->set_step(profile_->done());
      v1::JobEvent published;
      v1::ProfileProgress& progress = *published.mutable_profile_progress();
      progress.set_done(profile_->done());
      progress.set_total(profile_->total());
      progress.set_worker(parts_[worker_index].worker.name);
      progress.set_what(CleanUtf8(event.measurement_begun().what(), kTextBytesMax));
      return Publish(std::move(published), now);
    }
    case v1::RunEvent::kLinksMeasured:
      return OnMeasured(worker_index, profile_->OnLinks(worker_index, event.links_measured()), now);
    case v1::RunEvent::kLayersTimed:
      return OnLayersTimed(worker_index, event.layers_timed(), now);
    case v1::RunEvent::kRunDone: {
      const absl::Status done = profile_->CheckDone(worker_index);
      parts_[worker_index].done = done.ok();
      OnMeasured(worker_index, done, now);
      return EndIfAllDone(now);
    }
    case v1::RunEvent::kRunFailed:
      return OnRunFailed(worker_index, event.run_failed(), now);
    default:
      return;  // of training, or of a newer version
  }
}

void JobRun::OnLayersTimed(int32_t worker_index, const v1::LayersTimed& timed, Now now) {
  const absl::Status taken = profile_->OnLayers(worker_index, timed);
  if (taken.ok()) {
    effects_.push_back(profile_->Kept(worker_index));
  }
  OnMeasured(worker_index, taken, now);
}

void JobRun::OnMeasured(int32_t worker_index, const absl::Status& taken, Now now) {
  record_.mutable_summary()->set_step(profile_->done());
  if (!taken.ok()) {
    blame_.Own(worker_index, std::string(taken.message()));
    DecideBlame(now);
  }
}

}  // namespace penstock
