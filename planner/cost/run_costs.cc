#include "planner/cost/run_costs.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compute/optimizer.h"
#include "compute/tensor.h"
#include "job/profile/device_times.h"
#include "job/run/message_bytes.h"
#include "job/run/ties.h"
#include "model/bundle.h"

namespace penstock {
namespace {

void Hasten(double speed, StageCosts& costs) {
  costs.forward_s /= speed;
  costs.backward_input_s /= speed;
  costs.backward_weight_s /= speed;
  costs.update_s /= speed;
}

absl::Status CheckSpeeds(const v1::DeviceTimes& times, const Topology& topology) {
  if (times.speeds().empty() || times.speeds_size() == topology.workers) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("device times: speeds has ", times.speeds_size(),
                                                 " numbers, but the run has ", topology.workers,
                                                 " workers; one for each would do"));
}

absl::StatusOr<WorkerLinks> LinksOfWorkers(const v1::DeviceTimes& times, const Topology& topology) {
  WorkerLinks links;
  for (const v1::LinkTimes& entry : times.links()) {
    LinkSpeed link = {.latency_s = entry.latency_ms() * 1e-3};
    if (entry.has_gigabits_per_second()) {
      link.bytes_per_second = entry.gigabits_per_second() * 1e9 / 8.0;
    }
    if (entry.workers().empty()) {
      links.others = link;
      continue;
    }
    const int32_t last = std::max(entry.workers(0), entry.workers(1));
    if (last >= topology.workers) {
      return absl::InvalidArgumentError(absl::StrCat("device times: a link joins worker ", last,
                                                     ", but the run has workers 0 to ",
                                                     topology.workers - 1));
    }
    links.pairs[{std::min(entry.workers(0), entry.workers(1)), last}] = link;
  }
  return links;
}

Traffic::OfGroup TrafficOfGroup(GroupId id, absl::Span<const TieGroup> ties, const ResolvedJob& job,
                                const Topology& topology, absl::Span<const LayerRange> layers) {
  const ReduceGroup& group = topology.groups[id.value];
  const double float_bytes = SizeOf(DType::kF32);
  const LayerRange& range = layers[group.stages.front().value];
  Traffic::OfGroup traffic;
  if (topology.IsOfReplicas(group)) {
    const auto replicas = static_cast<int64_t>(group.stages.size());
    for (const GradientBucket& gradients : GradientBucketsOfLayers(job.model, range)) {
      Traffic::OfGroup::Bucket& bucket = traffic.buckets.emplace_back();
      for (int64_t rank = 0; rank < replicas; ++rank) {
        const ReplicaChunk chunk = ReplicaChunkOf(gradients.count, replicas, rank);
        bucket.parts.push_back(static_cast<double>(chunk.count) * float_bytes);
      }
    }
  } else if (group.operation == ReduceGroup::Operation::kCopy) {
    traffic.copied = static_cast<double>(WeightsOfLayers(job.model, range)) * float_bytes;
  } else if (topology.IsOfTies(group)) {
    for (const auto& [tie, sum] : TieGroupOf(ties, topology, id).sums) {
      traffic.tied.push_back({sum, static_cast<double>(TiedBytes(job.model, tie))});
    }
  }
  return traffic;
}

// Sets when buckets of gradients are whole.
absl::Status AddTimesOfBuckets(const v1::DeviceTimes& times, const ResolvedJob& job,
                               const Topology& topology, absl::Span<const LayerRange> layers,
                               Traffic& traffic) {
  for (size_t id = 0; id < topology.groups.size(); ++id) {
    std::vector<Traffic::OfGroup::Bucket>& buckets = traffic.groups[id].buckets;
    if (buckets.size() < 2) continue;
    const LayerRange& range = layers[topology.groups[id].stages.front().value];
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<double> done,
                              WeightPartsDone(times, job.model, range));
    const std::vector<GradientBucket> gradients = GradientBucketsOfLayers(job.model, range);
    for (size_t i = 0; i < buckets.size(); ++i) buckets[i].done = done[gradients[i].layer];
  }
  return absl::OkStatus();
}

// Returns the seconds to copy the values of a bundle together.
double PackSeconds(const v1::BundleTimes& times, const Bundle& bundle, DType crossing) {
  if (bundle.parts.size() < 2 && crossing == DType::kF32) return 0.0;
  const auto bytes = static_cast<double>(bundle.elements * SizeOf(crossing));
  return times.pack_ms_per_megabyte() * 1e-9 * bytes;
}

double UnpackSeconds(const v1::BundleTimes& times, const Bundle& bundle, DType crossing) {
  if (crossing == DType::kF32) return 0.0;
  const auto bytes = static_cast<double>(bundle.elements * SizeOf(crossing));
  return times.unpack_ms_per_megabyte() * 1e-9 * bytes;
}

}  // namespace

