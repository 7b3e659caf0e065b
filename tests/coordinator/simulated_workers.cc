// SimulatedCluster: what its workers do when they train and profile, and how they report it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/sha256.h"
#include "checkpoint/layout.h"
#include "tests/coordinator/simulated_cluster.h"

namespace penstock {
namespace {

std::string Describe(const v1::RunEvent& event) {
  switch (event.kind_case()) {
    case v1::RunEvent::kStepDone:
      return absl::StrCat("StepDone ", event.step_done().step());
    case v1::RunEvent::kValidationDone:
      return absl::StrCat("ValidationDone ", event.validation_done().step());
    case v1::RunEvent::kCutReached:
      return absl::StrCat("CutReached ", event.cut_reached().step());
    case v1::RunEvent::kLayersSaved:
      return absl::StrCat("LayersSaved ", event.layers_saved().step());
    case v1::RunEvent::kLayersKept:
      return absl::StrCat("LayersKept ", event.layers_kept().layers().step());
    case v1::RunEvent::kRunDone:
      return absl::StrCat("RunDone ", event.run_done().step());
    case v1::RunEvent::kRunFailed:
      return absl::StrCat("RunFailed ", event.run_failed().message());
    case v1::RunEvent::kSaveFailed:
      return absl::StrCat("SaveFailed ", event.save_failed().step());
    case v1::RunEvent::kMeasurementBegun:
      return absl::StrCat("MeasurementBegun ", event.measurement_begun().what());
    case v1::RunEvent::kLinksMeasured:
      return absl::StrCat("LinksMeasured ", event.links_measured().links_size());
    case v1::RunEvent::kCopiesMeasured:
      return absl::StrCat("CopiesMeasured ", event.copies_measured().bytes_per_second());
    case v1::RunEvent::kLayersTimed:
      return absl::StrCat("LayersTimed ", event.layers_timed().model().layers_size());
    case v1::RunEvent::KIND_NOT_SET:
      break;
  }
  return "?";
}

}  // namespace

// -------------------------------------------------------------------------------------- training

int64_t SimulatedCluster::StepMs(const v1::PrepareRunRequest& run) const {
  if (pass_ms_.empty()) {
    return options_.step_ms;
  }
  int64_t slowest_ms = 0;
  for (const v1::StageAssignment& stage : run.plan().stages()) {
    const int64_t pass_ms = stage.layers() * pass_ms_[IndexOfName(stage.worker())];
    slowest_ms = std::max(slowest_ms, 3 * pass_ms * run.spec().training().microbatches());
  }
  return slowest_ms;
}

void SimulatedCluster::TrainLoop(int worker, int64_t generation) {
  const int64_t step_ms = StepMs(workers_[worker].run);
  const int64_t jitter = static_cast<int64_t>(random_.Below(options_.step_ms / 4 + 1));
  After(step_ms + (options_.delay_ms_max > 1 ? jitter : 0), [this, worker, generation] {
    Worker& w = workers_[worker];
    if (w.generation != generation || !w.alive || w.state != Worker::State::kRunning) {
      return;
    }
    if (w.frozen || w.executor_frozen) {
      return TrainLoop(worker, generation);
    }
    const std::vector<v1::StageAssignment> stages(w.run.plan().stages().begin(),
                                                  w.run.plan().stages().end());
    const bool waits = std::any_of(stages.begin(), stages.end(), [&](const auto& stage) {
      return CutOff(IndexOfName(stage.worker())).has_value();
    });
    if (waits) return TrainLoop(worker, generation);
    const int64_t end = w.cut_step.value_or(w.run.spec().training().steps());
    if (w.step < end && w.held_step.has_value() && !w.cut_step.has_value() &&
        w.step >= *w.held_step) {
      return;  // waits for CutRun
    }
    if (w.step < end) {
      ++w.step;
      CountPasses(worker);
      if (w.run.worker_index() + 1 == w.run.plan().stages_size()) {
        v1::RunEvent event;
        event.mutable_step_done()->set_step(w.step);
        event.mutable_step_done()->set_loss(1.0 / static_cast<double>(w.step));
        event.mutable_step_done()->set_tokens(128);
        event.mutable_step_done()->set_monotonic_ns(now_ms_ * kNsPerMs);
        Emit(worker, event);
      }
    }
    Cut cut{.step = w.step};
    for (const Cut& regular : w.cuts) {
      cut = regular.step == w.step ? regular : cut;
    }
    const bool last = w.step >= end;
    cut.checkpoint = cut.checkpoint || (last && w.cut_step.has_value());
    // A run that begins at its last step has no cut.
    const bool has_trained = w.step > w.run.first_step();
    if (has_trained && (cut.checkpoint || cut.validate || last)) {
      AtCut(worker, cut);
    }
    const bool is_own_cut = cut.validate && !cut.checkpoint && w.snapshot_rule.at_cuts;
    if (has_trained && !last && (is_own_cut || w.snapshot_rule.IsMultiple(w.step))) {
      KeepSnapshot(worker, w.step);
    }
    if (!last) {
      return TrainLoop(worker, generation);
    }
    After(2 * options_.save_ms, [this, worker, generation] {
      Worker& w = workers_[worker];
      if (w.generation != generation || !w.alive) {
        return;
      }
      v1::RunEvent event;
      event.mutable_run_done()->set_step(w.step);
      const v1::StageAssignment& stage = w.run.plan().stages(w.run.worker_index());
      for (int layer = stage.first_layer(); layer < stage.first_layer() + stage.layers(); ++layer) {
        v1::LayerDigest& digest = *event.mutable_run_done()->add_layers();
        digest.set_layer(layer);
        digest.set_sha256(Sha256Hex(absl::StrCat("layer ", layer, " step ", w.step)));
      }
      Emit(worker, event);
      EndRun(worker);
    });
  });
}

// ------------------------------------------------------------------------------------- profiling

void SimulatedCluster::MeasureLoop(int worker, int64_t generation, int64_t measured) {
  After(options_.step_ms, [this, worker, generation, measured] {
    Worker& w = workers_[worker];
    if (w.generation != generation || !w.alive || w.state != Worker::State::kRunning) {
      return;
    }
    if (w.frozen || w.executor_frozen) {
      return MeasureLoop(worker, generation, measured);
    }
    const int64_t layers = w.profile->times_layers()
                               ? ProfileOf(w.run.spec(), w.profile->profile(), 1.0).shapes_size()
                               : 0;
    ++w.step;
    if (measured <= layers) {
      ReportMeasured(worker, measured, layers);
      return MeasureLoop(worker, generation, measured + 1);
    }
    v1::RunEvent done;
    done.mutable_run_done();
    Emit(worker, done);
    EndRun(worker);
  });
}

// Links first, then one layer after the other.
void SimulatedCluster::ReportMeasured(int worker, int64_t measured, int64_t layers) {
  const Worker& w = workers_[worker];
  const v1::PrepareRunRequest& run = w.run;
  const int others = run.plan().stages_size() - 1;
  if (measured == 0 && others > 0) {
    v1::RunEvent event;
    for (int other = 0; other <= others; ++other) {
      if (other == run.worker_index()) {
        continue;
      }
      v1::MeasuredLink& link = *event.mutable_links_measured()->add_links();
      link.set_to_worker_index(other);
      link.set_latency_us(10.0 * (run.worker_index() + 1));
      link.set_bytes_per_second(1e9 + other);
    }
    Emit(worker, event);
  }
  if (measured < layers) {
    v1::RunEvent event;
    event.mutable_measurement_begun()->set_done(others + measured);
    event.mutable_measurement_begun()->set_what(absl::StrCat("layer ", measured));
    Emit(worker, event);
  } else if (layers > 0) {
    timings_.push_back(absl::StrCat(w.name, " times ", layers, " of ", run.job_id()));
    v1::RunEvent event;
    *event.mutable_layers_timed()->mutable_model() =
        ProfileOf(run.spec(), w.profile->profile(), 1.0 + worker);
    Emit(worker, event);
  }
}

void SimulatedCluster::CountPasses(int worker) {
  if (pass_ms_.empty()) return;
  Worker& w = workers_[worker];
  const int64_t passes = w.run.spec().training().microbatches();
  const int layers = w.run.plan().stages(w.run.worker_index()).layers();
  const int jitter = options_.pass_jitter_percent;
  const int percent = jitter == 0 ? 100 : 100 - jitter + random_.Below(2 * jitter + 1);
  w.passes += passes;
  w.pass_seconds += 1e-5 * static_cast<double>(passes * layers * pass_ms_[worker] * percent);
}

v1::StageReport SimulatedCluster::StageReportOf(int worker) const {
  const Worker& w = workers_[worker];
  v1::StageReport report;
  report.set_stage(w.run.worker_index());
  report.set_worker(w.name);
  report.set_window_seconds(1e-3 * static_cast<double>(w.step * options_.step_ms));
  report.set_bubble_ratio(0.25);
  if (pass_ms_.empty()) return report;
  const v1::StageAssignment& stage = w.run.plan().stages(w.run.worker_index());
  report.set_first_layer(stage.first_layer());
  report.set_layers(stage.layers());
  for (const char* action : {"F", "I", "W"}) {
    v1::ActionTime& time = *report.add_actions();
    time.set_action(action);
    time.set_count(w.passes);
    time.set_seconds(w.pass_seconds);
    time.set_median_seconds(1e-3 * static_cast<double>(stage.layers() * pass_ms_[worker]));
  }
  return report;
}

void SimulatedCluster::AtCut(int worker, const Cut& cut) {
  Worker& w = workers_[worker];
  v1::RunEvent reached;
  reached.mutable_cut_reached()->set_step(cut.step);
  v1::StageReport& report = *reached.mutable_cut_reached()->add_stages();
  report = StageReportOf(worker);
  // Medians alone, which are exact where means are rounded: splits that are as good as each other stay so.
  for (v1::ActionTime& time : *report.mutable_actions()) {
    time.clear_count();
    time.clear_seconds();
  }
  Emit(worker, reached);
  if (cut.checkpoint && !w.run.spec().checkpoint().directory().empty()) {
    w.saving.insert(cut.step);
    After(options_.save_ms, [this, worker, generation = w.generation, step = cut.step] {
      const Worker& w = workers_[worker];
      if (w.generation == generation && w.alive) SaveLayers(worker, step);
    });
  }
}

void SimulatedCluster::SaveLayers(int worker, int64_t step) {
  Worker& w = workers_[worker];
  const std::string& root = w.run.spec().checkpoint().directory();
  staged_.insert({DirectoryOf(root), w.run.staging_tag(), step});
  w.saving.erase(step);
  v1::RunEvent event;
  if (disk_full && w.run.worker_index() > 0) {
    event.mutable_save_failed()->set_step(step);
    event.mutable_save_failed()->set_message(
        absl::StrCat("cannot write ", root, "/a file: No space left on device"));
    return Emit(worker, event);
  }
  event.mutable_layers_saved()->set_step(step);
  const v1::StageAssignment& stage = w.run.plan().stages(w.run.worker_index());
  for (int layer = stage.first_layer(); layer < stage.first_layer() + stage.layers(); ++layer) {
    event.mutable_layers_saved()->add_files()->set_layer(layer);
    v1::LayerDigest& digest = *event.mutable_layers_saved()->add_layers();
    digest.set_layer(layer);
    digest.set_sha256(Sha256Hex(absl::StrCat("layer ", layer, " step ", step)));
  }
  Emit(worker, event);
}

void SimulatedCluster::KeepSnapshot(int worker, int64_t step) {
  After(options_.save_ms, [this, worker, generation = workers_[worker].generation, step] {
    Worker& w = workers_[worker];
    if (w.generation != generation || !w.alive || !keeps_snapshots) return;
    const auto& stages = w.run.plan().stages();
    const v1::StageAssignment& stage = stages.Get(w.run.worker_index());
    const v1::StageAssignment& next = stages.Get((w.run.worker_index() + 1) % stages.size());
    Worker& peer = workers_[IndexOfName(next.worker())];
    const std::string directory = SnapshotDirectory(w.run.job_id(), w.run.epoch(), step);
    v1::RunEvent event;
    v1::LayersSaved& saved = *event.mutable_layers_kept()->mutable_layers();
    saved.set_step(step);
    const bool has_copy = peer.alive && peer.incarnation == next.incarnation();
    for (int layer = stage.first_layer(); layer < stage.first_layer() + stage.layers(); ++layer) {
      v1::LayerDigest& digest = *saved.add_layers();
      digest.set_layer(layer);
      digest.set_sha256(Sha256Hex(absl::StrCat("layer ", layer, " step ", step)));
      v1::SavedFile& file = *saved.add_files();
      file.set_layer(layer);
      file.set_name(WeightsFileName(layer, "any"));
      file.set_sha256(digest.sha256());
      w.snapshots.insert(absl::StrCat(layer, " ", directory));
      if (has_copy) peer.snapshots.insert(absl::StrCat(layer, " ", directory));
    }
    if (has_copy) {
      event.mutable_layers_kept()->mutable_copy()->set_worker(next.worker());
      event.mutable_layers_kept()->mutable_copy()->set_incarnation(next.incarnation());
    }
    Emit(worker, event);
  });
}

absl::Status SimulatedCluster::LoadSnapshot(const v1::PeerSnapshot& snapshot) {
  for (const v1::SnapshotPart& part : snapshot.parts()) {
    for (const int32_t layer : part.layers()) {
      bool is_held = false;
      bool is_silent = false;
      for (const v1::SnapshotHolder& holder : part.holders()) {
        const Worker& w = workers_[IndexOfName(holder.worker())];
        is_silent |= !w.alive;
        is_held |= w.alive && w.incarnation == holder.incarnation() &&
                   w.snapshots.count(absl::StrCat(layer, " ", snapshot.directory())) > 0;
      }
      if (is_held) continue;
      if (is_silent) {
        return absl::UnavailableError(
            absl::StrCat("layer ", layer, " of ", snapshot.directory(), ": nobody listens"));
      }
      return absl::FailedPreconditionError(absl::StrCat(
          "layer ", layer, " of ", snapshot.directory(), ": no worker has this part any more"));
    }
  }
  return absl::OkStatus();
}

void SimulatedCluster::EndRun(int worker) {
  Worker& w = workers_[worker];
  w.state = Worker::State::kIdle;
  ++w.generation;
}

void SimulatedCluster::Emit(int worker, v1::RunEvent event) {
  Worker& w = workers_[worker];
  w.outbox.push_back(std::move(event));
  Flush(worker, w.generation);
}

// Sends everything that is not acknowledged yet, and asks what is if there is nothing; again if no acknowledgement comes, or
// one of a part.
void SimulatedCluster::Flush(int worker, int64_t generation) {
  Worker& w = workers_[worker];
  const std::string job_id = w.run.job_id();
  v1::ReportRunRequest request;
  request.set_worker(w.name);
  request.set_incarnation(w.incarnation);
  request.set_job_id(job_id);
  request.set_epoch(w.run.epoch());
  request.set_first_sequence(w.acknowledged);
  request.set_kept_from(w.outbox_first);
  for (auto i = static_cast<size_t>(w.acknowledged - w.outbox_first); i < w.outbox.size(); ++i) {
    *request.add_events() = w.outbox[i];
  }
  const auto again = [this, worker, generation, job_id, epoch = w.run.epoch()] {
    Worker& w = workers_[worker];
    if (w.alive && w.run.job_id() == job_id && w.run.epoch() == epoch && w.HasToTell()) {
      Flush(worker, generation);
    }
  };
  const int copies = Percent(options_.duplicate_percent) ? 2 : 1;
  Misdeliver(request);
  if (Lost()) {
    return After(100, again);
  }
  for (int copy = 0; copy < copies; ++copy) {
    After(Delay(), [this, worker, request, again] {
      if (request.events_size() > 0) {
        const v1::RunEvent& last = request.events(request.events_size() - 1);
        if (!last.has_step_done()) {
          Say(absl::StrCat(request.worker(), ": ", Describe(last)));
        }
      }
      const std::optional<absl::StatusOr<v1::ReportRunResponse>> answer = Report(request);
      if (!answer.has_value() || Lost()) {
        return After(100, again);
      }
      const absl::StatusOr<v1::ReportRunResponse>& response = *answer;
      Worker& w = workers_[worker];
      if (w.run.job_id() != request.job_id() || w.run.epoch() != request.epoch()) {
        return;
      }
      if (!response.ok()) {
        w.outbox.clear();
        w.acknowledged = w.outbox_first;
        return;
      }
      const int64_t sent_to = request.first_sequence() + request.events_size();
      w.acknowledged =
          std::clamp(response->next_sequence(), w.outbox_first, std::max(w.outbox_first, sent_to));
      const int64_t stored =
          response->has_stored_sequence() ? response->stored_sequence() : w.acknowledged;
      for (; w.outbox_first < std::min(stored, w.acknowledged); ++w.outbox_first) {
        w.outbox.pop_front();
      }
      if (response->next_sequence() >= sent_to || std::exchange(w.flushes_later, true)) return;
      After(1000, [this, worker] {
        Worker& w = workers_[worker];
        w.flushes_later = false;
        if (w.alive && w.HasToTell()) Flush(worker, w.generation);
      });
    });
  }
}

void SimulatedCluster::Misdeliver(const v1::ReportRunRequest& request) {
  if (options_.replay_percent > 0 && Percent(options_.replay_percent)) {
    After(static_cast<int64_t>(random_.Below(20'000)), [this, request] { Report(request); });
  }
  if (options_.overtaken_percent > 0 && Percent(options_.overtaken_percent) &&
      request.events_size() > 1) {
    v1::ReportRunRequest later = request;
    later.set_first_sequence(request.first_sequence() + 1);
    later.mutable_events()->DeleteSubrange(0, 1);
    After(Delay(), [this, later] { Report(later); });
  }
}

std::optional<absl::StatusOr<v1::ReportRunResponse>> SimulatedCluster::Report(
    const v1::ReportRunRequest& request) {
  int64_t& arrived =
      arrived_[{request.worker(), request.incarnation(), request.job_id(), request.epoch()}];
  if (request.first_sequence() <= arrived) {
    arrived = std::max(arrived, request.first_sequence() + request.events_size());
  }
  const int64_t newest_epoch = newest_epochs_[request.job_id()];  // the report may end that attempt
  absl::StatusOr<v1::ReportRunResponse> response = absl::InternalError("");
  if (!Tell([&] { response = coordinator_->ReportRun(request, now()); })) return std::nullopt;
  const std::string from =
      absl::StrCat(request.worker(), " on ", request.job_id(), ", epoch ", request.epoch());
  if (response.ok() && request.epoch() < newest_epoch) {
    violations_.push_back(absl::StrCat("a report of ", from, " is taken, which is over"));
  }
  if (response.ok() && response->next_sequence() > arrived) {
    violations_.push_back(absl::StrCat("event ", arrived, " of ", from, " is passed over"));
  }
  return response;
}

}  // namespace penstock
