#include "coordinator/profile_job.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/utf8.h"
#include "coordinator/job_phase.h"
#include "coordinator/profile_gatherer.h"
#include "job/defaults.h"
#include "job/profile/cluster_profile.h"

namespace penstock {
namespace {

// The workers measure, and tell of it.
class Measuring final : public JobPhase {
 public:
  Measuring(ProfileJob& job, std::unique_ptr<Crew> crew, std::unique_ptr<ProfileGatherer> gatherer)
      : JobPhase(job, std::move(crew)), job_(job), gatherer_(std::move(gatherer)) {}

  NextPhase Enter(Now now) override {
    job_.summary().set_steps(gatherer_->total());
    PlanStages();
    Prepare(now);
    return nullptr;
  }

  NextPhase OnResponse(int32_t worker_index, const WorkerResponse& response, Now now) override {
    if (crew_->OnSeenEpoch(worker_index, response, now)) {
      Prepare(now);
      return nullptr;
    }
    const bool launched = crew_->OnLaunch(worker_index, response, /*schedule_digest=*/"", now);
    if (NextPhase failed = FailIfBlamed(now)) return failed;
    if (Works()) return nullptr;
    if (launched) {
      StopAwaiting();
      job_.SetRunning(now);
    } else {
      AwaitLaunch(now);
    }
    return nullptr;
  }

  NextPhase OnEvent(int32_t worker_index, const v1::RunEvent& event, Now now) override {
    absl::Status taken;
    switch (event.kind_case()) {
      case v1::RunEvent::kMeasurementBegun:
        OnBegun(worker_index, event.measurement_begun(), now);
        break;
      case v1::RunEvent::kLinksMeasured:
        taken = gatherer_->OnLinks(worker_index, event.links_measured());
        break;
      case v1::RunEvent::kCopiesMeasured:
        taken = gatherer_->OnCopies(worker_index, event.copies_measured());
        break;
      case v1::RunEvent::kLayersTimed:
        taken = gatherer_->OnLayers(worker_index, event.layers_timed());
        if (taken.ok()) Keep(gatherer_->Kept(worker_index));
        break;
      case v1::RunEvent::kRunDone:
        taken = gatherer_->CheckDone(worker_index);
        crew_->parts()[worker_index].done = taken.ok();
        break;
      case v1::RunEvent::kRunFailed:
        crew_->OnRunFailed(worker_index, event.run_failed(), now);
        break;
      default:
        return nullptr;  // of training, or of a newer version
    }
    job_.summary().set_step(gatherer_->done());
    if (!taken.ok()) crew_->blame().Own(worker_index, std::string(taken.message()));
    if (NextPhase failed = FailIfBlamed(now)) return failed;
    return crew_->AllDone() ? Finish(now) : nullptr;
  }

  bool Fits(v1::JobState state) const override {
    return state == v1::JOB_STATE_PREPARING || state == v1::JOB_STATE_RUNNING;
  }

 private:
  bool Works() const override { return job_.state() == v1::JOB_STATE_RUNNING; }

  void Prepare(Now now) {
    for (int32_t i = 0; i < crew_->size(); ++i) {
      v1::PrepareProfileRequest request;
      *request.mutable_spec() = job_.spec();
      *request.mutable_plan() = job_.plan();
      request.set_worker_index(i);
      *request.mutable_profile() = job_.profile_spec();
      request.set_times_layers(gatherer_->TimesLayers(i));
      crew_->Ask(i, std::move(request));
    }
    AwaitLaunch(now);
  }

  NextPhase OnOverdue(int64_t seconds, Now now) override { return FailAsLate(seconds, now); }

  // A stage on every worker, without layers: enough for the workers to know each other.
  void PlanStages() {
    job_.plan().set_method(job_.summary().method());
    for (const WorkerOffer& worker : crew_->Workers()) {
      const int32_t index = job_.plan().stages_size();
      v1::StageAssignment& stage = *job_.plan().add_stages();
      stage.set_stage(index);
      stage.set_worker_index(index);
      stage.set_worker(worker.name);
      stage.set_address(worker.address);
      stage.set_incarnation(worker.incarnation);
    }
  }

