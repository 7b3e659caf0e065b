#include "coordinator/job_planning.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/utf8.h"
#include "coordinator/job_run.h"
#include "job/defaults.h"
#include "job/open_job.h"
#include "job/profile/cluster_profile.h"
#include "planner/job/measured_cluster.h"
#include "schedule/catalog/catalog.h"

namespace penstock {
namespace {

// The time that each layer and size is measured for.
constexpr double kSecondsOfAMeasurement = 0.1;
// The time that the search for candidates may take.
constexpr double kBudgetOfASplitS = 2.0;
constexpr double kBudgetOfAMethodS = 5.0;

double SecondsSince(int64_t then_ns, Now now) {
  return 1e-9 * static_cast<double>(now.monotonic_ns - then_ns);
}

v1::ProfileSpec WhatIsMeasured(const v1::JobSpec& spec, const ResolvedJob& job) {
  v1::ProfileSpec profile;
  const std::vector<int64_t> samples =
      MethodIsOpen(spec) ? SizesAround(job) : std::vector<int64_t>{job.microbatch_samples};
  profile.mutable_samples()->Assign(samples.begin(), samples.end());
  profile.set_seconds(kSecondsOfAMeasurement);
  return profile;
}

// The candidate's job for a heat of `steps`: nothing is validated or saved, and rates run as in the whole job.
v1::JobSpec HeatOf(const v1::JobSpec& spec, int64_t steps) {
  v1::JobSpec heat = spec;
  v1::TrainingSpec& training = *heat.mutable_training();
  v1::LearningRateSpec& rate = *training.mutable_learning_rate();
  if (!rate.has_decay_steps()) rate.set_decay_steps(training.steps());
  training.set_steps(std::min(steps, training.steps()));
  heat.mutable_validation()->clear_every_steps();
  heat.mutable_validation()->clear_stop_after();
  heat.clear_checkpoint();
  heat.clear_step_records();
  heat.clear_prediction();
  heat.clear_feedback();
  heat.clear_recovery();
  FillDefaults(heat);
  return heat;
}

v1::PlannedCandidate RecordOf(const JudgedCandidate& judged, const Cluster& cluster) {
  v1::PlannedCandidate entry;
  entry.set_name(NameOf(judged.candidate));
  entry.set_method(judged.candidate.method);
  for (const LayerRange& range : judged.layers) entry.add_stage_layers(range.count);
  entry.mutable_layer_order()->Assign(judged.candidate.layer_order.begin(),
                                      judged.candidate.layer_order.end());
  for (const int worker : judged.workers) entry.add_workers(cluster.workers[worker].name);
  entry.set_rejected(CleanUtf8(judged.rejected, JobRun::kTextBytesMax));
  entry.set_step_seconds(judged.step_s);
  entry.set_bubble_ratio(judged.bubble_ratio);
  entry.set_memory_bytes(judged.most_memory());
  entry.set_staleness_max(judged.most_staleness());
  return entry;
}

v1::RaceRecord RecordOf(const RacerResult& result) {
  v1::RaceRecord record;
  record.set_rounds(result.rounds);
  record.set_steps(result.steps);
  record.set_loss(result.loss);
  record.set_loss_error(result.loss_error);
  if (result.reached_s.has_value()) record.set_reached_seconds(*result.reached_s);
  record.set_failed(CleanUtf8(result.failed, JobRun::kTextBytesMax));
  ToMessage(result.curve, *record.mutable_curve());
  return record;
}

// Returns whether its delays are sampled.
bool IsForTheory(const std::string& method) {
  const absl::StatusOr<const Method*> found = FindMethod(absl::string_view(method));
  return !found.ok() || (*found)->weights->draws;
}

}  // namespace

JobPlanning::JobPlanning(std::string job_id, v1::JobSpec spec, ResolvedJob draft,
                         std::vector<WorkerOffer> workers, int64_t epoch,
                         const JobRunLimits& limits, EarlierJobs& earlier)
    : job_id_(std::move(job_id)),
      spec_(std::move(spec)),
      draft_(std::move(draft)),
      workers_(std::move(workers)),
      limits_(limits),
      earlier_(earlier),
      epoch_(epoch),
      profile_spec_(WhatIsMeasured(spec_, draft_)),
      known_(profile_spec_, draft_, workers_) {}

JobPlanning::~JobPlanning() = default;

bool JobPlanning::method_is_open() const { return MethodIsOpen(spec_); }

void JobPlanning::Begin(Now now) {
  asked_ns_ = now.monotonic_ns;
  if (workers_.size() > kProfileWorkersMax) {
    return GiveUp(absl::StrCat("links between more than ", kProfileWorkersMax,
                               " workers are not measured, and the job has ", workers_.size()));
  }
  answer_due_ns_ = now.monotonic_ns + limits_.plan_timeout_ms * kNsPerMs;
  effects_.push_back(FindLayerTimes{job_id_, known_.Keys()});
}

void JobPlanning::OnLayerTimesFound(const std::vector<std::optional<v1::DeviceProfile>>& known,
                                    Now now) {
  if (stopped_ || input_ != nullptr || run_ != nullptr || outcome_.has_value()) return;
  answer_due_ns_.reset();
  known_.TakeKnown(known);
  const std::optional<std::vector<v1::ProfiledLink>> links = earlier_.links.Find(workers_);
  if (!known_.KnowsLayers() || !links.has_value()) return Measure(now);
  v1::ClusterProfile profile = known_.Result();
  profile.mutable_links()->Assign(links->begin(), links->end());
  Log("the times of its layers and links are known from an earlier job");
  OnMeasured(profile, now);
}

void JobPlanning::Measure(Now now) {
  v1::GetJobResponse record;
  *record.mutable_spec() = DraftOf(spec_);
  MakeProfileRecord(profile_spec_, record);
  Log(absl::StrCat("measures ", known_.KnowsLayers() ? "" : "its layers and ", "the links of ",
                   workers_.size(), " workers"));
  Run("profile", std::move(record), draft_, workers_, now);
}

void JobPlanning::OnMeasured(const v1::ClusterProfile& profile, Now now) {
  earlier_.links.Keep(workers_, profile);
  MeasuredCluster measured = ClusterOfProfile(profile);
  input_ = std::make_shared<PlanningInput>(PlanningInput{
      .spec = spec_,
      .profile = std::move(measured.profile),
      .cluster = std::move(measured.cluster),
      .keeps_order = spec_.pipeline().worker_names_size() > 0,
  });
  if (method_is_open()) {
    input_->spec.mutable_pipeline()->Clear();  // each candidate says its own
  }
  AskForCandidates(now);
}

void JobPlanning::AskForCandidates(Now now) {
  asked_ns_ = now.monotonic_ns;
  PlanJobOptions options = {.as_dawnpiper = spec_.planning().planner() == "dawnpiper",
                            .only_placement = !method_is_open()};
  if (!method_is_open()) options.methods = {spec_.pipeline().method()};
  if (spec_.pipeline().has_stages()) options.stages = {spec_.pipeline().stages()};
  const double budget_s = method_is_open() ? kBudgetOfAMethodS : kBudgetOfASplitS;
  answer_due_ns_ =
      now.monotonic_ns + static_cast<int64_t>(budget_s * 1e9) + limits_.plan_timeout_ms * kNsPerMs;
  effects_.push_back(JudgeCandidates{
      .job_id = job_id_, .input = input_, .options = std::move(options), .budget_s = budget_s});
}

void JobPlanning::OnCandidates(const absl::StatusOr<JobPlan>& plan, Now now) {
  if (stopped_ || input_ == nullptr || plan_.has_value() || outcome_.has_value()) return;
  answer_due_ns_.reset();
  if (!plan.ok()) return GiveUp(std::string(plan.status().message()));
  plan_ = *plan;
  record_.set_choosing_seconds(SecondsSince(asked_ns_, now));
  record_.set_in_time(plan_->in_time);
  if (!plan_->fastest.has_value()) return EndWithoutCandidate();
  if (method_is_open()) return BeginRace(now);
  const bool are_as_late = spec_.pipeline().has_stages() ||
                           plan_->candidates[*plan_->fastest].pattern.synchronous ||
                           IsForTheory(spec_.pipeline().method());
  if (are_as_late) {
    return Choose(*plan_->fastest, "the shortest step of its method on these workers", now);
  }
  record_.set_setup_sha256(SetupOf(spec_));
  ChooseByExpectedTime("more stages mean more delay", now);
}

void JobPlanning::EndWithoutCandidate() {
  const auto lacking = std::find_if(plan_->candidates.begin(), plan_->candidates.end(),
                                    [](const JudgedCandidate& c) { return c.lacks_memory; });
  if (lacking != plan_->candidates.end()) {
    outcome_ = Outcome{.failed = absl::ResourceExhaustedError(absl::StrCat(
                           "it does not fit into the workers: ", NameOf(lacking->candidate), " ",
                           lacking->rejected,
                           "; more workers, smaller microbatches or a smaller model would do"))};
    return;
  }
  GiveUp(plan_->candidates.empty() ? "there is no way to place it on its workers"
                                   : plan_->candidates.front().rejected);
}

void JobPlanning::GiveUp(const std::string& why) {
  if (method_is_open()) {
    outcome_ =
        Outcome{.failed = absl::FailedPreconditionError(absl::StrCat("no method can run: ", why))};
  } else {
    outcome_ = Outcome{.estimate_why = why};
  }
}

// ------------------------------------------------------------------------------------------- the race

void JobPlanning::BeginRace(Now now) {
  racers_ = CandidatesToRace(*plan_, /*with_drawn=*/false);
  if (racers_.empty()) {
    return GiveUp("only methods with sampled delays can run, which are for theory");
  }
  const double limit_s =
      spec_.planning().has_race_seconds() ? spec_.planning().race_seconds() : kRaceSecondsDefault;
  const JudgedCandidate& fastest = plan_->candidates[racers_.front()];
  record_.set_setup_sha256(SetupOf(spec_));
  if (racers_.size() == 1 && fastest.pattern.synchronous) {
    return Choose(racers_.front(), "the shortest step; all that can run train alike", now);
  }
  if (limit_s <= 0) return ChooseByExpectedTime("planning.race_seconds is 0", now);
  std::vector<double> steps_s;
  for (const int racer : racers_) steps_s.push_back(plan_->candidates[racer].step_s);
  RaceOptions options = RoundsOf(fastest);
  if (spec_.planning().has_race_until_loss()) {
    options.until_loss = spec_.planning().race_until_loss();
  }
  race_.emplace(std::move(steps_s), std::move(options));
  asked_ns_ = now.monotonic_ns;
  race_deadline_ns_ = now.monotonic_ns + static_cast<int64_t>(limit_s * 1e9);
  Log(absl::StrFormat("%d candidates race for at most %g s", racers_.size(), limit_s));
  NextHeat(now);
}

void JobPlanning::NextHeat(Now now) {
  if (race_is_over_ || now.monotonic_ns >= *race_deadline_ns_) race_->End();
  heat_ = race_->Next();
  if (!heat_.has_value()) return ChooseByRace(now);
  const JudgedCandidate& judged = plan_->candidates[racers_[heat_->racer]];
  losses_.clear();
  v1::GetJobResponse record;
  *record.mutable_spec() = HeatOf(judged.spec, heat_->steps);
  record.mutable_summary()->set_method(judged.candidate.method);
  record.mutable_summary()->set_steps(record.spec().training().steps());
  absl::StatusOr<ResolvedJob> job = ResolveJob(record.spec());
  if (!job.ok()) {
    race_->OnTrained(job.status());
    return NextHeat(now);
  }
  Log(absl::StrCat("race: round ", heat_->round + 1, ", ", heat_->at + 1, " of ", heat_->racers,
                   ": ", NameOf(judged.candidate), " trains ", record.spec().training().steps(),
                   " steps"));
  Run(absl::StrCat("heat-", ++heats_), std::move(record), *std::move(job), WorkersOf(judged), now);
}

void JobPlanning::EndHeat(Now now) {
  if (race_is_over_) return NextHeat(now);
  if (!run_error_.empty()) {
    race_->OnTrained(absl::UnknownError(run_error_));
  } else {
    race_->OnTrained(losses_);
  }
  NextHeat(now);
}

void JobPlanning::ChooseByRace(Now now) {
  LearnFromRace();
  const RaceResult result = race_->Result();
  record_.set_racing_seconds(SecondsSince(asked_ns_, now));
  record_.set_in_time(record_.in_time() && result.in_time);
  if (!result.winner.has_value()) {
    outcome_ = Outcome{.failed = absl::FailedPreconditionError(absl::StrCat(
                           "every candidate of the race failed: ", result.racers[0].failed))};
    return;
  }
  const RacerResult& winner = result.racers[*result.winner];
  std::string reason =
      absl::StrFormat("a race: loss %.4g after %d steps", winner.loss, winner.steps);
  if (winner.reached_s.has_value()) {
    reason = absl::StrFormat("a race: loss %g after %.4g s", spec_.planning().race_until_loss(),
                             *winner.reached_s);
  } else if (result.rounds == 0) {
    return ChooseByExpectedTime("the race was over before its first round", now);
  }
  Choose(racers_[*result.winner], reason, now);
}

// --------------------------------------------------------------------------------------- the outcome

void JobPlanning::ChooseByExpectedTime(const std::string& why, Now now) {
  const StepsToLoss model(earlier_.steps.Runs());
  const std::string& setup = record_.setup_sha256();
  double progress = 1;  // as far as the job trains
  if (spec_.planning().has_race_until_loss()) {
    progress = model.ProgressAt(setup, spec_.planning().race_until_loss()).value_or(progress);
  }
  // Where a race has begun, those that have not failed in it are eligible; else all, with any number of stages.
  std::vector<int> eligible;
  if (race_.has_value()) {
    const RaceResult result = race_->Result();
    for (size_t i = 0; i < racers_.size(); ++i) {
      if (result.racers[i].failed.empty()) eligible.push_back(racers_[i]);
    }
  } else {
    for (int at = 0; at < static_cast<int>(plan_->candidates.size()); ++at) {
      const JudgedCandidate& judged = plan_->candidates[at];
      if (judged.runs() && !IsForTheory(judged.candidate.method)) eligible.push_back(at);
    }
  }
  expected_ = penstock::ChooseByExpectedTime(*plan_, eligible, model, setup, progress,
                                             /*one_method=*/!method_is_open());
  Choose(expected_->candidate, absl::StrCat(expected_->reason, "; ", why), now);
}

void JobPlanning::LearnFromRace() {
  const RaceResult result = race_->Result();
  v1::GetJobResponse record;
  record.mutable_summary()->set_job_id(job_id_);
  *record.mutable_spec() = spec_;
  v1::JobPlanning& planning = *record.mutable_planning();
  planning.set_setup_sha256(record_.setup_sha256());
  for (size_t i = 0; i < racers_.size(); ++i) {
    v1::PlannedCandidate& entry = *planning.add_candidates();
    *entry.mutable_update_pattern() = ToMessage(plan_->candidates[racers_[i]].pattern);
    *entry.mutable_race() = RecordOf(result.racers[i]);
  }
  earlier_.steps.Learn(record);
}

void JobPlanning::Choose(int candidate, const std::string& reason, Now) {
  const JudgedCandidate& judged = plan_->candidates[candidate];
  record_.set_reason(reason);
  std::map<int, v1::RaceRecord> raced;
  if (race_.has_value()) {
    const RaceResult result = race_->Result();
    for (size_t i = 0; i < racers_.size(); ++i) raced[racers_[i]] = RecordOf(result.racers[i]);
  }
  std::set<std::pair<std::string, bool>> kinds;
  const auto add = [&](int at) {
    const JudgedCandidate& one = plan_->candidates[at];
    if (!kinds.emplace(one.candidate.method, one.candidate.replicas.empty()).second) return;
    v1::PlannedCandidate& entry = *record_.add_candidates() = RecordOf(one, input_->cluster);
    if (method_is_open() && one.runs()) {
      *entry.mutable_update_pattern() = ToMessage(one.pattern);
    }
    if (const auto found = raced.find(at); found != raced.end()) {
      *entry.mutable_race() = found->second;
    }
    if (expected_.has_value() && expected_->times.contains(at)) {
      *entry.mutable_steps_factor() = ToMessage(expected_->times.at(at).factor);
    }
  };
  add(candidate);
  std::vector<int> order(plan_->candidates.size());  // the best of each kind first
  std::iota(order.begin(), order.end(), 0);
  if (!race_.has_value() && expected_.has_value()) {
    std::stable_sort(order.begin(), order.end(), [this](int a, int b) {
      return expected_->SecondsOf(a) < expected_->SecondsOf(b);
    });
  }
  for (const int at : order) add(at);

  Chosen chosen = {.spec = judged.spec, .workers = WorkersOf(judged)};
  *chosen.spec.mutable_checkpoint() = spec_.checkpoint();
  *chosen.spec.mutable_step_records() = spec_.step_records();
  *chosen.spec.mutable_recovery() = spec_.recovery();
  *chosen.spec.mutable_pipeline()->mutable_worker_names() = spec_.pipeline().worker_names();
  if (method_is_open()) {
    chosen.spec.clear_planning();  // what it said was about the choice
    FillDefaults(chosen.spec);
  }
  v1::JobEvent event;
  *event.mutable_plan_chosen() = record_;
  events_.push_back(std::move(event));
  const auto& layer_order = judged.candidate.layer_order;
  if (!layer_order.empty()) {
    Log(absl::StrCat("planned: the layers in the order ", absl::StrJoin(layer_order, ", ")));
  }
  Log(absl::StrFormat("planned: %s, layers %s, a step of %.4g s is predicted; chosen by %s",
                      NameOf(judged.candidate),
                      absl::StrJoin(chosen.spec.pipeline().stage_layers(), "-"), judged.step_s,
                      reason));
  chosen.record = record_;
  outcome_ = Outcome{.chosen = std::move(chosen)};
}

std::vector<WorkerOffer> JobPlanning::WorkersOf(const JudgedCandidate& judged) const {
  std::vector<WorkerOffer> offers;
  for (const int worker : judged.workers) {
    const std::string& name = input_->cluster.workers[worker].name;
    offers.push_back(*std::find_if(workers_.begin(), workers_.end(),
                                   [&](const WorkerOffer& offer) { return offer.name == name; }));
  }
  return offers;
}

// ------------------------------------------------------------------------------- runs of its own

void JobPlanning::Run(const std::string& suffix, v1::GetJobResponse record, ResolvedJob job,
                      const std::vector<WorkerOffer>& workers, Now now) {
  v1::JobSummary& summary = *record.mutable_summary();
  summary.set_job_id(absl::StrCat(job_id_, ".", suffix));
  summary.set_name(spec_.name());
  summary.set_state(v1::JOB_STATE_QUEUED);
  run_error_.clear();
  run_ = JobRun::Make(record, 0, std::move(job), limits_, earlier_, run_effects_);
  run_->SetOfPlanning();
  run_->BeginAfter(epoch_);
  run_->Begin(workers, now);
  GoOn(now);
}

void JobPlanning::TakeFromRun(Now now) {
  // An answer given here may lead to more effects.
  while (!run_effects_.empty()) {
    for (CoordinatorEffect& effect : std::exchange(run_effects_, {})) {
      if (const auto* published = std::get_if<PublishEvent>(&effect)) {
        if (published->event.has_profile_progress()) {
          events_.push_back(published->event);
        } else if (published->event.has_step_done()) {
          losses_.push_back(published->event.step_done().loss());
        }
      } else if (std::holds_alternative<GatherTimeline>(effect)) {
        run_->OnAnswer(TimelineGathered(), now);
      } else if (!std::holds_alternative<SaveJob>(effect) &&
                 !std::holds_alternative<GatherPasses>(effect)) {  // nobody reads its block delay
        effects_.push_back(std::move(effect));
      }
    }
  }
}

void JobPlanning::TakeNotStoppedFromRun() {
  std::vector<NotStopped> left = run_->TakeNotStopped();
  if (left.empty()) return;
  const auto name_of = [](std::string* out, const NotStopped& one) { out->append(one.worker); };
  if (lost_.empty()) {
    lost_ =
        absl::StrCat("run ", run_->id(), " was not stopped within ", limits_.stop_timeout_ms / 1000,
                     " s by worker ", absl::StrJoin(left, ", ", name_of));
  }
  not_stopped_.insert(not_stopped_.end(), left.begin(), left.end());
}

void JobPlanning::GoOn(Now now) {
  if (run_ == nullptr) return;
  epoch_ = std::max(epoch_, run_->epoch());  // a worker may have seen a later one
  TakeFromRun(now);
  if (!run_->Over()) return;
  const v1::GetJobResponse record = run_->Record();
  run_error_ = record.summary().error();
  if (run_->unreachable() && lost_.empty()) lost_ = run_error_;
  TakeNotStoppedFromRun();
  run_.reset();
  if (stopped_ || outcome_.has_value()) return;
  if (!lost_.empty()) {
    outcome_ = Outcome{.lost = lost_};
  } else if (heat_.has_value()) {
    EndHeat(now);
  } else if (run_error_.empty()) {
    record_.set_measuring_seconds(SecondsSince(asked_ns_, now));
    OnMeasured(record.profile(), now);
  } else {
    GiveUp(run_error_);
  }
}

void JobPlanning::OnWorkerLost(const WorkerOffer& worker, const std::string& reason, Now now) {
  const bool is_ours = std::any_of(workers_.begin(), workers_.end(), [&](const WorkerOffer& offer) {
    return offer.name == worker.name && offer.incarnation == worker.incarnation;
  });
  if (!is_ours) return;
  lost_ = absl::StrCat("worker ", worker.name, " was lost: ", reason);
  if (run_ != nullptr) {
    run_->OnWorkerLost(worker.name, worker.incarnation, reason, now);
    run_->Stop(lost_, now);
    return GoOn(now);
  }
  if (!stopped_ && !outcome_.has_value()) outcome_ = Outcome{.lost = lost_};
}

void JobPlanning::Stop(const std::string& reason, Now now) {
  stopped_ = true;
  if (run_ == nullptr) return;
  run_->Stop(reason, now);
  GoOn(now);
}

void JobPlanning::Tick(Now now) {
  if (run_ != nullptr) run_->Tick(now);
  if (race_deadline_ns_.has_value() && now.monotonic_ns >= *race_deadline_ns_ && !race_is_over_) {
    race_is_over_ = true;
    if (run_ != nullptr) run_->Stop("the time of the race is over", now);
  }
  if (answer_due_ns_.has_value() && now.monotonic_ns >= *answer_due_ns_) OnNoAnswer(now);
  GoOn(now);
}

void JobPlanning::OnNoAnswer(Now now) {
  answer_due_ns_.reset();
  if (stopped_ || outcome_.has_value()) return;
  if (input_ == nullptr) return Measure(now);
  GiveUp(absl::StrFormat("the search for a plan did not end within %.0f s",
                         SecondsSince(asked_ns_, now)));
}

std::vector<std::string> JobPlanning::InUse() const {
  return run_ == nullptr ? std::vector<std::string>() : run_->InUse();
}

std::optional<int64_t> JobPlanning::NextDeadlineNs() const {
  std::optional<int64_t> next;
  if (run_ != nullptr) next = run_->NextDeadlineNs();
  if (race_deadline_ns_.has_value() && !race_is_over_ && !outcome_.has_value()) {
    next = std::min(next.value_or(*race_deadline_ns_), *race_deadline_ns_);
  }
  if (answer_due_ns_.has_value()) {
    next = std::min(next.value_or(*answer_due_ns_), *answer_due_ns_);
  }
  return next;
}

void JobPlanning::Log(const std::string& text) {
  v1::JobEvent event;
  event.set_log(CleanUtf8(text, JobRun::kTextBytesMax));
  events_.push_back(std::move(event));
}

}  // namespace penstock
