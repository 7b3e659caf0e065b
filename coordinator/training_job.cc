#include "coordinator/training_job.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "checkpoint/layout.h"
#include "coordinator/adoption.h"
#include "coordinator/attempt_record.h"
#include "coordinator/crew.h"
#include "coordinator/report_check.h"
#include "coordinator/training_phases.h"
#include "job/fingerprint.h"
#include "job/model_graph.h"
#include "job/snapshot_rule.h"
#include "model/layer_order.h"
#include "schedule/block_delay.h"

namespace penstock {
namespace {

constexpr size_t kNotSavedMax = 1024;  // steps that are remembered one by one

std::vector<int64_t> CutStepsOf(const v1::JobSpec& spec, const FoundStart& start) {
  std::vector<int64_t> steps;
  for (const Cut& cut : CutsOf(spec, start.step, start.extra_cuts)) steps.push_back(cut.step);
  return steps;
}

// Counts from the start, for earlier runs may have had another method or other microbatches.
void CountUpdates(const TrainingAttempt& attempt, Manifest& manifest) {
  const auto& [job, start, topology] = std::tie(attempt.job, attempt.start, attempt.topology);
  std::vector<int64_t> updates(job.model.size(), start.updates);
  std::copy_n(start.layer_updates.begin(), std::min(start.layer_updates.size(), updates.size()),
              updates.begin());
  for (const v1::StageAssignment& stage : attempt.plan.stages()) {
    const StageId id(stage.stage());
    if (!topology[id].of_model) continue;
    const int64_t more =
        job.UpdatesBetween(start.step, manifest.step, attempt.stages, topology[id].part);
    for (int i = 0; i < stage.layers(); ++i) {
      updates[job.model.layers[stage.first_layer() + i].number] += more;
    }
  }
  manifest.updates = updates.front();
  const bool differ = std::any_of(updates.begin(), updates.end(),
                                  [&](int64_t count) { return count != manifest.updates; });
  if (differ) manifest.layer_updates = std::move(updates);
}

CheckpointFile FileOf(const v1::SavedFile& file) {
  return {.name = file.name(),
          .size_bytes = file.size_bytes(),
          .sha256 = file.sha256(),
          .layer = file.layer()};
}

}  // namespace

TrainingAttempt::TrainingAttempt(const v1::JobSpec& spec, const ResolvedJob& job, v1::Plan plan,
                                 int64_t workers, FoundStart start)
    : spec(spec),
      job(job),
      plan(std::move(plan)),
      stages(job.StagesOn(workers)),
      topology(TopologyOf(job, stages)),
      start(std::move(start)),
      cuts(CutStepsOf(spec, this->start)),
      sample_flops(EstimateCost(job.model).training_flops()),
      checkpoints(static_cast<int32_t>(workers)),
      block_delay(job, topology, this->start.step, cuts),
      remaining(job.steps, cuts),
      reported_step(workers, -1) {}

std::vector<int64_t> TrainingAttempt::ExtraCutsUpTo(int64_t step) const {
  std::vector<int64_t> extra = start.extra_cuts;
  if (cut_short() && *drain_step > start.step && *drain_step <= step &&
      std::find(cuts.begin(), cuts.end(), *drain_step) == cuts.end()) {
    extra.push_back(*drain_step);
  }
  return extra;
}

Manifest TrainingAttempt::ManifestOf(const CheckpointTracker::Complete& complete) const {
  Manifest manifest;
  manifest.method = spec.pipeline().method();
  manifest.step = complete.step;
  CountUpdates(*this, manifest);
  manifest.extra_cuts = ExtraCutsUpTo(complete.step);
  manifest.stage_layers.resize(topology.parts());
  for (const v1::StageAssignment& stage : plan.stages()) {
    manifest.stage_layers[topology[StageId(stage.stage())].part] = stage.layers();
  }
  manifest.layer_order = LayerOrderOf(job.model);
  manifest.model = StoredModelOf(spec.model());
  manifest.family = FamilyText(spec.model());
  if (job.method == &SearchedMethod()) manifest.schedule = spec.pipeline().schedule();
  manifest.fingerprint = FingerprintOf(spec, job);
  manifest.arithmetics = arithmetics;
  RunProgress digests(/*first_step=*/0, /*reporting_stage=*/0);
  digests.OnLayers({complete.layers.begin(), complete.layers.end()});
  manifest.weights_sha256 = digests.WeightsSha256(job.model.size());
  for (const v1::SavedFile& file : complete.files) manifest.files.push_back(FileOf(file));
  for (const v1::SavedFile& file : complete.attached) manifest.attached.push_back(FileOf(file));
  return manifest;
}

// -------------------------------------------------------------------------------------- the job

TrainingJob::TrainingJob(const v1::GetJobResponse& record, int64_t last_sequence, ResolvedJob job,
                         const JobRunLimits& limits, EarlierJobs& earlier,
                         CoordinatorEffects& effects)
    : JobRun(record, last_sequence, std::move(job), limits, effects),
      earlier_(earlier),
      returned_(record.summary().step() > 0 || record.result().attempts_size() > 0),
      replans_(record.result().feedback().replans()),
      wall_before_s_(record.result().wall_seconds()) {
  snapshots_.TakeOver(record);
  feedback_.GoOnFrom(record.result().feedback());
  if (record.has_planning()) planning_ = record.planning();
  if (record.has_result()) result_ = record.result();
  full_crew_ = record.full_crew();
  if (record.has_run()) TakeOver(record);
}

void TrainingJob::TakeOver(const v1::GetJobResponse& record) {
  std::vector<WorkerOffer> workers = OffersOf(record.run());
  returned_ = false;
  attempt_.emplace(spec(), resolved(), record.plan(), static_cast<int64_t>(workers.size()),
                   FoundStartOf(record.run().start()));
  attempt_->staging_tag = StagingTag(id(), epoch());
  attempt_->arithmetics = {record.run().arithmetics().begin(), record.run().arithmetics().end()};
  if (record.run().has_saved()) attempt_->saved = FoundStartOf(record.run().saved());
  attempt_->save_error = record.run().save_error();
  attempt_->save_error_step = record.run().save_error_step();
  if (!attempt_->save_error.empty()) attempt_->not_saved.insert(attempt_->save_error_step);
  const int64_t step = OpenAttempt(*result_)->last_step();
  progress_ = RunProgress(step, attempt_->topology.TellsSteps().value);
  progress_.TakeOver(record.result(), record.run());
  feedback_.Begin(spec(), attempt_->plan, attempt_->start.step, attempt_->start.extra_cuts);
  stragglers_.Begin(attempt_->plan);
  snapshots_.BeginAttempt(workers, epoch());
  adopted_ = std::make_unique<Crew>(*this, std::move(workers));
  adopted_->Adopt(record.run());
}

NextPhase TrainingJob::AfterRestart(Now now) {
  if (adopted_ != nullptr) return Adopt(*this, std::move(adopted_));
  if (!returned_) return nullptr;
  const int64_t stages = result_.has_value() ? result_->stages() : 0;
  const int64_t workers = stages > 0 ? resolved().WorkersOf(stages) : FewestWorkers();
  return BackToQueue(*this, summary().reason(), workers, /*rest_ms=*/0, now);
}

std::unique_ptr<JobPhase> TrainingJob::FirstPhase(std::unique_ptr<Crew> crew) {
  return FindStart(*this, std::move(crew));
}

int64_t TrainingJob::FewestWorkers() const {
  return std::max<int64_t>(1, resolved().WorkersOf(std::max(1, spec().pipeline().stages())));
}

absl::Status TrainingJob::TakeSpec(v1::JobSpec spec) {
  PENSTOCK_ASSIGN_OR_RETURN(ResolvedJob resolved, ResolveJob(spec));
  SetSpec(std::move(spec), std::move(resolved));
  return absl::OkStatus();
}

absl::Status TrainingJob::TakeSplit(const NewSplit& split) {
  const v1::JobSpec before = spec();
  v1::JobSpec changed = before;
  changed.mutable_pipeline()->mutable_stage_layers()->Assign(split.stage_layers.begin(),
                                                             split.stage_layers.end());
  *changed.mutable_prediction() = split.prediction;
  PENSTOCK_RETURN_IF_ERROR(TakeSpec(std::move(changed)));
  before_split_ = before;
  ++replans_;
  return absl::OkStatus();
}

bool TrainingJob::DropSplit(Now now) {
  std::optional<v1::JobSpec> before = std::exchange(before_split_, std::nullopt);
  if (!before.has_value() || progress_.step() > attempt_->start.step) return false;
  if (!TakeSpec(*std::move(before)).ok()) return false;  // it was taken before
  StopReplanning();
  Log("goes back to the split of before, and keeps it, for no step was done with the new one", now);
  return true;
}

int64_t TrainingJob::lacks() const {
  return full_crew_.workers_size() - static_cast<int64_t>(attempt_->reported_step.size());
}

absl::Status TrainingJob::Grow(const Growth& growth) {
  Grown grown{.before = spec(),
              .workers_before = static_cast<int64_t>(attempt_->reported_step.size()),
              .joined = growth.joining};
  v1::JobSpec full = spec();
  *full.mutable_pipeline() = full_crew_.pipeline();
  full.clear_prediction();
  if (full_crew_.has_prediction()) *full.mutable_prediction() = full_crew_.prediction();
  PENSTOCK_RETURN_IF_ERROR(TakeSpec(std::move(full)));
  grown_ = std::move(grown);
  before_split_.reset();  // it was another crew's
  return absl::OkStatus();
}

void TrainingJob::NoteGrowing() {
  if (v1::Attempt* const attempt = OpenAttempt(*result_)) attempt->set_ends_to_grow(true);
}

void TrainingJob::BlameForGrowth(const std::string& worker, Now now) {
  for (size_t i = 0; i < AvoidedWorkers::kBlamesMin; ++i) {
    avoided_.OnBlamed(worker, now.monotonic_ns);
  }
}

std::optional<int64_t> TrainingJob::DropGrowth(const std::string& worker, Now now) {
  std::optional<Grown> grown = std::exchange(grown_, std::nullopt);
  if (!grown.has_value() || progress_.step() > attempt_->start.step) return std::nullopt;
  const bool has_joined = std::any_of(grown->joined.begin(), grown->joined.end(),
                                      [&](const WorkerOffer& one) { return one.name == worker; });
  if (has_joined) BlameForGrowth(worker, now);
  if (!TakeSpec(std::move(grown->before)).ok()) return std::nullopt;  // it was taken before
  Log(absl::StrCat("goes back to ", grown->workers_before,
                   " workers, for no step was done with more"),
      now);
  return grown->workers_before;
}

bool TrainingJob::Recovers() const {
  if (!cancel_reason().empty()) return false;
  return penstock::Recovers(spec()) || GoesOnFromSnapshot() || AwaitsFirstSnapshot();
}

std::set<PlacePair> TrainingJob::PlacesThatTalk(int64_t workers) const {
  std::set<PlacePair> pairs;
  const auto add = [&pairs](int32_t a, int32_t b) {
    if (a != b) pairs.insert(std::minmax(a, b));
  };
  const bool is_like_last = attempt_.has_value() && attempt_->topology.workers == workers;
  // As in Collectives::Open.
  if (!is_like_last || resolved().clip.kind == Clip::Kind::kGlobalNorm ||
      resolved().stop_after > 0) {
    for (int32_t a = 0; a < workers; ++a) {
      for (int32_t b = a + 1; b < workers; ++b) add(a, b);
    }
    return pairs;
  }
  const Topology& topology = attempt_->topology;
  for (const Edge& edge : topology.edges) {
    add(topology.worker(edge.from).value, topology.worker(edge.to).value);
  }
  for (const ReduceGroup& group : topology.groups) {
    for (const StageId a : group.stages) {
      for (const StageId b : group.stages) add(topology.worker(a).value, topology.worker(b).value);
    }
  }
  return pairs;
}

std::string TrainingJob::AdviceToGoOn() const {
  return result_.has_value() ? penstock::AdviceToGoOn(spec(), *result_) : "";
}

bool TrainingJob::AwaitsFirstSnapshot() const {
  const SnapshotRule rule = SnapshotRuleOf(spec(), resolved());
  if (!rule.any() || !result_.has_value() || result_->snapshot_step() > 0) return false;
  // An earlier process has found that the job may begin again, and was restarted since.
  if (!attempt_.has_value()) return recovering();
  if (attempt_->reported_step.size() < 2) return false;
  const auto next = [&](int64_t step) {
    const auto cut = std::upper_bound(attempt_->cuts.begin(), attempt_->cuts.end(), step);
    const bool is_kept = rule.at_cuts && cut != attempt_->cuts.end();
    return std::min(is_kept ? *cut : resolved().steps, rule.Next(step));
  };
  // It is complete a little after its step; by the next one it must be.
  const int64_t first = next(attempt_->start.step);
  return first < resolved().steps && progress_.step() < next(first);
}

bool TrainingJob::GoesOnFromSnapshot() const {
  return snapshots_.Latest() != nullptr && spec().recovery().mode() != "off";
}

FoundStart TrainingJob::LaterOf(FoundStart start) const {
  if (!GoesOnFromSnapshot()) return start;
  const FoundStart& latest = snapshots_.Latest()->start;
  return latest.step > start.step ? latest : start;
}

bool TrainingJob::OnKept(int32_t worker_index, const v1::LayersKept& kept) {
  const std::optional<CheckpointTracker::Complete> complete = snapshots_.OnKept(worker_index, kept);
  if (!complete.has_value()) return false;
  Manifest manifest = attempt_->ManifestOf(*complete);
  manifest.job_id = id();
  manifest.epoch = epoch();
  snapshots_.Add(id(), manifest);
  result_->set_snapshot_step(complete->step);
  return true;
}

void TrainingJob::OnGone(const std::string& worker, uint64_t incarnation) {
  snapshots_.OnGone(worker, incarnation);
}

void TrainingJob::OnOtherProcess(const std::string& worker, uint64_t incarnation) {
  snapshots_.OnRegistered(worker, incarnation);
}

void TrainingJob::EndAttempt(v1::AttemptCause cause, const std::string& worker,
                             const std::string& message, Now now) {
  if (!result_.has_value()) return;
  if (v1::Attempt* const attempt = OpenAttempt(*result_)) {
    attempt->set_epoch(epoch());
    attempt->set_last_step(progress_.step());
  }
  EndAttemptRecord(cause, worker, message, now.unix_ms, *result_);
  // One that ended in good order has shown that its split, or its crew, works.
  if (!IsFailure(cause) && cause != v1::ATTEMPT_CAUSE_GREW) grown_.reset();
  if (!IsFailure(cause) && cause != v1::ATTEMPT_CAUSE_NEW_SPLIT) before_split_.reset();
  if (IsFailure(cause) && !worker.empty()) avoided_.OnBlamed(worker, now.monotonic_ns);
}

void TrainingJob::NoteFailure(Now now) {
  if (result_.has_value()) NoteDetected(now.unix_ms, *result_);
}

FailedSearches TrainingJob::OnSearchFailed(Now now) {
  if (failed_searches_++ == 0) search_failed_ns_ = now.monotonic_ns;
  return {.count = failed_searches_, .since_ms = (now.monotonic_ns - search_failed_ns_) / kNsPerMs};
}

void TrainingJob::SetReturned() {
  // Makes it go on from there also if another process takes it from the queue.
  v1::JobSpec resumed = spec();
  ResumeOwn(result_.value_or(v1::JobResult()), *resumed.mutable_checkpoint());
  SetSpec(std::move(resumed), ResolvedJob(resolved()));
  returned_ = true;
}

absl::Status TrainingJob::BeginAttempt(const std::vector<WorkerOffer>& workers, FoundStart start,
                                       Now now) {
  const auto stopwatch_ns = [this] { return limits().stopwatch_ns ? limits().stopwatch_ns() : 0; };
  const int64_t began_ns = stopwatch_ns();
  PENSTOCK_ASSIGN_OR_RETURN(v1::Plan plan,
                            MakePlan(spec(), resolved(), workers, start.step, start.extra_cuts));
  const bool is_first = !attempt_.has_value();
  attempt_.emplace(spec(), resolved(), std::move(plan), static_cast<int64_t>(workers.size()),
                   std::move(start));
  const int32_t reporting_stage = attempt_->topology.TellsSteps().value;
  if (!is_first) {
    const int64_t first_step = attempt_->start.step;
    progress_.BeginAgain(first_step, first_step * resolved().microbatches, reporting_stage);
  } else {
    progress_ = RunProgress(attempt_->start.step, reporting_stage);
    if (returned_ && result_.has_value()) progress_.GoOnFrom(*result_);
  }
  feedback_.Begin(spec(), attempt_->plan, attempt_->start.step, attempt_->start.extra_cuts);
  stragglers_.Begin(attempt_->plan);
  summary().set_step(progress_.told_step());

  if (static_cast<int>(workers.size()) >= full_crew_.workers_size()) {
    full_crew_.clear_workers();
    for (const WorkerOffer& worker : workers) full_crew_.add_workers(worker.name);
    *full_crew_.mutable_pipeline() = spec().pipeline();
    full_crew_.clear_prediction();
    if (spec().has_prediction()) *full_crew_.mutable_prediction() = spec().prediction();
  }

  if (!result_.has_value()) result_.emplace();
  BeginAttemptRecord(epoch(), attempt_->start.step, *result_);
  result_->set_job(spec().name());
  result_->set_job_id(id());
  result_->set_method(spec().pipeline().method());
  result_->set_stages(static_cast<int32_t>(attempt_->stages));
  result_->set_microbatches(resolved().microbatches);
  if (attempt_->start.snapshot.empty()) result_->set_checkpoint(attempt_->start.checkpoint);
  // Delays are those of the static order. They are a statistic: where they cannot be predicted, the job runs without.
  if (resolved().order == Order::kStatic) {
    const absl::StatusOr<BlockDelay> delay =
        PredictBlockDelay(*resolved().method, ScheduleOptionsOf(resolved(), attempt_->topology));
    if (delay.ok()) {
      WriteBlockDelay(*delay, delay->max, *result_->mutable_block_delay(),
                      *result_->mutable_block_delays());
    }
  }
  result_->set_planning_seconds(static_cast<double>(stopwatch_ns() - began_ns) * 1e-9);

  v1::JobEvent event;
  *event.mutable_planned() = attempt_->plan;
  Publish(std::move(event), now);
  Save();
  return absl::OkStatus();
}

void TrainingJob::OnTraining(Now now) {
  attempt_->AskLater(now);
  attempt_->save_due_ns = now.monotonic_ns + limits().save_interval_ms * kNsPerMs;
  result_->set_last_step_unix_ms(now.unix_ms);
  summary().clear_reason();  // it has waited for its workers
  ResumeAttemptRecords(now.unix_ms, *result_);
  const bool goes_on = std::exchange(returned_, false);
  if (grown_.has_value() && !std::exchange(grown_->trains, true)) {
    result_->set_growths(result_->growths() + 1);
  }
  // It is counted before the state is saved: the next save may be hours away.
  if (goes_on) result_->set_recoveries(result_->recoveries() + 1);
  SetRunning(now);
  if (goes_on) Log(absl::StrCat("goes on after step ", attempt_->start.step), now);
}

void TrainingJob::OnCommitted(const CheckpointCommitted& committed, Now now) {
  if (!attempt_.has_value()) return;
  const int64_t step = committed.step;
  attempt_->commit_due_ns.erase(step);
  if (!committed.checkpoint.ok()) {
    attempt_->checkpoints.NotCommitted(step);
    attempt_->saving.erase(step);
    NoteSaveError(step, std::string(committed.checkpoint.status().message()), now);
    DiscardGivenUp();
    return;
  }
  const auto& [directory, note] = *committed.checkpoint;
  attempt_->checkpoints.StopAwaiting(step);
  attempt_->saved = attempt_->saving[step];
  attempt_->saved.checkpoint = directory;
  attempt_->saving.erase(step);
  result_->set_checkpoint(directory);
  v1::JobEvent event;
  event.mutable_checkpoint_done()->set_step(step);
  event.mutable_checkpoint_done()->set_directory(directory);
  Publish(std::move(event), now);
  if (!note.empty()) Log(note, now);
  NoteSaved(step, now);
  Save();
}

std::vector<int64_t> TrainingJob::GiveUpOverdueCommits(Now now) {
  std::vector<int64_t> given_up;
  std::erase_if(attempt_->commit_due_ns, [&](const auto& due) {
    const auto& [step, due_ns] = due;
    if (now.monotonic_ns < due_ns) return false;
    attempt_->checkpoints.StopAwaiting(step);
    NoteSaveError(
        step,
        absl::StrCat("nothing was heard from the disk of ", spec().checkpoint().directory(),
                     " for ", limits().commit_timeout_ms / 1000,
                     " s, where it is committed; see whether it hangs"),
        now);
    given_up.push_back(step);
    return true;
  });
  return given_up;
}

void TrainingJob::OnCrewGone() {
  if (!attempt_.has_value() || attempt_->staging_tag.empty() || !IsSaved()) return;
  Add(DiscardStaged{.root = spec().checkpoint().directory(),
                    .tag = attempt_->staging_tag,
                    .step = std::numeric_limits<int64_t>::max()});
}

std::optional<int64_t> TrainingJob::DiscardGivenUp() {
  const std::optional<int64_t> step = attempt_->checkpoints.TakeGivenUp();
  if (!step.has_value()) return std::nullopt;
  Add(DiscardStaged{
      .root = spec().checkpoint().directory(), .tag = attempt_->staging_tag, .step = *step});
  return step;
}

void TrainingJob::NoteSaveError(int64_t step, const std::string& error, Now now) {
  const std::string text = CleanUtf8(
      absl::StrCat("the checkpoint of step ", step, " could not be saved: ", error), kTextBytesMax);
  if (attempt_->save_error.empty() || step >= attempt_->save_error_step) {
    attempt_->save_error = text;
    attempt_->save_error_step = step;
  }
  std::set<int64_t>& not_saved = attempt_->not_saved;
  const bool is_first = not_saved.empty();
  not_saved.insert(step);  // it may be there: overdue, and failed now
  if (not_saved.size() > kNotSavedMax) not_saved.erase(not_saved.begin());
  if (!is_first) return;
  Log(absl::StrCat(text, "; the older ones stay, and the log tells when one is saved again"), now);
}

void TrainingJob::NoteSaved(int64_t step, Now now) {
  if (step >= attempt_->save_error_step) attempt_->save_error.clear();
  std::set<int64_t>& not_saved = attempt_->not_saved;
  if (not_saved.empty()) return;
  not_saved.erase(step);
  if (!not_saved.empty() && *not_saved.rbegin() > step) return;  // a later one is missing
  const size_t missing = std::exchange(not_saved, {}).size();
  const char* const at_least = missing == kNotSavedMax ? "at least " : "";
  Log(absl::StrCat(
          "checkpoints are saved again, from step ", step, " on",
          missing > 0 ? absl::StrCat("; ", at_least, missing, " before could not be") : ""),
      now);
}

void TrainingJob::WriteTo(v1::GetJobResponse& record) const {
  if (!ended()) snapshots_.WriteTo(record);
  if (planning_.has_value()) *record.mutable_planning() = *planning_;
  if (full_crew_.workers_size() > 0) *record.mutable_full_crew() = full_crew_;
  if (!result_.has_value()) return;
  v1::JobResult& result = *record.mutable_result() = *result_;
  if (!attempt_.has_value()) return;
  *record.mutable_plan() = attempt_->plan;
  progress_.WriteTo(result);
  const double flops_per_second = result.samples_per_second() * attempt_->sample_flops;
  result.set_model_flops_per_second(flops_per_second);
  result.clear_mfu();
  if (result.per_stage_size() < attempt_->plan.stages_size()) {
    result.clear_product_flops_per_second();  // of all its workers, or of none
  }
  if (flops_per_second > 0 && result.product_flops_per_second() > 0) {
    result.set_mfu(flops_per_second / result.product_flops_per_second());
  }
  if (v1::Attempt* const open = OpenAttempt(result)) {
    open->set_epoch(epoch());
    open->set_last_step(progress_.step());
  }
  feedback_.WriteTo(*result.mutable_feedback());
  result.mutable_feedback()->set_replans(replans_);
  attempt_->block_delay.WriteTo(result);
  result.set_weights_sha256(progress_.WeightsSha256(resolved().model.size()));
  const int64_t until_ns = attempt_->done_ns > 0 ? attempt_->done_ns
                           : ended()             ? ended_ns()
                                                 : progressed_ns();
  if (started_ns() > 0 && until_ns > started_ns()) {
    result.set_wall_seconds(wall_before_s_ + 1e-9 * static_cast<double>(until_ns - started_ns()));
  }
  const std::vector<int64_t> extra = attempt_->ExtraCutsUpTo(resolved().steps);
  result.mutable_extra_cuts()->Assign(extra.begin(), extra.end());
}

absl::Status TrainingJob::CheckEvent(int32_t worker_index, const v1::RunEvent& event) const {
  return attempt_.has_value() ? CheckTrainingEvent(event, *attempt_, worker_index)
                              : absl::OkStatus();
}

bool TrainingJob::MayTake(const v1::RunEvent& event) const {
  if (!attempt_.has_value()) return true;
  // The directory may not be the job's again.
  const bool is_of_checkpoint =
      event.has_layers_saved() || event.has_save_failed() || event.has_run_done();
  if (attempt_->adopting && is_of_checkpoint) return false;
  const CheckpointTracker& checkpoints = attempt_->checkpoints;
  if (event.has_layers_saved()) return checkpoints.MayBegin(event.layers_saved().step());
  return !event.has_save_failed() || checkpoints.MayBegin(event.save_failed().step());
}

absl::Status TrainingJob::CheckSteps() const {
  const int64_t step = progress_.step();
  if (!attempt_.has_value() || (attempt_->start.step <= step && step <= resolved().steps)) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("is at step ", step));
}

}  // namespace penstock
