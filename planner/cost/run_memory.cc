#include "planner/cost/run_memory.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "compute/array_bytes.h"
#include "compute/buffer_layout.h"
#include "compute/buffer_pool.h"
#include "compute/offload_store.h"
#include "compute/parameter_arena.h"
#include "compute/pass_plan.h"
#include "job/profile/model_profile.h"
#include "job/run/message_bytes.h"
#include "job/run/recorded.h"
#include "job/run/run_schedule.h"
#include "job/run/ties.h"
#include "planner/cost/memory_plan.h"

namespace penstock {
namespace {

// Predicts the memory of one worker of a run.
class MemoryOfWorker {
 public:
  MemoryOfWorker(const RunLayout& run, WorkerId worker, absl::Span<const TapeNeeds> needs,
                 bool own_memory)
      : run_(run),
        topology_(run.topology()),
        worker_(worker),
        needs_(needs),
        own_memory_(own_memory),
        ties_(TieGroupsOf(run.job.model, LayersOfParts(run.topology(), run.layers))) {}

  absl::StatusOr<WorkerMemory> Predict() const {
    WorkerMemory memory;
    std::vector<StageBytes> stages(run_.layers.size());
    for (const StageId id : topology_.StagesOf(worker_)) {
      const StageOptions options = StageOptionsOf(run_, id, StageLateness());
      stages[id.value] = BytesOf(id, options);
      if (topology_[id].holder == id) AddArrays(options, memory);
      if (topology_.StoresSums(id) && Gradients(id) > 0) {
        memory.in_file += RoomInFile(stages[id.value].sum);
      }
      AddMessages(id, stages[id.value], memory);
    }
    AddServed(stages);
    PENSTOCK_ASSIGN_OR_RETURN(memory.activations, Activations(stages));
    return memory;
  }

 private:
  void AddArrays(const StageOptions& options, WorkerMemory& memory) const {
    const ArrayBytes arrays = ArrayBytesOf(run_.job.model, options);
    if (options.stores_state) memory.in_file += StoredBytesOf(run_.job.model, options).in_file;
    memory.weights += arrays.version + arrays.frozen;
    memory.gradients += arrays.gradients;
    memory.optimizer += arrays.optimizer;
    memory.predicted_weights += arrays.predicted;
    memory.buffers += arrays.buffers;
    const int64_t versions = DeviceVersionsOf(options.stash, own_memory_, options.versions_max);
    memory.stashed_weights += (versions - 1) * arrays.version;
  }

  StageBytes BytesOf(StageId id, const StageOptions& options) const {
    const LayerRange layers = options.layers;
    const ModelGraph& model = run_.job.model;
    const std::vector<TapeNeeds> needs(needs_.begin() + model.layers[layers.first].first_node,
                                       needs_.begin() + model.layers[layers.end() - 1].end_node());
    const PassPlan plan = MakePassPlan(model, layers, run_.job.microbatch_samples, needs,
                                       CrossingType(run_.job.precision));
    StageBytes bytes = {
        .activations = ActivationBytesOf(plan, options.recomputes, layers.end() == model.size()),
        .tied_gradient = ReduceBytes(id)};
    if (topology_.form == Topology::Form::kThereAndBack) FitToRoundTrip(id, options, bytes);
    AddReplicaSums(id, bytes);
    return bytes;
  }

