#include "tests/simulation/simulated_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "checkpoint/layout.h"
#include "checkpoint/weights_digest.h"
#include "job/fingerprint.h"
#include "worker/snapshot_keeper.h"
#include "worker/snapshot_reader.h"

namespace penstock {
namespace {

// A peer that was silent for this long has broken its edges (rpc_limits::kTensorReturnTimeoutMs).
constexpr absl::Duration kSilenceMax = absl::Seconds(10);
// A neighbour's process that is gone is given up after this (rpc_limits::kTensorSuspicionMs).
constexpr absl::Duration kSuspicion = absl::Seconds(5);
constexpr absl::Duration kLookInterval = absl::Seconds(1);

// One step of training.
void Update(int32_t layer, int64_t step, std::vector<NamedArray>& weights) {
  for (float& value : weights[0].values) {
    value = value * 0.75f + 0.01f * static_cast<float>((layer + 1) * (step % 7 + 1));
  }
}

std::vector<NamedArray> FreshWeights(int32_t layer) {
  return {{"w", {2}, {static_cast<float>(layer), 1.0f}}};
}

}  // namespace

std::vector<NamedArray> WeightsAfter(int32_t layer, int64_t step) {
  std::vector<NamedArray> weights = FreshWeights(layer);
  for (int64_t done = 1; done <= step; ++done) Update(layer, done, weights);
  return weights;
}

std::string DigestAfter(const ResolvedJob& job, int64_t step) {
  std::vector<std::string> digests;
  for (int32_t layer = 0; layer < job.model.size(); ++layer) {
    digests.push_back(ParametersDigest(WeightsAfter(layer, step)));
  }
  return CombineLayerDigests(digests);
}

// -------------------------------------------------------------------------------------- Pipeline

void Pipeline::Begin(int worker, int64_t step) {
  begun_[worker] = step;
  if (*std::min_element(begun_.begin(), begun_.end()) < step) return;
  for (SimulatedRun* run : std::vector<SimulatedRun*>(runs_)) {
    if (run != nullptr) run->EndStepLater();
  }
}

void Pipeline::Fail(int worker) {
  for (SimulatedRun* run : std::vector<SimulatedRun*>(runs_)) {
    if (run != nullptr && run != runs_[worker]) run->OnPeerFailed(worker, "its edge was closed");
  }
}

// ---------------------------------------------------------------------------------- SimulatedRun

SimulatedRun::SimulatedRun(v1::PrepareRunRequest request, SimulatedRunParts parts)
    : request_(std::move(request)),
      parts_(std::move(parts)),
      gate_(request_.first_step(), /*microbatches_per_step=*/1, absl::Minutes(1)),
      step_(request_.first_step()),
      range_first_(step_),
      begun_step_(step_) {
  const std::vector<int64_t> extra_cuts(request_.extra_cuts().begin(), request_.extra_cuts().end());
  cuts_ = CutsOf(request_.spec(), step_, extra_cuts);
  snapshot_rule_ = SnapshotRuleOf(request_.spec(), *parts_.job);
  for (const v1::StageAssignment& stage : request_.plan().stages()) {
    if (stage.worker_index() != request_.worker_index()) continue;
    for (int place = stage.first_layer(); place < stage.first_layer() + stage.layers(); ++place) {
      const LayerSpec& spec = parts_.job->model.layers[place];
      layers_.push_back({place, {.layer = spec.number, .name = spec.name}});
    }
  }
  parts_.pipeline->Join(request_.worker_index(), *this);
}

SimulatedRun::~SimulatedRun() { parts_.pipeline->Leave(request_.worker_index()); }

absl::Status SimulatedRun::Load() {
  if (request_.has_snapshot()) {
    PENSTOCK_ASSIGN_OR_RETURN(const Manifest manifest,
                              ParseManifest(absl::string_view(request_.snapshot().manifest())));
    const auto may_go_on = [] { return absl::OkStatus(); };
    SnapshotReader reader(*parts_.snapshots, request_.snapshot(), manifest, may_go_on);
    return LoadFrom(reader, request_.snapshot().directory(), manifest);
  }
  const std::string& directory = request_.checkpoint();
  if (directory.empty()) {
    for (Layer& layer : layers_) layer.state.weights = FreshWeights(layer.state.layer);
    return absl::OkStatus();
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(parts_.files, directory));
  return LoadFrom(parts_.files, directory, manifest);
}

absl::Status SimulatedRun::LoadFrom(FileReader& files, const std::string& directory,
                                    const Manifest& manifest) {
  PENSTOCK_RETURN_IF_ERROR(
      CompareFingerprints(manifest.fingerprint, FingerprintOf(request_.spec(), *parts_.job)));
  if (manifest.step != step_) {
    return absl::InvalidArgumentError(absl::StrCat(directory, ": is of step ", manifest.step,
                                                   ", but the run goes on after step ", step_));
  }
  for (Layer& layer : layers_) {
    PENSTOCK_ASSIGN_OR_RETURN(layer.state,
                              LoadLayer(files, directory, manifest, layer.state.layer));
    layer.state.name = parts_.job->model.layers[layer.place].name;
  }
  return absl::OkStatus();
}

void SimulatedRun::Begin() {
  executing_ = true;
  LookAtPeers();
  if (request_.has_snapshot()) KeepSnapshot();
  GoOn();
}

void SimulatedRun::GoOn() {
  if (is_over_) return;
  if (!gate_.cancelled().ok()) return Finish(gate_.cancelled(), "");
  if (next_cut_ == cuts_.size()) {
    return SaveThen([this] {
      v1::RunEvent event;
      v1::RunDone& done = *event.mutable_run_done();
      done.set_step(step_);
      for (v1::StageReport& report : Reports()) *done.add_stages() = std::move(report);
      for (const Layer& layer : layers_) {
        v1::LayerDigest& digest = *done.add_layers();
        digest.set_layer(layer.state.layer);
        digest.set_name(layer.state.name);
        digest.set_sha256(ParametersDigest(layer.state.weights));
      }
      Emit(std::move(event));
      parts_.pipeline->SetDone(request_.worker_index());
      Finish(absl::OkStatus(), "");
    });
  }
  if (snapshot_rule_.IsMultiple(step_) && step_ > request_.first_step() &&
      step_ < cuts_[next_cut_].step) {
    KeepSnapshot();
  }
  if (step_ == cuts_[next_cut_].step) {
    const Cut& cut = cuts_[next_cut_++];
    return EndRange(/*has_trained=*/true, cut.checkpoint);
  }
  if (held_step_.has_value() && !gate_.cut_step().has_value() && step_ >= *held_step_) {
    waits_for_cut_ = true;
    return Later(absl::Minutes(1), [this, held = *held_step_] {
      if (!waits_for_cut_) return;
      Finish(absl::DeadlineExceededError(
                 absl::StrCat("held after step ", held, ", but no cut was announced")),
             "");
    });
  }
  const absl::StatusOr<HoldGate::Passage> passage = gate_.Enter(step_);
  if (!passage.ok()) return Finish(passage.status(), "");
  if (passage->cut) {
    next_cut_ = cuts_.size();
    const bool saves_drains = !request_.spec().checkpoint().directory().empty();
    return EndRange(step_ > range_first_, saves_drains && step_ > request_.first_step());
  }
  begun_step_ = step_ + 1;
  parts_.pipeline->Begin(request_.worker_index(), begun_step_);
}

void SimulatedRun::EndStepLater() {
  if (!executing_ || is_over_ || begun_step_ == step_) return;
  const auto jitter = 1.0 + 0.2 * parts_.random.Uniform();
  Later(parts_.step_time * jitter, [this] {
    if (is_over_ || begun_step_ == step_) return;
    step_ = begun_step_;
    for (Layer& layer : layers_) Update(layer.state.layer, step_, layer.state.weights);
    const auto& stages = request_.plan().stages();
    if (stages.rbegin()->worker_index() == request_.worker_index()) {
      v1::RunEvent event;
      v1::StepDone& done = *event.mutable_step_done();
      done.set_step(step_);
      done.set_loss(1.0 / static_cast<double>(step_));
      done.set_tokens(128);
      done.set_samples(8);
      done.set_monotonic_ns(parts_.time.MonotonicNs());
      Emit(std::move(event));
    }
    GoOn();
  });
}

void SimulatedRun::EndRange(bool has_trained, bool saves) {
  range_first_ = step_;
  if (has_trained) {
    v1::RunEvent event;
    event.mutable_cut_reached()->set_step(step_);
    for (v1::StageReport& report : Reports()) {
      *event.mutable_cut_reached()->add_stages() = std::move(report);
    }
    Emit(std::move(event));
  }
  if (!saves && snapshot_rule_.at_cuts && has_trained && next_cut_ < cuts_.size()) KeepSnapshot();
  if (!saves || step_ == saved_step_) return GoOn();
  SaveThen([this] {
    saved_step_ = step_;
    saving_ = Saving{.step = step_, .layers = CopyLayers()};
    Later(absl::Milliseconds(5 + static_cast<int64_t>(parts_.random.Below(200))), [this] {
      if (!saving_.has_value()) return;
      const Saving saving = *std::move(saving_);
      saving_.reset();
      absl::StatusOr<std::vector<SavedLayer>> saved;
      const bool lives = parts_.save(
          [&] { saved = Write(saving.step, saving.layers, [] { return absl::OkStatus(); }); });
      if (!lives) return;
      ReportSave(saving.step, saved);
      if (after_save_) std::exchange(after_save_, nullptr)();
    });
    GoOn();
  });
}

std::vector<LayerSnapshot> SimulatedRun::CopyLayers() const {
  std::vector<LayerSnapshot> copies;
  for (const Layer& layer : layers_) {
    LayerSnapshot& copy = copies.emplace_back();
    copy.state = layer.state;
    copy.state.optimizer_state = {{"w.exp_avg", {1}, {static_cast<float>(step_)}}};
  }
  return copies;
}

void SimulatedRun::KeepSnapshot() {
  const std::optional<v1::SnapshotHolder> peer = PeerOf(request_.plan(), request_.worker_index());
  if (!peer.has_value() || std::exchange(kept_step_, step_) == step_) return;
  const absl::Duration wait = absl::Milliseconds(1 + static_cast<int64_t>(parts_.random.Below(30)));
  Later(wait, [this, peer, step = step_, layers = CopyLayers()] {
    const std::string directory = SnapshotDirectory(request_.job_id(), request_.epoch(), step);
    const auto may_go_on = [this] { return gate_.cancelled(); };
    const auto saved = SaveLayers(parts_.snapshots->memory(), directory, layers, may_go_on);
    if (!saved.ok()) return;
    absl::Status copied;
    for (const SavedLayer& layer : *saved) {
      for (const CheckpointFile& file : layer.files) {
        copied.Update(parts_.snapshots->Send(*peer, JoinPath(directory, file.name), may_go_on));
      }
    }
    v1::RunEvent event;
    *event.mutable_layers_kept()->mutable_layers() = SavedMessage(step, *saved);
    if (copied.ok()) *event.mutable_layers_kept()->mutable_copy() = *peer;
    Emit(std::move(event));
  });
}

// At most one save is in flight.
void SimulatedRun::SaveThen(std::function<void()> next) {
  if (saving_.has_value()) {
    after_save_ = std::move(next);
  } else {
    next();
  }
}

absl::StatusOr<std::vector<SavedLayer>> SimulatedRun::Write(
    int64_t step, const std::vector<LayerSnapshot>& layers,
    absl::FunctionRef<absl::Status()> may_go_on) {
  const std::string staging =
      StagingPath(request_.spec().checkpoint().directory(), step, request_.staging_tag());
  return SaveLayers(parts_.files, staging, layers, may_go_on);
}

void SimulatedRun::ReportSave(int64_t step, const absl::StatusOr<std::vector<SavedLayer>>& saved) {
  v1::RunEvent event;
  if (!saved.ok()) {
    event.mutable_save_failed()->set_step(step);
    event.mutable_save_failed()->set_code(static_cast<v1::StatusCode>(saved.status().code()));
    event.mutable_save_failed()->set_message(std::string(saved.status().message()));
    return Emit(std::move(event));
  }
  *event.mutable_layers_saved() = SavedMessage(step, *saved);
  Emit(std::move(event));
}

absl::StatusOr<int64_t> SimulatedRun::Hold() {
  PENSTOCK_ASSIGN_OR_RETURN(const int64_t step, gate_.Hold());
  held_step_ = step;
  return step;
}

absl::Status SimulatedRun::CutAt(int64_t step) {
  PENSTOCK_RETURN_IF_ERROR(gate_.CutAt(step));
  if (std::exchange(waits_for_cut_, false)) Later(absl::ZeroDuration(), [this] { GoOn(); });
  return absl::OkStatus();
}

void SimulatedRun::Stop(const std::string& reason) {
  gate_.Cancel(absl::AbortedError(absl::StrCat("stopped: ", reason)));
  if (!executing_) return;
  Later(absl::Milliseconds(static_cast<int64_t>(parts_.random.Below(100))),
        [this] { Finish(gate_.cancelled(), ""); });
}

// A save that is in flight ends before its next layer.
void SimulatedRun::Finish(const absl::Status& status, const std::string& peer) {
  if (std::exchange(is_over_, true)) return;
  gate_.Close();
  if (saving_.has_value()) {
    auto left = static_cast<int64_t>(parts_.random.Below(saving_->layers.size() + 1));
    const auto save = parts_.save;  // the run goes with its process
    const bool lives = save([&] {
      (void)Write(saving_->step, saving_->layers,
                  [&] { return left-- > 0 ? absl::OkStatus() : absl::AbortedError("over"); });
    });
    if (!lives) return;
    saving_.reset();
  }
  outcome_ = status;
  if (!status.ok()) {
    v1::RunEvent event;
    v1::RunFailed& failed = *event.mutable_run_failed();
    failed.set_code(static_cast<v1::StatusCode>(status.code()));
    failed.set_message(std::string(status.message()));
    failed.set_peer(peer);
    Emit(std::move(event));
    parts_.pipeline->Fail(request_.worker_index());
  }
  parts_.ended();
}

void SimulatedRun::OnPeerFailed(int worker, const std::string& how) {
  if (!executing_) return;
  Later(parts_.network.Delay(), [this, worker, how] {
    const std::string& peer = parts_.peers[worker].process->name();
    Finish(absl::UnavailableError(absl::StrCat("peer ", peer, ": ", how)), peer);
  });
}

// Sees a peer that is gone, cut off or frozen.
void SimulatedRun::LookAtPeers() {
  if (is_over_) return;
  const int64_t now_ns = parts_.time.MonotonicNs();
  for (int worker = 0; worker < parts_.pipeline->size(); ++worker) {
    const Process& peer = *parts_.peers[worker].process;
    const bool is_gone = parts_.peers[worker].IsGone();
    if (worker == request_.worker_index() || parts_.pipeline->IsDone(worker)) continue;
    const bool is_silent =
        is_gone || peer.frozen() || !parts_.network.Connects(parts_.process, peer);
    if (!is_silent) {
      silent_since_ns_.erase(worker);
      continue;
    }
    const int64_t since_ns = silent_since_ns_.emplace(worker, now_ns).first->second;
    const absl::Duration limit = is_gone ? kSuspicion : kSilenceMax;
    if (absl::Nanoseconds(now_ns - since_ns) >= limit) {
      return Finish(absl::UnavailableError(absl::StrCat("peer ", peer.name(), ": is silent")),
                    peer.name());
    }
  }
  Later(kLookInterval, [this] { LookAtPeers(); });
}

int64_t SimulatedRun::pulse() const {
  constexpr int64_t kBeatNs = 500'000'000;
  return executing_ ? begun_step_ + parts_.time.MonotonicNs() / kBeatNs : 0;
}

std::vector<v1::StageReport> SimulatedRun::Reports() const {
  std::vector<v1::StageReport> reports;
  for (const v1::StageAssignment& stage : request_.plan().stages()) {
    if (stage.worker_index() != request_.worker_index()) continue;
    v1::StageReport& report = reports.emplace_back();
    report.set_stage(stage.stage());
    report.set_worker(stage.worker());
    report.set_first_layer(stage.first_layer());
    report.set_layers(stage.layers());
    report.set_window_seconds(1e-3 * static_cast<double>(step_ + 1));
  }
  return reports;
}

void SimulatedRun::Emit(v1::RunEvent event) { parts_.events(std::move(event)); }

void SimulatedRun::Later(absl::Duration wait, std::function<void()> what) {
  parts_.process.After(wait, [alive = std::weak_ptr<bool>(token_), what = std::move(what)] {
    if (!alive.expired()) what();
  });
}

}  // namespace penstock
