#include "worker/training_run.h"

#include <malloc.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/fault_points.h"
#include "base/status.h"
#include "base/utf8.h"
#include "job/fingerprint.h"
#include "job/run/message_bytes.h"
#include "job/run/run_schedule.h"
#include "planner/cost/run_costs.h"
#include "worker/layer_state.h"
#include "worker/open_data.h"
#include "worker/open_offload_store.h"
#include "worker/pretrained.h"
#include "worker/snapshot_reader.h"
#include "worker/stage_report.h"

namespace penstock {
namespace {

// For the copy of the last snapshot of a run that has come to its end.
constexpr absl::Duration kLastSnapshotTimeout = absl::Seconds(5);

v1::LayerDigest DigestMessage(int layer, const std::string& name, const std::string& sha256) {
  v1::LayerDigest digest;
  digest.set_layer(layer);
  digest.set_name(name);
  digest.set_sha256(sha256);
  return digest;
}

EarlyStop::Course CourseOf(const v1::PrepareRunRequest& request) {
  EarlyStop::Course course = {.since_best = request.validations_since_best()};
  if (request.has_best_validation_loss()) course.best = request.best_validation_loss();
  return course;
}

}  // namespace

TrainingRun::TrainingRun(v1::PrepareRunRequest request, RunPlan plan, RunEnvironment environment)
    : request_(std::move(request)),
      plan_(std::move(plan)),
      environment_(std::move(environment)),
      gate_(plan_.first_step, plan_.job.microbatches, environment_.limits.hold_timeout),
      recorder_(plan_.worker, environment_.limits.timeline_spans_max),
      remote_checkpoints_(OpenRemoteCheckpoints()),
      writer_(checkpoints()),
      early_stop_(plan_.job.stop_after, CourseOf(request_)) {
  const std::optional<v1::SnapshotHolder> peer = PeerOf(request_.plan(), plan_.worker.value);
  if (environment_.snapshots == nullptr || !environment_.snapshots->memory().has_room() ||
      !plan_.snapshots.any() || !peer.has_value() || plan_.topology().weights_in_file) {
    return;
  }
  snapshots_ = std::make_unique<SnapshotKeeper>(
      *environment_.snapshots, request_.job_id(), request_.epoch(), *peer,
      [this](int64_t step, const absl::StatusOr<SnapshotKeeper::Kept>& kept) {
        ReportSnapshot(step, kept);
      });
}

std::unique_ptr<FileStore> TrainingRun::OpenRemoteCheckpoints() {
  if (environment_.open_checkpoints == nullptr) return nullptr;
  // The executor is the last that is made. From then on nothing is read, and the writer knows when to stop.
  return environment_.open_checkpoints(
      [this] { return executor_ == nullptr ? environment_.may_go_on() : writer_.cancelled(); });
}

absl::Status TrainingRun::OpenData() {
  if (environment_.data_fetcher != nullptr) environment_.data_fetcher->BeginRun();
  const std::vector<StageId> stages = plan_.topology().StagesOf(plan_.worker);
  const bool reads = std::any_of(stages.begin(), stages.end(), [this](StageId stage) {
    return ReadsData(plan_.job.model, plan_.layers[stage.value]) ||
           WeighsReplicas(plan_.job, plan_.topology()[stage]);
  });
  if (!reads) return absl::OkStatus();
  v1::JobSpec spec = request_.spec();
  PENSTOCK_RETURN_IF_ERROR(
      FetchPutData(environment_.data_fetcher, environment_.may_go_on, *spec.mutable_data()));
  PENSTOCK_ASSIGN_OR_RETURN(data_, penstock::OpenData(data_files(), spec, plan_.job,
                                                      environment_.data_root, environment_.limits));
  return absl::OkStatus();
}

absl::Status TrainingRun::CheckRoom(int64_t needed, absl::string_view what) const {
  std::vector<LayerRange> updated;
  for (const StageId id : plan_.topology().StagesOf(plan_.worker)) {
    if (plan_.topology()[id].updates) updated.push_back(plan_.layers[id.value]);
  }
  return CheckFits(plan_.job, updated, needed, plan_.workers[plan_.worker.value],
                   static_cast<double>(device_memory_bytes_),
                   absl::StrCat(what,
                                "; more stages, pipeline.recompute: all, smaller microbatches or a "
                                "worker with more memory would do"));
}

absl::Status TrainingRun::CheckRoomForLayers() {
  device_memory_bytes_ = environment_.device_memory_bytes > 0
                             ? environment_.device_memory_bytes
                             : environment_.backend.memory_bytes(/*processes=*/1);
  const std::vector<TapeNeeds> no_passes(plan_.job.model.nodes.size());
  PENSTOCK_ASSIGN_OR_RETURN(const WorkerMemory memory, PredictWith(no_passes));
  return CheckRoom(memory.total(), ", for weights, gradients, the optimizer's state and messages");
}

absl::Status TrainingRun::MakeStages() {
  for (const StageId id : plan_.topology().StagesOf(plan_.worker)) {
    LocalStage local = {.id = id, .layers = plan_.layers[id.value]};
    local.lateness = plan_.lateness[id.value];
    if (SharesEarlierStage(local)) {
      local.stage = LocalOf(plan_.topology()[id].holder).stage;
    } else {
      PENSTOCK_ASSIGN_OR_RETURN(local.stage,
                                Stage::Create(environment_.backend, plan_.job.model,
                                              StageOptionsOf(plan_.layout(), id, local.lateness)));
      local.memory = local.stage->memory();
    }
    local.meter = std::make_unique<StageMeter>(environment_.limits.duration_samples_max);
    local.offloads = plan_.counts[id.value].offloaded_peak > 0;
    TellFallbacks(local);
    stages_.push_back(std::move(local));
  }
  PENSTOCK_RETURN_IF_ERROR(MakeOffloadStore());
  PENSTOCK_RETURN_IF_ERROR(MakeStateFile());
  PENSTOCK_RETURN_IF_ERROR(MakeCoders());
  memory_bytes_ =
      environment_.backend.pool().stats().bytes_in_use + environment_.backend.scratch_bytes();
  PENSTOCK_ASSIGN_OR_RETURN(predicted_memory_bytes_, PredictMemory());
  PENSTOCK_RETURN_IF_ERROR(CheckRoom(predicted_memory_bytes_, ", passes included"));
  if (!plan_.job.draws()) return absl::OkStatus();
  // The moment when the most versions are live is random, too; it must not be the middle of a run
  // that finds no memory for them.
  for (LocalStage& local : stages_) PENSTOCK_RETURN_IF_ERROR(local.stage->ReserveVersions());
  return absl::OkStatus();
}

void TrainingRun::TellFallbacks(LocalStage& local) const {
  const Stage::Fallbacks& fallbacks = local.stage->fallbacks();
  local.meter->figure(v1::StageReport::kAttentionFallbacksFieldNumber).Set(fallbacks.nodes);
  if (fallbacks.nodes == 0) return;
  environment_.notice(absl::StrCat("stage ", local.id.value,
                                   ": attention is several times slower than it could be in ",
                                   fallbacks.nodes, " of its nodes, the first ", fallbacks.first));
}

absl::Status TrainingRun::MakeOffloadStore() {
  int64_t bytes = 0;
  for (const LocalStage& local : stages_) {
    bytes += plan_.counts[local.id.value].offloaded_peak *
             RoomInFile(local.stage->activation_bytes().stash);
  }
  if (bytes == 0) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(
      offload_store_, OpenOffloadStore(environment_.backend, environment_.offload_directory, bytes,
                                       environment_.clock));
  for (LocalStage& local : stages_) {
    if (local.offloads) local.stage->OffloadTo(*offload_store_);
  }
  return absl::OkStatus();
}

absl::Status TrainingRun::MakeStateFile() {
  if (!plan_.topology().weights_in_file) return absl::OkStatus();
  constexpr absl::string_view kKey = "pipeline.stream_weights";
  PENSTOCK_RETURN_IF_ERROR(CheckComputesInHostMemory(kKey, "file", "use on"));
  PENSTOCK_ASSIGN_OR_RETURN(
      const std::string directory,
      OffloadDirectory(kKey, "weights and optimizer's state", environment_.offload_directory));
  std::vector<Stage*> stored;
  std::vector<Stage*> summed;
  for (LocalStage& local : stages_) {
    local.file_is_waited_for = true;
    if (local.stage->stores_state()) stored.push_back(local.stage.get());
    if (plan_.topology().StoresSums(local.id) && local.stage->gradient_count() > 0) {
      summed.push_back(local.stage.get());
    }
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      state_file_, StateFile::Create(directory, stored, summed, environment_.backend.pool(),
                                     environment_.clock));
  return absl::OkStatus();
}

absl::Status TrainingRun::CheckComputesInHostMemory(absl::string_view key, absl::string_view value,
                                                    absl::string_view instead) const {
  if (!HasOwnMemory()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      key, ": ", value, " is for workers that compute in the host's memory, but this one has ",
      environment_.backend.name(), "; ", instead, ", or start it with --device cpu"));
}