  // Adds what compressed messages take, of the stage and of their senders here (worker/message_coder.h).
  void AddMessages(StageId id, StageBytes& bytes, WorkerMemory& memory) const {
    if (!run_.job.compression.any()) return;
    const LayerRange layers = run_.layers[id.value];
    const auto message = [&](int64_t of_tensor, int64_t of_message, bool sends) {
      if (of_message == of_tensor) return int64_t{0};
      if (sends) {
        const int64_t numbers = of_tensor / SizeOf(CrossingType(run_.job.precision));
        memory.buffers += BufferPool::BlockBytes(numbers * SizeOf(DType::kF32));
      }
      return BufferPool::BlockBytes(of_message);
    };
    const auto joins = [&](EdgeKind kind, bool sends) {
      const StageId other =
          sends ? topology_.To(kind, id, /*microbatch=*/0) : topology_.From(kind, id, 0);
      return other.value >= 0 && topology_.worker(other) != worker_;
    };
    const auto activations = [&](int layer, bool sends) {
      if (!joins(EdgeKind::kActivation, sends)) return int64_t{0};
      return message(ActivationBytesAt(run_.job, layer), ActivationMessageBytesAt(run_.job, layer),
                     sends);
    };
    const auto gradients = [&](int layer, bool sends) {
      if (!joins(EdgeKind::kGradient, sends)) return int64_t{0};
      return message(GradientBytesAt(run_.job, layer), GradientMessageBytesAt(run_.job, layer),
                     sends);
    };
    bytes.input_message = activations(layers.first, /*sends=*/false);
    bytes.output_message = activations(layers.end(), /*sends=*/true);
    bytes.grad_input_message = gradients(layers.first, /*sends=*/true);
    bytes.grad_output_message = gradients(layers.end(), /*sends=*/false);
  }

  // Returns what a REDUCE of shared parameters takes for its time: a copy of a sum that is sent, and one that comes. Among
  // parts of one worker nothing is sent.
  int64_t ReduceBytes(StageId id) const {
    int64_t most = 0;
    for (size_t at = 0; at < topology_.groups.size(); ++at) {
      const ReduceGroup& group = topology_.groups[at];
      if (!topology_.IsOfTies(group)) continue;
      const GroupId of_ties(static_cast<int32_t>(at));
      for (const auto& [tie, sum] : TieGroupOf(ties_, topology_, of_ties).sums) {
        const auto messages = MessagesOf(topology_, group, sum);
        const bool sends =
            std::any_of(messages.begin(), messages.end(), [&](const TiedMessage& message) {
              return (message.from == id || message.to == id) &&
                     topology_.worker(message.from) != topology_.worker(message.to);
            });
        if (sends) most = std::max(most, 2 * TiedBytes(run_.job.model, tie));
      }
    }
    return most;
  }

  // Adds what the REDUCE of a stage with replicas takes.
  void AddReplicaSums(StageId id, StageBytes& bytes) const {
    const int32_t replicas = topology_[id].replicas;
    if (replicas == 1) return;
    const int64_t buffers =
        LayOutBuffers(run_.job.model, run_.layers[id.value], run_.job.batch).count;
    const std::vector<GradientBucket> buckets =
        GradientBucketsOfLayers(run_.job.model, run_.layers[id.value]);
    int64_t floats = buffers;
    for (const GradientBucket& bucket : buckets) floats = std::max(floats, bucket.count);
    const int64_t chunk = BufferPool::BlockBytes(ReplicaChunkBytes(floats, replicas));
    // One chunk goes to each other replica. Of several buckets the room of the edges (kCollectiveCapacity) may hold three
    // and a sum, beside the next one. Meanwhile there are what has come so far and what comes next.
    const int64_t sent = buckets.size() > 1 ? 3 * (replicas - 1) + 2 : replicas - 1;
    bytes.reduced_gradients = (sent + 2) * chunk;
    bytes.sent_gradients = chunk;
  }

  // Sets what a stage's passes and messages take where it does half of them.
  void FitToRoundTrip(StageId id, const StageOptions& options, StageBytes& bytes) const {
    bytes.part = topology_[id].part;
    const int64_t float_bytes = SizeOf(DType::kF32);
    bytes.sum = BufferPool::BlockBytes(SumFloats(Gradients(id), topology_[id].last) * float_bytes);
    if (topology_.streams_weights) {
      bytes.gradients = Gradients(id) > 0 ? BufferPool::BlockBytes(Gradients(id) * float_bytes) : 0;
      if (!options.borrows_weights && !options.stores_state) return;
      bytes.streamed_weights = StreamedBytes(id);
      if (HasMirror(options.precision)) {
        bytes.streamed_mirror = BufferPool::BlockBytes(
            ParameterArena(run_.job.model, options.layers).weight_count() * SizeOf(DType::kBf16));
      }
      if (!options.stores_state) return;
      bytes.updated = StoredBytesOf(run_.job.model, options).updated;
      return;
    }
    const int64_t weights = BufferPool::BlockBytes(
        WeightsOfLayers(run_.job.model, run_.layers[id.value]) * float_bytes);
    if (!options.updates) bytes.copied_weights = weights;
    if (topology_[id].updates && IsCopied(id)) bytes.sent_weights = weights;
  }