void AddBundles(const v1::BundleTimes& times, const ResolvedJob& job, LayerRange layers,
                StageCosts& costs) {
  if (times.pack_ms_per_megabyte() == 0.0 && times.unpack_ms_per_megabyte() == 0.0) return;
  const DType crossing = CrossingType(job.precision);
  const auto values = [&](int cut) {
    return ActivationsAt(job.model, cut, job.microbatch_samples);
  };
  const auto gradients = [&](int cut) {
    return GradientsAt(job.model, cut, job.microbatch_samples);
  };
  costs.forward_s += UnpackSeconds(times, values(layers.first), crossing) +
                     PackSeconds(times, values(layers.end()), crossing);
  costs.backward_input_s += UnpackSeconds(times, gradients(layers.end()), crossing) +
                            PackSeconds(times, gradients(layers.first), crossing);
}

absl::StatusOr<std::vector<double>> WeightPartsDone(const v1::DeviceTimes& times,
                                                    const ModelGraph& model, LayerRange layers) {
  std::vector<LayerRange> all;
  for (int layer = 0; layer < model.size(); ++layer) all.push_back({layer, 1});
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<StageCosts> costs, StageCostsOf(times, model, all));
  std::vector<double> done(layers.count);
  double seconds = 0.0;
  for (int layer = layers.count; layer-- > 0;) {
    seconds += costs[layers.first + layer].backward_weight_s;
    done[layer] = seconds;
  }
  // Where W takes no time, all is there at once.
  for (double& part : done) part = seconds > 0.0 ? std::min(1.0, part / seconds) : 1.0;
  return done;
}

Traffic TrafficOf(const ResolvedJob& job, const Topology& topology,
                  absl::Span<const LayerRange> layers) {
  Traffic traffic;
  for (const LayerRange& range : layers) {
    const auto input = static_cast<double>(ActivationBytesAt(job, range.first));
    traffic.stages.push_back(
        {.output = static_cast<double>(ActivationMessageBytesAt(job, range.end())),
         .grad_input = static_cast<double>(GradientMessageBytesAt(job, range.first)),
         .input = input});
  }
  const bool sums_travel = topology.form == Topology::Form::kThereAndBack;
  for (int32_t s = 0; sums_travel && s < topology.stages(); ++s) {
    const int64_t gradients = GradientsOfLayers(job.model, layers[s]);
    const int64_t floats = SumFloats(gradients, topology[StageId(s)].last);
    traffic.sums.push_back(static_cast<double>(floats * SizeOf(DType::kF32)));
  }
  for (int32_t s = 0; topology.streams_weights && s < topology.stages(); ++s) {
    const int64_t floats = StreamedFloats(job.model, layers[s]);
    traffic.weights.push_back(static_cast<double>(floats * SizeOf(DType::kF32)));
    traffic.request = static_cast<double>(kRequestFloats * SizeOf(DType::kF32));
  }
  const std::vector<TieGroup> ties = TieGroupsOf(job.model, LayersOfParts(topology, layers));
  for (size_t id = 0; id < topology.groups.size(); ++id) {
    traffic.groups.push_back(
        TrafficOfGroup(GroupId(static_cast<int32_t>(id)), ties, job, topology, layers));
  }
  // The norms are a double for each layer, from the worker that updates it; those of all pipelines are alike.
  traffic.norms.resize(topology.workers);
  for (int32_t s = 0; s < topology.stages(); ++s) {
    if (!topology.IsInNorm(StageId(s), 0)) continue;
    traffic.norms[topology.worker(StageId(s)).value] +=
        static_cast<double>(sizeof(double)) * layers[s].count;
  }
  return traffic;
}

absl::StatusOr<SimulationCosts> RunCostsOf(const v1::DeviceTimes& times, const ResolvedJob& job,
                                           const Topology& topology,
                                           absl::Span<const LayerRange> layers) {
  PENSTOCK_RETURN_IF_ERROR(CheckSpeeds(times, topology));
  SimulationCosts costs;
  PENSTOCK_ASSIGN_OR_RETURN(costs.stages, StageCostsOf(times, job.model, layers));
  for (int32_t s = 0; s < topology.stages(); ++s) {
    AddBundles(times.bundles(), job, layers[s], costs.stages[s]);
  }
  for (int32_t s = 0; !times.speeds().empty() && s < topology.stages(); ++s) {
    Hasten(times.speeds(topology.worker(StageId(s)).value), costs.stages[s]);
  }
  for (int32_t s = 0; topology.weights_in_file && s < topology.stages(); ++s) {
    // Weights, optimizer's state and gradients have the layout of the weights.
    const auto weights =
        static_cast<double>(StreamedFloats(job.model, layers[s]) * SizeOf(DType::kF32));
    const auto states = static_cast<double>(StateNamesOf(job.optimizer).size());
    costs.stages[s].weight_bytes = weights;
    costs.stages[s].state_bytes = (1.0 + states) * weights;
  }
  if (times.has_offload_gigabits_per_second()) {
    const double bytes_per_second = times.offload_gigabits_per_second() * 1e9 / 8.0;
    costs.host = {.offload_bytes_per_second = bytes_per_second,
                  .prefetch_bytes_per_second = bytes_per_second};
  }
  if (times.links().empty()) return costs;
  PENSTOCK_ASSIGN_OR_RETURN(costs.worker_links, LinksOfWorkers(times, topology));
  costs.traffic = TrafficOf(job, topology, layers);
  PENSTOCK_RETURN_IF_ERROR(AddTimesOfBuckets(times, job, topology, layers, costs.traffic));
  return costs;
}

}  // namespace penstock