absl::Status TrainingRun::MakeCoders() {
  const MessageCompression& compression = plan_.job.compression;
  if (!compression.any()) return absl::OkStatus();
  PENSTOCK_RETURN_IF_ERROR(CheckComputesInHostMemory(
      "pipeline.compress", compression.kind == MessageCompression::Kind::kInt8 ? "int8" : "topk",
      "use off"));
  for (LocalStage& local : stages_) {
    PENSTOCK_ASSIGN_OR_RETURN(
        local.coders, StageCoders::Make(environment_.backend.pool(), plan_.job, plan_.topology(),
                                        local.id, local.layers));
  }
  return absl::OkStatus();
}

void TrainingRun::KeepIdleBlocks(bool keep) {
  if (state_file_ == nullptr) return;
  const int64_t predicted = predicted_memory_bytes_ - environment_.backend.scratch_bytes();
  environment_.backend.pool().HoldAtMost(keep ? predicted : 0);
  malloc_trim(0);  // what layers took on their way
}

absl::StatusOr<WorkerMemory> TrainingRun::PredictWith(absl::Span<const TapeNeeds> needs) const {
  return PredictWorkerMemory(plan_.layout(), plan_.worker, needs, HasOwnMemory());
}

absl::StatusOr<int64_t> TrainingRun::PredictMemory() const {
  const ModelGraph& model = plan_.job.model;
  std::vector<TapeNeeds> needs(model.nodes.size());  // of the nodes that are here
  for (const LocalStage& local : stages_) {
    const std::vector<TapeNeeds>& own = local.stage->tape_needs();
    std::copy(own.begin(), own.end(), needs.begin() + model.layers[local.layers.first].first_node);
  }
  PENSTOCK_ASSIGN_OR_RETURN(const WorkerMemory memory, PredictWith(needs));
  // The device's use by now is counted, not predicted: beside its stages it may need more.
  return memory_bytes_ + memory.stashed_weights + memory.activations;
}