  // Sets what stages of other workers get from here.
  void AddServed(std::vector<StageBytes>& stages) const {
    for (int32_t id = 0; id < topology_.stages(); ++id) {
      const StageId source = topology_.table[id].source;
      if (source.value < 0 || topology_.worker(source) != worker_) continue;
      stages[id].streamed_weights = StreamedBytes(StageId(id));
      stages[id].in_file = topology_.weights_in_file;
    }
  }

  int64_t StreamedBytes(StageId id) const {
    return BufferPool::BlockBytes(StreamedFloats(run_.job.model, run_.layers[id.value]) *
                                  SizeOf(DType::kF32));
  }

  // Returns whether another worker gets the weights of the stage.
  bool IsCopied(StageId stage) const {
    for (int32_t id = 0; id < topology_.stages(); ++id) {
      const StageId other(id);
      const bool same_part = topology_[other].part == topology_[stage].part;
      if (same_part && topology_.worker(other) != topology_.worker(stage)) return true;
    }
    return false;
  }

  int64_t Gradients(StageId id) const {
    return GradientsOfLayers(run_.job.model, run_.layers[id.value]);
  }

  absl::StatusOr<int64_t> Activations(const std::vector<StageBytes>& stages) const {
    if (run_.job.order == Order::kRecorded) {
      const ReadyOrder order(
          topology_, worker_,
          ReadyOrderOptionsOf(run_.job, run_.schedule, MicrobatchRange(), InFlightMax()));
      Program fullest;
      fullest.prologue = order.FullestOrder();
      return PeakActivationBytes(fullest, stages);
    }
    int64_t activations = 0;
    int64_t from_step = run_.first_step;
    std::set<RangeKey> walked;
    for (const Cut& cut : run_.cuts) {
      const int64_t first_step = std::exchange(from_step, cut.step);
      if (!walked.insert(KeyOfSteps(run_.job, first_step, cut.step)).second) continue;
      PENSTOCK_ASSIGN_OR_RETURN(const Schedule schedule,
                                ScheduleOfSteps(run_.job, run_.schedule, first_step, cut.step));
      const Program& program = schedule.programs[worker_.value];
      activations = std::max(activations, topology_.streams_weights
                                              ? PeakStreamedBytes(program, stages, topology_)
                                              : PeakActivationBytes(program, stages));
    }
    return activations;
  }

  std::vector<int64_t> InFlightMax() const {
    std::vector<int64_t> in_flight_max;
    for (const StageCounts& stage : run_.counts) in_flight_max.push_back(stage.activations_peak);
    return in_flight_max;
  }

