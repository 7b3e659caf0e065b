// JobRun: what it measures, held against its prediction, and the new split that this may lead to.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/job_run.h"

namespace penstock {
namespace {

// A new split is kept for so many windows of feedback.drift_steps, whatever is measured.
constexpr int64_t kWindowsOfASplit = 4;

}  // namespace

void JobRun::OnStepMeasured(const v1::StepDone& done, Now now) {
  const RunFeedback::News news = feedback_.OnStep(done);
  if (!news.text.empty()) {
    Log(news.text, now);
  }
  if (news.turn == Drift::Turn::kLeaves && spec().feedback().replan() == "auto") {
    drifts_since_ = done.step();
  } else if (news.turn == Drift::Turn::kReturns) {
    drifts_since_.reset();
  }
}

void JobRun::OnReports(int32_t worker_index, int64_t step,
                       const google::protobuf::RepeatedPtrField<v1::StageReport>& stages, Now now) {
  progress_.OnReports(stages);
  for (const std::string& news : feedback_.OnReports(step, stages)) {
    Log(news, now);
  }
  parts_[worker_index].reported_step = step;
  const bool may_split = spec().feedback().replan() == "auto" && phase_ == Phase::kRunning &&
                         !blame_.any() && step < job_.steps;
  const bool all = std::all_of(parts_.begin(), parts_.end(),
                               [&](const Part& part) { return part.reported_step == step; });
  if (!may_split || !all) {
    return;
  }
  const bool too_soon =
      replans_ > 0 && step < start_.step + kWindowsOfASplit * spec().feedback().drift_steps();
  Reports reports = Record().result().per_stage();
  if (drifts_since_.has_value() && step >= *drifts_since_ && !too_soon) {
    LookForSplit(TimesSince(reports_of_cut_, reports), now);
  }
  reports_of_cut_ = std::move(reports);
}

void JobRun::LookForSplit(const Reports& reports, Now now) {
  const int64_t left = job_.steps - progress_.step();
  if (left <= spec().feedback().drift_steps()) {
    drifts_since_.reset();
    return Log(absl::StrCat("no new split for the last ", left, " steps"), now);
  }
  // As long as steps are off, again after a window: they may get worse.
  drifts_since_ = progress_.step() + spec().feedback().drift_steps();
  std::vector<int64_t> memory_bytes;
  for (const Part& part : parts_) {
    memory_bytes.push_back(part.worker.memory_bytes);
  }
  absl::StatusOr<NewSplit> split = PlanAnew(spec(), job_, record_.plan(), reports, memory_bytes);
  if (!split.ok()) {
    const std::string refusal = absl::StrCat("no new split: ", split.status().message());
    if (refusal != no_split_) {
      Log(refusal, now);
    }
    no_split_ = refusal;
    return;
  }
  Log(absl::StrFormat("goes on with its layers split %s, from a checkpoint: a step of %.4g s "
                      "instead of %.4g s is predicted from the measured times",
                      absl::StrJoin(split->stage_layers, "-"), split->prediction.step_seconds(),
                      split->step_s_before),
      now);
  new_split_ = *std::move(split);
  HoldAll(now);
}

void JobRun::GoOnWithNewSplit(Now now) {
  const NewSplit split = *std::exchange(new_split_, std::nullopt);
  for (int32_t i = 0; i <= last_worker(); ++i) {
    if (parts_[i].gone) {
      return Fail(absl::StrCat(NameOf(i),
                               ": was lost while the job drained for a new split; submit "
                               "it again with checkpoint.resume: latest to go on"),
                  now);
    }
  }
  if (saved_.checkpoint.empty() || saved_.step != *drain_step_) {
    return Fail(absl::StrCat("drained for a new split, but ",
                             save_error_.empty() ? "nothing was saved" : save_error_,
                             "; submit it again with checkpoint.resume: latest to go on"),
                now);
  }
  v1::JobSpec& spec = *record_.mutable_spec();
  spec.mutable_pipeline()->mutable_stage_layers()->Assign(split.stage_layers.begin(),
                                                          split.stage_layers.end());
  *spec.mutable_prediction() = split.prediction;
  absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
  if (!job.ok()) {
    return Fail(absl::StrCat("cannot go on with a new split: ", job.status().message()), now);
  }
  job_ = *std::move(job);
  ++replans_;

  start_ = saved_;
  ForgetAttempt();
  epoch_ = std::max(epoch_ + 1, now.unix_ms);
  for (Part& part : parts_) {
    part = Part{.worker = part.worker};
  }
  phase_ = Phase::kPreparing;
  SetState(v1::JOB_STATE_PREPARING, now);
  const absl::Status planned = MakePlanAndRecordIt(now);
  if (!planned.ok()) {
    return Fail(absl::StrCat("cannot be planned with a new split: ", planned.message()), now);
  }
  PrepareAll();
}

}  // namespace penstock