absl::Status TrainingRun::LoadStart() {
  KeepIdleBlocks(false);
  PENSTOCK_RETURN_IF_ERROR(LoadLayersAndState());
  KeepIdleBlocks(true);
  return absl::OkStatus();
}

absl::Status TrainingRun::LoadLayersAndState() {
  if (request_.has_snapshot()) return LoadSnapshot();
  const std::string& directory = request_.checkpoint();
  if (directory.empty()) {
    for (LocalStage& local : stages_) {
      if (!SharesEarlierStage(local)) PENSTOCK_RETURN_IF_ERROR(LoadFirstWeights(local));
    }
    return absl::OkStatus();
  }
  PENSTOCK_ASSIGN_OR_RETURN(const Manifest manifest, ReadManifest(checkpoints(), directory));
  return LoadCheckpoint(checkpoints(), directory, manifest);
}

absl::Status TrainingRun::LoadFirstWeights(LocalStage& local) {
  v1::ModelSpec model = request_.spec().model();
  PENSTOCK_RETURN_IF_ERROR(FetchPutWeights(environment_.data_fetcher, data_files(),
                                           environment_.may_go_on, plan_.job, local.layers, model));
  // A new optimizer's state is in the file from the start.
  const bool stores = local.stage->stores_state();
  if (stores) {
    PENSTOCK_RETURN_IF_ERROR(state_file_->BringIn(*local.stage, {.state = false}).status());
  }
  PENSTOCK_RETURN_IF_ERROR(penstock::LoadFirstWeights(
      {.files = data_files(), .root = environment_.data_root, .model = model, .job = plan_.job},
      local.layers, environment_.may_go_on, *local.stage));
  return stores ? state_file_->PutBack(*local.stage).status() : absl::OkStatus();
}

absl::Status TrainingRun::LoadLayersOf(LocalStage& local, FileReader& files,
                                       const std::string& directory, const Manifest& manifest) {
  Stage& stage = *local.stage;
  const auto dropped = [&](int layer) { NoticeDropped(local, layer); };
  const auto load = [&](LayerFiles wanted) {
    return LoadLayers(files, directory, manifest, plan_.job.model, local.layers,
                      environment_.may_go_on, local.coders, dropped, stage, wanted);
  };
  if (!stage.stores_state()) return load(LayerFiles::kBoth);
  for (const LayerFiles wanted : {LayerFiles::kWeights, LayerFiles::kOptimizerState}) {
    const bool weights = wanted == LayerFiles::kWeights;
    PENSTOCK_RETURN_IF_ERROR(
        state_file_->BringIn(stage, {.weights = weights, .state = !weights}).status());
    PENSTOCK_RETURN_IF_ERROR(load(wanted));
    PENSTOCK_RETURN_IF_ERROR(state_file_->PutBack(stage).status());
  }
  return absl::OkStatus();
}

void TrainingRun::NoticeDropped(const LocalStage& local, int layer) const {
  environment_.notice(absl::StrCat(
      "stage ", local.id.value, ": the checkpoint has what compressed messages left out at layer ",
      plan_.job.model.layers[layer].name,
      ", where this run sends none of that size; they go on without it"));
}

absl::Status TrainingRun::LoadSnapshot() {
  const v1::PeerSnapshot& snapshot = request_.snapshot();
  if (environment_.snapshots == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(snapshot.directory(), ": this worker cannot read snapshots"));
  }
  const absl::StatusOr<Manifest> manifest = ParseManifest(absl::string_view(snapshot.manifest()));
  absl::Status loaded = manifest.status();
  if (loaded.ok()) {
    SnapshotReader reader(*environment_.snapshots, snapshot, *manifest, environment_.may_go_on);
    loaded = LoadCheckpoint(reader, snapshot.directory(), *manifest);
  }
  if (!absl::IsDataLoss(loaded)) return loaded;
  // It is the memory's fault, and not the job's.
  return absl::FailedPreconditionError(absl::StrCat(snapshot.directory(), ": ", loaded.message()));
}