  const RunLayout& run_;
  const Topology& topology_;
  const WorkerId worker_;
  const absl::Span<const TapeNeeds> needs_;
  const bool own_memory_;
  const std::vector<TieGroup> ties_;
};

// Returns what the stages of a worker share. `needs`: by layer of the model. `layers`: by stage.
int64_t ScratchOf(const std::vector<ScratchBytes>& needs, absl::Span<const LayerRange> layers,
                  const std::vector<StageId>& stages) {
  ScratchBytes most;
  for (const StageId stage : stages) {
    for (int layer = layers[stage.value].first; layer < layers[stage.value].end(); ++layer) {
      most.of_pass = std::max(most.of_pass, needs[layer].of_pass);
      most.of_library = std::max(most.of_library, needs[layer].of_library);
    }
  }
  return most.total();
}

}  // namespace

absl::StatusOr<WorkerMemory> PredictWorkerMemory(const RunLayout& run, WorkerId worker,
                                                 absl::Span<const TapeNeeds> needs,
                                                 bool own_memory) {
  return MemoryOfWorker(run, worker, needs, own_memory).Predict();
}

int64_t UpdateBytesOf(const ResolvedJob& job, LayerRange layers) {
  const StageOptions options = {.layers = layers,
                                .precision = job.precision,
                                .drops_gradients = true,
                                .stores_state = true,
                                .optimizer = job.optimizer};
  const int64_t gradients = GradientsOfLayers(job.model, layers) * SizeOf(DType::kF32);
  return StoredBytesOf(job.model, options).updated +
         (gradients > 0 ? BufferPool::BlockBytes(gradients) : 0);
}

absl::Status CheckFits(const ResolvedJob& job, absl::Span<const LayerRange> ranges, int64_t needed,
                       absl::string_view name, double has, absl::string_view more) {
  if (static_cast<double>(needed) <= has) return absl::OkStatus();
  int largest = 0;
  int64_t most = 0;
  for (const LayerRange& range : ranges) {
    for (int layer = range.first; layer < range.end(); ++layer) {
      const int64_t bytes = UpdateBytesOf(job, {layer, 1});
      if (bytes > most) largest = layer;
      most = std::max(most, bytes);
    }
  }
  if (static_cast<double>(most) <= has) {
    return absl::ResourceExhaustedError(absl::StrFormat("needs %.6g MB on %s, which has %.6g MB%s",
                                                        static_cast<double>(needed) / 1e6, name,
                                                        has / 1e6, more));
  }
  return absl::ResourceExhaustedError(absl::StrFormat(
      "layer %s alone needs %.6g MB while it is updated, with its gradients and the optimizer's "
      "state, on %s, which has %.6g MB; a layer is never cut, so a model with smaller layers or an "
      "optimizer with less state would do",
      job.model.layers[largest].name, static_cast<double>(most) / 1e6, name, has / 1e6));
}

int64_t MostBytes(absl::Span<const WorkerMemory> workers) {
  int64_t most = 0;
  for (const WorkerMemory& worker : workers) most = std::max(most, worker.total());
  return most;
}

absl::StatusOr<std::vector<WorkerMemory>> PredictRunMemory(
    const ResolvedJob& job, const ScheduleOptions& schedule, absl::Span<const LayerRange> layers,
    int64_t first_step, absl::Span<const Cut> cuts, const v1::ModelProfile& profile,
    bool own_memory) {
  PENSTOCK_RETURN_IF_ERROR(CheckProfileFits(profile, job.model));
  PENSTOCK_RETURN_IF_ERROR(CheckProfilePrecision(profile, job.precision));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<TapeNeeds> needs,
                            TapeNeedsOf(profile, job.model, job.microbatch_samples));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<ScratchBytes> scratch,
                            ScratchNeedsOf(profile, job.model, job.microbatch_samples));
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StageCounts> counts,
                            CountsOfRun(job, schedule, first_step, cuts));
  const RunLayout run = {.job = job,
                         .schedule = schedule,
                         .layers = layers,
                         .first_step = first_step,
                         .cuts = cuts,
                         .counts = counts};
  std::vector<WorkerMemory> memory;
  for (int32_t worker = 0; worker < schedule.topology.workers; ++worker) {
    PENSTOCK_ASSIGN_OR_RETURN(memory.emplace_back(),
                              PredictWorkerMemory(run, WorkerId(worker), needs, own_memory));
    memory.back().scratch =
        ScratchOf(scratch, layers, schedule.topology.StagesOf(WorkerId(worker)));
  }
  return memory;
}

std::vector<LayerRange> LayersOfStages(const Topology& topology,
                                       absl::Span<const LayerRange> parts) {
  std::vector<LayerRange> layers;
  layers.reserve(topology.stages());
  for (int32_t s = 0; s < topology.stages(); ++s) {
    layers.push_back(parts[topology[StageId(s)].part]);
  }
  return layers;
}

}  // namespace penstock
