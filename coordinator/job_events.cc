// JobRun: what the workers report while they train.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "coordinator/job_run.h"
#include "coordinator/start_query.h"

namespace penstock {

int64_t JobRun::OnReport(int32_t worker_index, int64_t first_sequence,
                         absl::Span<const v1::RunEvent* const> events, Now now) {
  for (size_t i = 0; i < events.size(); ++i) {
    // Looked up anew each time: an event may end the run.
    Part& part = parts_[worker_index];
    if (first_sequence + static_cast<int64_t>(i) != part.next_sequence) {
      continue;
    }
    ++part.next_sequence;
    if (Active() && part.start_asked) {
      progressed_ns_ = now.monotonic_ns;
      OnEvent(worker_index, *events[i], now);
    }
  }
  return parts_[worker_index].next_sequence;
}

void JobRun::OnEvent(int32_t worker_index, const v1::RunEvent& event, Now now) {
  if (profile_.has_value()) {
    return OnProfileEvent(worker_index, event, now);
  }
  switch (event.kind_case()) {
    case v1::RunEvent::kStepDone:
      return OnStepDone(worker_index, event.step_done(), now);
    case v1::RunEvent::kValidationDone:
      return OnValidationDone(worker_index, event.validation_done(), now);
    case v1::RunEvent::kCutReached:
      OnReports(worker_index, event.cut_reached().step(), event.cut_reached().stages(), now);
      if (event.cut_reached().has_order()) {
        progress_.OnOrder(worker_index, event.cut_reached().order());
      }
      return Save();
    case v1::RunEvent::kLayersSaved:
      return OnLayersSaved(worker_index, event.layers_saved());
    case v1::RunEvent::kSaveFailed:
      return OnSaveFailed(worker_index, event.save_failed(), now);
    case v1::RunEvent::kRunDone:
      return OnRunDone(worker_index, event.run_done(), now);
    case v1::RunEvent::kRunFailed:
      return OnRunFailed(worker_index, event.run_failed(), now);
    case v1::RunEvent::kMeasurementBegun:
    case v1::RunEvent::kLinksMeasured:
    case v1::RunEvent::kLayersTimed:
      return;  // of a profile, which this is not
    case v1::RunEvent::KIND_NOT_SET:
      return;  // of a newer version, and of no concern to this one
  }
}

void JobRun::OnStepDone(int32_t worker_index, const v1::StepDone& done, Now now) {
  if (worker_index != step_worker() || done.step() > job_.steps || !progress_.OnStep(done)) {
    return;
  }
  v1::JobSummary& summary = *record_.mutable_summary();
  summary.set_step(done.step());
  remaining_.OnStep(done.step(), done.monotonic_ns());
  if (const auto seconds = remaining_.Seconds(); seconds && state() == v1::JOB_STATE_RUNNING) {
    summary.set_estimated_remaining_seconds(*seconds);
  }
  record_.mutable_result()->set_last_step_unix_ms(now.unix_ms);
  v1::JobEvent event;
  *event.mutable_step_done() = done;
  Publish(std::move(event), now);
  block_delay_.OnStep(done.step());
  OnStepMeasured(done, now);
}

void JobRun::OnValidationDone(int32_t worker_index, const v1::ValidationDone& done, Now now) {
  if (worker_index != validation_worker()) {
    return;
  }
  progress_.OnValidation(done);
  v1::JobEvent event;
  *event.mutable_validation_done() = done;
  Publish(std::move(event), now);
}

void JobRun::OnLayersSaved(int32_t worker_index, const v1::LayersSaved& saved) {
  const std::optional<CheckpointTracker::Complete> complete =
      checkpoints_.Saved(worker_index, saved);
  if (!complete.has_value()) {
    return;
  }
  CommitStaged commit{.job_id = id(), .lease = lease_};
  commit.options = {.root = spec().checkpoint().directory(),
                    .tag = absl::StrCat(id(), "-", epoch_),
                    .layers = job_.chain.size(),
                    .keep = spec().checkpoint().keep()};
  Manifest& manifest = commit.manifest;
  manifest.job_id = id();
  manifest.method = spec().pipeline().method();
  manifest.epoch = epoch_;
  manifest.step = complete->step;
  CountUpdates(complete->step, manifest);
  manifest.extra_cuts = ExtraCutsUpTo(complete->step);
  manifest.stage_layers = LayersOfStages();
  manifest.model = ModelOf(spec().model());
  manifest.fingerprint = FingerprintOf(spec(), job_);
  saving_[manifest.step] = {.step = manifest.step,
                            .updates = manifest.updates,
                            .layer_updates = manifest.layer_updates,
                            .extra_cuts = manifest.extra_cuts,
                            .method = manifest.method,
                            .stage_layers = manifest.stage_layers};
  RunProgress digests(/*first_step=*/0, /*stages=*/0);
  digests.OnLayers({complete->layers.begin(), complete->layers.end()});
  manifest.weights_sha256 = digests.WeightsSha256(job_.chain.size());
  for (const v1::SavedFile& file : complete->files) {
    manifest.files.push_back({.name = file.name(),
                              .size_bytes = file.size_bytes(),
                              .sha256 = file.sha256(),
                              .layer = file.layer()});
  }
  effects_.push_back(std::move(commit));
}

std::vector<int32_t> JobRun::LayersOfStages() const {
  const Topology topology = TopologyOf(job_, record_.result().stages());
  std::vector<int32_t> layers(topology.parts());
  for (const v1::StageAssignment& stage : record_.plan().stages()) {
    layers[topology[StageId(stage.stage())].part] = stage.layers();
  }
  return layers;
}

// Counted from the start, for earlier runs may have had another method or other microbatches.
void JobRun::CountUpdates(int64_t step, Manifest& manifest) const {
  const int64_t stages = record_.result().stages();
  const Topology topology = TopologyOf(job_, stages);
  std::vector<int64_t> updates(job_.chain.size(), start_.updates);
  std::copy_n(start_.layer_updates.begin(), std::min(start_.layer_updates.size(), updates.size()),
              updates.begin());
  for (const v1::StageAssignment& stage : record_.plan().stages()) {
    if (!topology[StageId(stage.stage())].of_model) continue;
    const int64_t more =
        job_.UpdatesBetween(start_.step, step, stages, topology[StageId(stage.stage())].part);
    for (int i = 0; i < stage.layers(); ++i) updates[stage.first_layer() + i] += more;
  }
  manifest.updates = updates.front();
  const bool differ = std::any_of(updates.begin(), updates.end(),
                                  [&](int64_t count) { return count != manifest.updates; });
  if (differ) manifest.layer_updates = std::move(updates);
}

void JobRun::OnSaveFailed(int32_t worker_index, const v1::SaveFailed& failed, Now now) {
  if (checkpoints_.Failed(failed.step())) {
    NoteSaveError(failed.step(), absl::StrCat(NameOf(worker_index), ": ", failed.message()), now);
  }
}

void JobRun::On(const CheckpointCommitted& answer, Now now) {
  const int64_t step = answer.step;
  const absl::StatusOr<CommittedCheckpoint>& committed = answer.checkpoint;
  if (!committed.ok()) {
    checkpoints_.Failed(step);
    saving_.erase(step);
    NoteSaveError(step, std::string(committed.status().message()), now);
  } else {
    checkpoints_.Committed(step);
    saved_ = saving_[step];
    saved_.checkpoint = committed->directory;
    saving_.erase(step);
    save_error_.clear();
    record_.mutable_result()->set_checkpoint(committed->directory);
    v1::JobEvent event;
    event.mutable_checkpoint_done()->set_step(step);
    event.mutable_checkpoint_done()->set_directory(committed->directory);
    Publish(std::move(event), now);
    if (!committed->note.empty()) {
      Log(CleanUtf8(committed->note, kTextBytesMax), now);
    }
    Save();
  }
  EndIfAllDone(now);
}

void JobRun::NoteSaveError(int64_t step, const std::string& error, Now now) {
  save_error_ = CleanUtf8(
      absl::StrCat("the checkpoint of step ", step, " could not be saved: ", error), kTextBytesMax);
  Log(absl::StrCat(save_error_, "; the older ones stay"), now);
}

void JobRun::OnRunDone(int32_t worker_index, const v1::RunDone& done, Now now) {
  const int64_t expected = drain_step_.value_or(job_.steps);
  if (done.step() != expected) {
    blame_.Own(worker_index,
               absl::StrCat("ended after step ", done.step(), " instead of ", expected));
    return DecideBlame(now);
  }
  OnReports(worker_index, done.step(), done.stages(), now);
  progress_.OnLayers(done.layers());
  parts_[worker_index].done = true;
  parts_[worker_index].held_step = done.step();
  CutIfAllHeld(now);
  EndIfAllDone(now);
}

void JobRun::OnRunFailed(int32_t worker_index, const v1::RunFailed& failed, Now now) {
  if (failed.not_finite()) record_.mutable_result()->set_not_finite(true);
  if (failed.peer().empty()) {
    blame_.Own(worker_index, failed.message());
  } else {
    int32_t peer = Blame::kNobody;
    for (int32_t i = 0; i <= last_worker(); ++i) {
      if (parts_[i].worker.name == failed.peer() || parts_[i].worker.address == failed.peer()) {
        peer = i;
      }
    }
    blame_.Pointing(worker_index, peer, failed.message(), now.monotonic_ns);
  }
  DecideBlame(now);
}

void JobRun::BlameCall(int32_t worker_index, const std::string& what, const absl::Status& status,
                       Now now) {
  const std::string message = absl::StrCat(what, ": ", status.message());
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    unreachable_ = true;
    blame_.Pointing(worker_index, Blame::kNobody, message, now.monotonic_ns);
  } else {
    blame_.Own(worker_index, message);
  }
  DecideBlame(now);
}

void JobRun::DecideBlame(Now now) {
  const std::optional<Blame::Verdict> verdict = blame_.Decide(now.monotonic_ns);
  if (verdict.has_value() && Active()) {
    Fail(absl::StrCat(NameOf(verdict->worker), ": ", verdict->message), now);
  }
}

}  // namespace penstock