absl::Status TrainingRun::LoadCheckpoint(FileReader& files, const std::string& directory,
                                         const Manifest& manifest) {
  PENSTOCK_RETURN_IF_ERROR(
      Annotate(CompareFingerprints(manifest.fingerprint, FingerprintOf(request_.spec(), plan_.job)),
               absl::string_view(directory)));
  if (manifest.step != plan_.first_step) {
    return absl::InvalidArgumentError(absl::StrCat(directory, ": is of step ", manifest.step,
                                                   ", but the run goes on after step ",
                                                   plan_.first_step));
  }
  for (LocalStage& local : stages_) {
    local.first_version = manifest.UpdatesOf(NumberOf(local.layers.first));
    if (SharesEarlierStage(local)) continue;
    NoticeOtherUpdates(manifest, local);
    PENSTOCK_RETURN_IF_ERROR(LoadLayersOf(local, files, directory, manifest));
    if (!plan_.job.draws()) continue;
    if (manifest.method != plan_.job.method->name) {
      environment_.notice(
          absl::StrCat("stage ", local.id.value, ": the checkpoint was made with ", manifest.method,
                       "; the optimizer's bias corrections go on as if ", plan_.job.method->name,
                       " had sampled from the first step on"));
    }
    local.stage->SetVersion(manifest.updates, plan_.job.MovesUntil(plan_.first_step, local.id.value,
                                                                   plan_.topology().stages()));
  }
  return absl::OkStatus();
}

void TrainingRun::NoticeOtherUpdates(const Manifest& manifest, const LocalStage& local) const {
  for (int layer = local.layers.first; layer < local.layers.end(); ++layer) {
    if (manifest.UpdatesOf(NumberOf(layer)) == local.first_version) continue;
    return environment_.notice(absl::StrCat(
        "stage ", local.id.value,
        ": the checkpoint's layers were on stages with other numbers of "
        "replicas; all count as updated ",
        local.first_version, " times, as the first of them, in the optimizer's bias corrections"));
  }
}

absl::Status TrainingRun::OpenEdges() {
  for (const LocalStage& local : stages_) {
    const int64_t bytes = std::max(ActivationBytesAt(plan_.job, local.layers.first),
                                   ActivationBytesAt(plan_.job, local.layers.end()));
    if (bytes <= environment_.limits.tensor_bytes_max) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("an activation of one microbatch has ", bytes,
                     " bytes, more than the limit of ", environment_.limits.tensor_bytes_max,
                     " for a message; use more training.microbatches or a smaller model"));
  }
  for (const LocalStage& local : stages_) PENSTOCK_RETURN_IF_ERROR(CheckReplicaChunk(local));
  PENSTOCK_RETURN_IF_ERROR(EmulateLinks());
  transport().UseShare(environment_.backend.share());
  PENSTOCK_RETURN_IF_ERROR(OpenStageEdges());
  PENSTOCK_ASSIGN_OR_RETURN(
      collectives_,
      Collectives::Open(
          {.job = plan_.job,
           .topology = plan_.topology(),
           .layers = plan_.layers,
           .worker = plan_.worker,
           .receive_timeout = environment_.limits.receive_timeout(plan_.topology().depth()),
           .notice = environment_.notice,
           .names = plan_.workers},
          transport(), environment_.backend, environment_.clock));
  return absl::OkStatus();
}

absl::Status TrainingRun::OpenStageEdges() {
  const Topology& topology = plan_.topology();
  edges_.receivers.resize(topology.edges.size());
  edges_.senders.resize(topology.edges.size());
  for (size_t number = 0; number < topology.edges.size(); ++number) {
    const Edge& edge = topology.edges[number];
    const EdgeId id = {edge.kind, edge.from.value, edge.to.value};
    const bool receives = topology.worker(edge.to) == plan_.worker;
    const bool sends = topology.worker(edge.from) == plan_.worker;
    if (receives == sends) continue;
    PENSTOCK_ASSIGN_OR_RETURN(const int64_t bytes,
                              MessageBytes(edge, LocalOf(sends ? edge.from : edge.to)));
    if (sends) {
      PENSTOCK_ASSIGN_OR_RETURN(edges_.senders[number],
                                transport().OpenSender(id, plan_.edge_capacity, bytes));
      continue;
    }
    PENSTOCK_ASSIGN_OR_RETURN(
        edges_.receivers[number],
        transport().OpenReceiver(id, plan_.edge_capacity, bytes, environment_.backend.host_pool()));
    if (plan_.job.order == Order::kRecorded) edges_.receivers[number]->RingOnArrival(&bell_);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> TrainingRun::MessageBytes(const Edge& edge, const LocalStage& local) const {
  const LayerRange& from = plan_.layers[edge.from.value];
  if (edge.kind == EdgeKind::kActivation) return ActivationBytesAt(plan_.job, from.end());
  if (edge.kind == EdgeKind::kGradient) return GradientBytesAt(plan_.job, from.first);
  if (edge.kind == EdgeKind::kRequest) return kRequestFloats * SizeOf(DType::kF32);
  const bool weights = edge.kind == EdgeKind::kWeights;
  if (edge.kind != EdgeKind::kSum && !weights) return ActivationBytesAt(plan_.job, from.first);
  const int64_t floats = weights ? local.stage->weight_shape().elements()
                                 : SumFloats(local.stage->gradient_count(), local.stage->is_last());
  const int64_t bytes = floats * SizeOf(DType::kF32);
  if (bytes <= environment_.limits.tensor_bytes_max) return bytes;
  return absl::InvalidArgumentError(
      absl::StrCat("stage ", local.id.value, " has ", weights ? "weights" : "gradients", " of ",
                   bytes, " bytes, more than the limit of ", environment_.limits.tensor_bytes_max,
                   " for a message; use more pipeline.stages, so that each has fewer layers"));
}

int64_t TrainingRun::ActivationBytesSent(StageId stage) const {
  int64_t bytes = 0;
  edges_.ForEachSender(plan_.topology(), stage, [&](const Edge& edge, const Sender& sender) {
    if (edge.kind == EdgeKind::kActivation) bytes += sender.bytes_sent();
  });
  return bytes;
}

absl::Status TrainingRun::CheckReplicaChunk(const LocalStage& local) const {
  const int32_t replicas = plan_.topology()[local.id].replicas;
  int64_t floats = local.stage->buffer_count();
  for (const GradientBucket& bucket : GradientBucketsOfLayers(plan_.job.model, local.layers)) {
    floats = std::max(floats, bucket.count);
  }
  const int64_t bytes = ReplicaChunkBytes(floats, replicas);
  if (replicas == 1 || bytes <= environment_.limits.tensor_bytes_max) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "stage ", local.id.value, ": each of its ", replicas, " replicas adds up ", bytes,
      " bytes of its gradients or buffers, more than the limit of ",
      environment_.limits.tensor_bytes_max,
      " for a message; use more pipeline.stages, so that each has fewer layers, or more "
      "pipeline.replicas"));
}