  void Keep(std::optional<KeepLayerTimes> times) {
    if (times.has_value()) job_.Add(*std::move(times));
  }

  void OnBegun(int32_t worker_index, const v1::MeasurementBegun& begun, Now now) {
    gatherer_->OnBegun(worker_index, begun);
    v1::JobEvent event;
    v1::ProfileProgress& progress = *event.mutable_profile_progress();
    progress.set_done(gatherer_->done());
    progress.set_total(gatherer_->total());
    progress.set_worker(crew_->parts()[worker_index].worker.name);
    progress.set_what(CleanUtf8(begun.what(), JobRun::kTextBytesMax));
    job_.Publish(std::move(event), now);
  }

  NextPhase Finish(Now now) {
    job_.summary().clear_reason();
    if (!Works()) job_.SetRunning(now);  // all are done before the last answer to StartRun came
    job_.SetProfile(gatherer_->Result());
    return std::make_unique<Ended>(job_, v1::JOB_STATE_SUCCEEDED, nullptr);
  }

  ProfileJob& job_;
  const std::unique_ptr<ProfileGatherer> gatherer_;
};

// Looks up which times of layers are known from earlier.
class FindingLayerTimes final : public JobPhase {
 public:
  FindingLayerTimes(ProfileJob& job, std::unique_ptr<Crew> crew)
      : JobPhase(job, std::move(crew)),
        job_(job),
        gatherer_(std::make_unique<ProfileGatherer>(job.profile_spec(), job.resolved(),
                                                    crew_->Workers())) {}

  NextPhase Enter(Now now) override {
    if (job_.profile_spec().fresh()) return Measure(now);
    Await("looks for times of layers that are known", job_.limits().plan_timeout_ms, now);
    job_.Add(FindLayerTimes{job_.id(), gatherer_->Keys()});
    return nullptr;
  }

  NextPhase OnAnswer(EffectAnswer& answer, Now now) override {
    const auto* found = std::get_if<LayerTimesFound>(&answer);
    if (found == nullptr) return nullptr;
    StopAwaiting();
    gatherer_->TakeKnown(found->known);
    return Measure(now);
  }

 private:
  NextPhase OnOverdue(int64_t /*seconds*/, Now now) override {
    StopAwaiting();
    return Measure(now);
  }

  NextPhase Measure(Now now) {
    for (const std::string& note : gatherer_->Notes()) job_.Log(note, now);
    return std::make_unique<Measuring>(job_, std::move(crew_), std::move(gatherer_));
  }

  ProfileJob& job_;
  std::unique_ptr<ProfileGatherer> gatherer_;
};

}  // namespace

void MakeProfileRecord(const v1::ProfileSpec& profile, v1::GetJobResponse& record) {
  *record.mutable_profile_spec() = profile;
  record.mutable_spec()->clear_checkpoint();
  record.mutable_spec()->clear_step_records();
  record.mutable_spec()->clear_prediction();
  record.mutable_spec()->clear_feedback();
  record.mutable_spec()->clear_recovery();
  FillDefaults(*record.mutable_spec());
  record.mutable_summary()->set_method("profile");
  record.mutable_summary()->clear_steps();
}

int64_t ProfileJob::WorkersAmong(int64_t free) const {
  return WantsAllFree() ? std::min<int64_t>(free, kProfileWorkersMax) : FewestWorkers();
}

std::unique_ptr<JobPhase> ProfileJob::FirstPhase(std::unique_ptr<Crew> crew) {
  return std::make_unique<FindingLayerTimes>(*this, std::move(crew));
}

void ProfileJob::WriteTo(v1::GetJobResponse& record) const {
  *record.mutable_profile_spec() = profile_spec_;
  if (plan_.stages_size() > 0) *record.mutable_plan() = plan_;
  if (profile_.has_value()) *record.mutable_profile() = *profile_;
}

}  // namespace penstock