absl::Status TrainingRun::MakeEmulation() {
  if (!environment_.emulated_device.has_value()) return absl::OkStatus();
  const EmulatedDevice& device = *environment_.emulated_device;
  if (device_spans_ != nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "device ", device.times.device(), " cannot be emulated on ", environment_.backend.name(),
        ", which works on when a call returns; start this worker with --device cpu"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(SimulationCosts costs,
                            RunCostsOf(device.times, plan_.job, plan_.topology(), plan_.layers));
  std::vector<std::vector<double>> weight_done;
  for (const LayerRange& layers : plan_.layers) {
    PENSTOCK_ASSIGN_OR_RETURN(weight_done.emplace_back(),
                              WeightPartsDone(device.times, plan_.job.model, layers));
  }
  emulation_ = std::make_unique<DeviceEmulation>(
      DeviceEmulation::Options{.stages = std::move(costs.stages),
                               .weight_done = std::move(weight_done),
                               .jitter = device.times.jitter(),
                               .seed = device.times.jitter_seed(),
                               .worker = plan_.worker,
                               .workers = plan_.topology().workers,
                               .cores = device.cores},
      environment_.clock, device.sleep, [this] { return gate_.cancelled(); });
  return absl::OkStatus();
}

absl::Status TrainingRun::EmulateLinks() {
  if (!environment_.emulated_device.has_value()) return absl::OkStatus();
  PENSTOCK_ASSIGN_OR_RETURN(
      SimulationCosts costs,
      RunCostsOf(environment_.emulated_device->times, plan_.job, plan_.topology(), plan_.layers));
  if (!costs.worker_links.has_value()) return absl::OkStatus();
  if (plan_.job.order == Order::kRecorded) {
    return absl::InvalidArgumentError(
        "links cannot be emulated with pipeline.order recorded, where a worker goes on when a "
        "message really comes; use the static order, or leave links out of the device times");
  }
  std::vector<WorkerId> worker_of;
  for (const StageWiring& stage : plan_.topology().table) worker_of.push_back(stage.worker);
  links_ = std::make_unique<EmulatedLinks>(environment_.transport, *std::move(costs.worker_links),
                                           std::move(worker_of));
  return absl::OkStatus();
}

absl::Status TrainingRun::MakeExecutor() {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<DeviceMarks> marks,
                            environment_.backend.MakeMarks(DeviceSpans::kMarks));
  if (marks != nullptr) {
    device_spans_ = std::make_unique<DeviceSpans>(
        environment_.clock, [this] { return environment_.backend.Synchronize(); }, std::move(marks),
        recorder_);
  }
  PENSTOCK_RETURN_IF_ERROR(MakeEmulation());
  const auto training_program = [this](MicrobatchRange range) -> absl::StatusOr<WorkerProgram> {
    const int64_t per_step = plan_.job.microbatches;
    PENSTOCK_ASSIGN_OR_RETURN(
        Schedule schedule,
        ScheduleOfSteps(plan_.job, plan_.schedule, range.first / per_step, range.end() / per_step));
    return WorkerProgram{std::move(schedule.programs[plan_.worker.value]), schedule.weight_policy};
  };
  executor_ = std::make_unique<Executor>(
      ExecutorParts{.job = plan_.job,
                    .topology = plan_.topology(),
                    .layers = plan_.layers,
                    .worker = plan_.worker,
                    .limits = environment_.limits,
                    .clock = environment_.clock,
                    .backend = environment_.backend,
                    .data = data_.get(),
                    .gate = gate_,
                    .recorder = recorder_,
                    .device_spans = device_spans_.get(),
                    .emulation = emulation_.get(),
                    .collectives = *collectives_,
                    .state_file = state_file_.get(),
                    .stages = stages_,
                    .edges = edges_,
                    .bell = &bell_,
                    .in_flight_max = plan_.InFlightMax(),
                    .training_program = training_program,
                    .on_step = [this](const StepResult& result) { ReportStep(result); },
                    .notice = environment_.notice});
  return absl::OkStatus();
}

absl::Status TrainingRun::Execute() {
  const absl::StatusOr<int64_t> step = TrainToTheEnd();
  gate_.Close();
  if (!step.ok()) {
    writer_.Cancel(step.status());
    if (snapshots_ != nullptr) snapshots_->Cancel(step.status());
    environment_.transport.Cancel(step.status());
  }
  ReportEnd(step);
  return step.status();
}

absl::StatusOr<int64_t> TrainingRun::TrainToTheEnd() {
  int64_t step = plan_.first_step;
  // Some of its copies may be gone with the worker that was lost.
  if (request_.has_snapshot()) PENSTOCK_RETURN_IF_ERROR(KeepSnapshot(step));
  for (const Cut& cut : plan_.cuts) {
    if (early_stop_.Over()) break;
    PENSTOCK_ASSIGN_OR_RETURN(step, TrainToCut(step, cut));
    if (step < cut.step) break;
  }
  PENSTOCK_RETURN_IF_ERROR(WaitForCheckpoint());
  if (snapshots_ != nullptr) (void)snapshots_->Wait(kLastSnapshotTimeout);  // few will need it
  PENSTOCK_ASSIGN_OR_RETURN(final_digests_, LayerDigests());
  PENSTOCK_RETURN_IF_ERROR(environment_.backend.Synchronize());
  PENSTOCK_FAULT_POINT_STATUS(kRunBeforeDone);
  return step;
}

absl::StatusOr<int64_t> TrainingRun::TrainToCut(int64_t from_step, const Cut& cut) {
  int64_t step = from_step;
  for (int64_t next = from_step; step == next && step < cut.step;) {
    if (step > from_step) PENSTOCK_RETURN_IF_ERROR(KeepSnapshot(step));
    next = std::min(cut.step, plan_.snapshots.Next(step));
    PENSTOCK_ASSIGN_OR_RETURN(const MicrobatchRange done,
                              executor_->Train(RangeOfSteps(plan_.job, step, next)));
    step = done.end() / plan_.job.microbatches;
  }
  PENSTOCK_FAULT_POINT_STATUS(kRunAtCut);
  if (step > from_step) ReportCut(step);
  const bool cut_short = step < cut.step;
  if (cut.validate && !cut_short) PENSTOCK_RETURN_IF_ERROR(Validate(step));
  const bool ends = cut_short || early_stop_.Over();
  const bool saves = ends && SavesDrains() ? step > plan_.first_step : !cut_short && cut.checkpoint;
  if (saves && step != saved_step_) {
    PENSTOCK_RETURN_IF_ERROR(SaveCheckpoint(step));
  } else if (plan_.snapshots.at_cuts && !cut_short && step < plan_.job.steps) {
    PENSTOCK_RETURN_IF_ERROR(KeepSnapshot(step));
  }
  return step;
}

bool TrainingRun::HasLossOfEvaluation() const {
  const Topology& topology = plan_.topology();
  return topology.worker(topology.TellsEvaluations()) == plan_.worker;
}

absl::Status TrainingRun::Validate(int64_t step) {
  const Schedule schedule =
      BuildEvaluation(plan_.topology(), {.first = 0, .count = plan_.job.validation_batches});
  std::vector<int64_t> sent_before;
  for (const LocalStage& local : stages_) sent_before.push_back(ActivationBytesSent(local.id));
  PENSTOCK_ASSIGN_OR_RETURN(const Evaluation evaluation,
                            executor_->Evaluate(schedule.programs[plan_.worker.value], step));
  for (size_t i = 0; i < stages_.size(); ++i) {
    stages_[i]
        .meter->figure(v1::StageReport::kValidationBytesSentFieldNumber)
        .Add(ActivationBytesSent(stages_[i].id) - sent_before[i]);
  }
  if (early_stop_.watches()) {
    PENSTOCK_ASSIGN_OR_RETURN(const double loss, executor_->ShareLoss(evaluation.loss));
    early_stop_.Ends(loss);
  }
  if (!HasLossOfEvaluation()) return absl::OkStatus();
  v1::RunEvent event;
  v1::ValidationDone& done = *event.mutable_validation_done();
  done.set_step(step);
  done.set_loss(evaluation.loss);
  WriteMetrics(evaluation.metrics, *done.mutable_metrics());
  Emit(std::move(event));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<LayerSnapshot>> TrainingRun::CopyStages() {
  const int64_t before_ns = environment_.clock.MonotonicNs();
  std::vector<LayerSnapshot> layers;
  for (LocalStage& local : stages_) {
    if (!plan_.topology()[local.id].of_model) continue;
    std::vector<LayerSnapshot> copies = CopyLayers(*local.stage, plan_.job.model, local.layers);
    CopyLeftOut(local.coders, copies);
    std::move(copies.begin(), copies.end(), std::back_inserter(layers));
  }
  // A device that failed gave nothing worth keeping.
  PENSTOCK_RETURN_IF_ERROR(environment_.backend.Synchronize());
  checkpoint_wait_ns_.Add(environment_.clock.MonotonicNs() - before_ns);
  return layers;
}

absl::Status TrainingRun::SaveCheckpoint(int64_t step) {
  PENSTOCK_RETURN_IF_ERROR(WaitForCheckpoint());
  const std::string staging =
      StagingPath(request_.spec().checkpoint().directory(), step, request_.staging_tag());
  if (state_file_ != nullptr) {
    const int64_t before_ns = environment_.clock.MonotonicNs();
    const absl::StatusOr<std::vector<SavedLayer>> saved = SaveFromFile(staging);
    checkpoint_wait_ns_.Add(environment_.clock.MonotonicNs() - before_ns);
    saved_step_ = step;
    ReportSave(step, saved);
    return writer_.cancelled();
  }
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<LayerSnapshot> layers, CopyStages());
  saved_step_ = step;
  for (LayerSnapshot& layer : layers) Attach(layer);
  writer_.Start(staging, std::move(layers),
                [this, step](const absl::StatusOr<std::vector<SavedLayer>>& saved) {
                  ReportSave(step, saved);
                });
  return absl::OkStatus();
}

void TrainingRun::Attach(LayerSnapshot& layer) const {
  if (layer.state.layer == 0 && data_ != nullptr) layer.attached = data_->attached_files();
}

absl::StatusOr<std::vector<SavedLayer>> TrainingRun::SaveFromFile(const std::string& staging) {
  KeepIdleBlocks(false);
  const absl::Cleanup done = [this] { KeepIdleBlocks(true); };  // training goes on if this fails
  std::vector<SavedLayer> all;
  for (LocalStage& local : stages_) {
    if (!plan_.topology()[local.id].of_model) continue;
    for (int layer = local.layers.first; layer < local.layers.end(); ++layer) {
      std::vector<LayerSnapshot> snapshot(1);
      PENSTOCK_ASSIGN_OR_RETURN(snapshot.front(), CopyFromFile(local, layer));
      PENSTOCK_ASSIGN_OR_RETURN(
          std::vector<SavedLayer> saved,
          SaveLayers(checkpoints(), staging, snapshot, [this] { return writer_.cancelled(); }));
      std::move(saved.begin(), saved.end(), std::back_inserter(all));
    }
  }
  return all;
}

absl::StatusOr<LayerSnapshot> TrainingRun::CopyFromFile(LocalStage& local, int layer) {
  LayerSnapshot snapshot;
  Stage& stage = *local.stage;
  const ModelGraph& model = plan_.job.model;
  PENSTOCK_RETURN_IF_ERROR(state_file_->BringIn(stage, {.state = false}).status());
  CopyWeights(stage, model, local.layers, layer, snapshot);
  StateFile::Drop(stage);
  PENSTOCK_RETURN_IF_ERROR(state_file_->BringIn(stage, {.weights = false}).status());
  CopyOptimizerState(stage, model, local.layers, layer, snapshot);
  StateFile::Drop(stage);
  Attach(snapshot);
  return snapshot;
}

absl::Status TrainingRun::WaitForCheckpoint() {
  const int64_t before_ns = environment_.clock.MonotonicNs();
  absl::Status status = writer_.Wait(environment_.limits.checkpoint_timeout);
  checkpoint_wait_ns_.Add(environment_.clock.MonotonicNs() - before_ns);
  return status;
}

absl::Status TrainingRun::KeepSnapshot(int64_t step) {
  if (snapshots_ == nullptr) return absl::OkStatus();
  const int64_t before_ns = environment_.clock.MonotonicNs();
  const absl::Status last = snapshots_->Wait(environment_.limits.checkpoint_timeout);
  checkpoint_wait_ns_.Add(environment_.clock.MonotonicNs() - before_ns);
  if (absl::IsDeadlineExceeded(last)) return absl::OkStatus();  // training goes on without this one
  PENSTOCK_RETURN_IF_ERROR(last);
  PENSTOCK_ASSIGN_OR_RETURN(std::vector<LayerSnapshot> layers, CopyStages());
  snapshots_->Keep(step, std::move(layers));
  return absl::OkStatus();
}

absl::Status TrainingRun::CutAt(int64_t step) {
  absl::Status status = gate_.CutAt(step);
  bell_.Ring();
  return status;
}

void TrainingRun::Stop(const std::string& reason) {
  const absl::Status status = absl::AbortedError(absl::StrCat("stopped: ", reason));
  stopped_ = true;
  gate_.Cancel(status);
  writer_.Cancel(status);
  if (snapshots_ != nullptr) snapshots_->Cancel(status);
  environment_.transport.Cancel(status);
  executor_->Cancel(status);
  bell_.Ring();
}

void TrainingRun::Emit(v1::RunEvent event) {
  MutexLock lock(events_mutex_);
  if (events_ended_) return;
  events_ended_ = event.has_run_done() || event.has_run_failed();
  environment_.events(std::move(event));
}

void TrainingRun::ReportStep(const StepResult& result) {
  v1::RunEvent event;
  v1::StepDone& done = *event.mutable_step_done();
  done.set_step(result.step);
  done.set_loss(result.loss);
  done.set_learning_rate(result.learning_rate);
  done.set_gradient_norm(result.gradient_norm);
  done.set_tokens(plan_.job.tokens_per_step());
  done.set_samples(plan_.job.batch);
  done.set_monotonic_ns(environment_.clock.MonotonicNs());
  Emit(std::move(event));
}

void TrainingRun::ReportCut(int64_t step) {
  v1::RunEvent event;
  event.mutable_cut_reached()->set_step(step);
  FillReports(*event.mutable_cut_reached()->mutable_stages());
  if (plan_.job.order == Order::kRecorded) {
    const OrderLog& log = executor_->order_log();
    v1::WorkerOrder& order = *event.mutable_cut_reached()->mutable_order();
    order.set_worker_index(plan_.worker.value);
    order.set_first_microbatch(log.range().first);
    order.set_microbatches(log.range().count);
    order.set_blocks(log.bytes());
  }
  Emit(std::move(event));
}

void TrainingRun::ReportSave(int64_t step, const absl::StatusOr<std::vector<SavedLayer>>& layers) {
  PENSTOCK_FAULT_POINT(kSaveBeforeReport);
  v1::RunEvent event;
  if (!layers.ok()) {
    v1::SaveFailed& failed = *event.mutable_save_failed();
    failed.set_step(step);
    failed.set_code(static_cast<v1::StatusCode>(layers.status().code()));
    failed.set_message(CleanUtf8(layers.status().message(), kErrorBytesMax));
    Emit(std::move(event));
    return;
  }
  *event.mutable_layers_saved() = SavedMessage(step, *layers);
  Emit(std::move(event));
}

void TrainingRun::ReportSnapshot(int64_t step, const absl::StatusOr<SnapshotKeeper::Kept>& kept) {
  if (stopped_) return;
  absl::Status trouble = kept.ok() ? kept->copied : kept.status();
  if (kept.ok()) {
    v1::RunEvent event;
    *event.mutable_layers_kept()->mutable_layers() = SavedMessage(step, kept->layers);
    if (kept->copied.ok()) *event.mutable_layers_kept()->mutable_copy() = kept->peer;
    Emit(std::move(event));
  }
  if (!trouble.ok() && snapshot_trouble_.ok()) {
    environment_.notice(
        absl::StrCat("the snapshot of step ", step,
                     kept.ok() ? " is here only: " : " is not kept: ", trouble.message()));
  }
  snapshot_trouble_ = std::move(trouble);
}

void TrainingRun::ReportEnd(const absl::StatusOr<int64_t>& step) {
  v1::RunEvent event;
  if (step.ok()) {
    v1::RunDone& done = *event.mutable_run_done();
    done.set_step(*step);
    done.set_stopped_early(early_stop_.Over());
    FillReports(*done.mutable_stages());
    for (v1::LayerDigest& digest : final_digests_) *done.add_layers() = std::move(digest);
  } else {
    v1::RunFailed& failed = *event.mutable_run_failed();
    failed.set_code(static_cast<v1::StatusCode>(step.status().code()));
    failed.set_message(CleanUtf8(step.status().message(), kErrorBytesMax));
    const std::optional<WorkerId> peer = executor_->failed_peer();
    if (peer.has_value() && !stopped_) failed.set_peer(plan_.workers[peer->value]);
    failed.set_not_finite(executor_->not_finite());
  }
  Emit(std::move(event));
}

absl::StatusOr<std::vector<v1::LayerDigest>> TrainingRun::LayerDigests() {
  KeepIdleBlocks(false);
  std::vector<v1::LayerDigest> digests;
  for (LocalStage& local : stages_) {
    if (!plan_.topology()[local.id].of_model) continue;
    const bool stores = local.stage->stores_state();
    if (stores) {
      PENSTOCK_RETURN_IF_ERROR(state_file_->BringIn(*local.stage, {.state = false}).status());
    }
    int layer = local.layers.first;
    for (const std::string& sha256 : local.stage->LayerDigests()) {
      digests.push_back(DigestMessage(NumberOf(layer), plan_.job.model.layers[layer].name, sha256));
      ++layer;
    }
    if (stores) StateFile::Drop(*local.stage);
  }
  return digests;
}

void TrainingRun::FillReports(google::protobuf::RepeatedPtrField<v1::StageReport>& stages) const {
  for (v1::StageReport& report : Reports()) *stages.Add() = std::move(report);
}

std::vector<v1::StageReport> TrainingRun::Reports() const {
  const BufferPool::Stats pool = environment_.backend.pool().stats();
  const int64_t scratch_bytes = environment_.backend.scratch_bytes();
  const WorkerMeasures measures = {.worker = plan_.workers[plan_.worker.value],
                                   .window_ns = executor_->window_ns(),
                                   .checkpoint_wait_ns = checkpoint_wait_ns_.value(),
                                   .memory_bytes = pool.bytes_in_use + scratch_bytes,
                                   .peak_memory_bytes = pool.bytes_peak + scratch_bytes,
                                   .scratch_bytes = scratch_bytes,
                                   .predicted_memory_bytes = predicted_memory_bytes_,
                                   .allocations_steady = executor_->allocations_steady(),
                                   .collective_bytes_sent = collectives_->bytes_sent(),
                                   .collective_messages_sent = collectives_->messages_sent(),
                                   .collective_paths = collectives_->paths(),
                                   .order = plan_.job.order,
                                   .product_rate = environment_.product_flops_per_second,
                                   .topology = plan_.topology(),
                                   .edges = edges_};
  std::vector<v1::StageReport> reports;
  for (const LocalStage& local : stages_) {
    reports.push_back(MakeStageReport(local, measures, &local == &stages_.front()));
  }
  return reports;
}

Timeline TrainingRun::RecentTimeline() const {
  return {.workers = plan_.topology().workers, .spans = recorder_.Recent()};
}

}  // namespace penstock
