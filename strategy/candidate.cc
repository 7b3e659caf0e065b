#include "strategy/candidate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "job/defaults.h"
#include "job/device_times.h"
#include "job/model_profile.h"
#include "job/prediction.h"
#include "job/resolve.h"
#include "strategy/timed_split.h"

namespace penstock {
namespace {

class Judge {
 public:
  Judge(const PlanningInput& input, const Candidate& candidate)
      : input_(input), judged_{.candidate = candidate} {}

  absl::StatusOr<JudgedCandidate> Run(const std::vector<LayerRange>& layers) {
    const absl::StatusOr<ResolvedJob> job = Resolve();
    if (!job.ok()) return Rejected(job.status());
    if (const absl::Status can_run = Place(*job); !can_run.ok()) return Rejected(can_run);
    const ScheduleOptions options =
        ScheduleOptionsOf(*job, TopologyOf(*job, judged_.candidate.stages));
    absl::StatusOr<v1::DeviceTimes> times = DeviceTimesOf(input_.profile, job->microbatch.batch);
    if (!times.ok()) return Annotate(times.status(), "training.microbatches");
    PENSTOCK_RETURN_IF_ERROR(CheckProfileFits(input_.profile, job->chain));
    Describe(options.topology, *times);
    judged_.times = *std::move(times);
    judged_.layers = layers;
    if (layers.empty()) {
      PENSTOCK_ASSIGN_OR_RETURN(
          judged_.layers,
          SplitByTimes(*job, options.topology, judged_.candidate.stages, judged_.times));
    }
    for (const LayerRange& range : judged_.layers) {
      judged_.spec.mutable_pipeline()->add_stage_layers(range.count);
    }
    if (const absl::Status status = Simulated(*job, options); !status.ok()) {
      return Rejected(status);
    }
    if (const absl::Status status = Counted(*job, options); !status.ok()) return Rejected(status);
    Predict();
    return std::move(judged_);
  }

 private:
  JudgedCandidate Rejected(const absl::Status& why) {
    judged_.rejected = std::string(why.message());
    return std::move(judged_);
  }

  // The job as the candidate runs it.
  absl::StatusOr<ResolvedJob> Resolve() {
    judged_.spec = input_.spec;
    judged_.spec.clear_prediction();
    v1::PipelineSpec& pipeline = *judged_.spec.mutable_pipeline();
    if (pipeline.method() != judged_.candidate.method) {
      // What the file says of its own method means nothing to others.
      pipeline.Clear();
      SetMethod(judged_.candidate.method, /*keeps_optimizer=*/false, judged_.spec);
    }
    pipeline.set_stages(judged_.candidate.stages);
    pipeline.clear_stage_layers();
    if (!judged_.candidate.replicas.empty()) {
      pipeline.mutable_replicas()->Assign(judged_.candidate.replicas.begin(),
                                          judged_.candidate.replicas.end());
    }
    pipeline.set_recompute(judged_.candidate.recomputes ? "all" : "none");
    judged_.spec.mutable_training()->set_microbatches(judged_.candidate.microbatches);
    FillDefaults(judged_.spec);
    PENSTOCK_RETURN_IF_ERROR(ValidateJob(judged_.spec));
    PENSTOCK_ASSIGN_OR_RETURN(ResolvedJob job, ResolveJob(judged_.spec));
    PENSTOCK_RETURN_IF_ERROR(CheckStages(job, judged_.candidate.stages));
    return job;
  }

  // The fastest workers in the cluster's order.
  absl::Status Place(const ResolvedJob& job) {
    const int64_t needed = job.WorkersOf(judged_.candidate.stages);
    if (needed > input_.cluster.size()) {
      return absl::FailedPreconditionError(
          absl::StrCat("needs ", needed, " workers, there are ", input_.cluster.size()));
    }
    std::vector<int> workers(input_.cluster.size());
    std::iota(workers.begin(), workers.end(), 0);
    std::stable_sort(workers.begin(), workers.end(), [&](int a, int b) {
      return input_.cluster.workers[a].speed > input_.cluster.workers[b].speed;
    });
    workers.resize(needed);
    std::sort(workers.begin(), workers.end());
    judged_.workers = std::move(workers);
    return absl::OkStatus();
  }

  // The profile's times on these workers, and what joins each two of them.
  void Describe(const Topology& topology, v1::DeviceTimes& times) const {
    for (const int worker : judged_.workers) {
      times.add_speeds(input_.cluster.workers[worker].speed);
    }
    const CardShares shares = SharesOf(topology);
    const int count = static_cast<int>(judged_.workers.size());
    for (int one = 0; one < count; ++one) {
      for (int two = one + 1; two < count; ++two) {
        *times.add_links() = LinkBetween(one, two, shares);
      }
    }
  }

  // How the streams between stages share hosts' cards: by the bytes that each carries for a microbatch, in
  // those of one boundary.
  struct CardShares {
    std::vector<double> load;  // by host
    std::map<std::pair<int, int>, double>
        streams;              // by workers of the pipeline, the lower one first
    std::vector<int> others;  // by host: pairs of workers without such streams
  };
  CardShares SharesOf(const Topology& topology) const {
    const size_t hosts = input_.cluster.hosts.size();
    CardShares shares = {.load = std::vector<double>(hosts), .others = std::vector<int>(hosts)};
    for (int32_t id = 0; id < topology.stages(); ++id) {
      const StageId stage(id);
      const std::vector<StageId> after = topology.All(&Topology::After, stage);
      for (const StageId next : after) {
        const int here = topology.worker(stage).value;
        const int there = topology.worker(next).value;
        if (HostOf(here) == HostOf(there)) continue;
        const double weight = 1.0 / (topology.ReplicasAt(topology.DepthOf(stage)) *
                                     static_cast<double>(after.size()));
        shares.streams[std::minmax(here, there)] = weight;
        shares.load[HostOf(here)] += weight;
        shares.load[HostOf(there)] += weight;
      }
    }
    const int count = static_cast<int>(judged_.workers.size());
    for (int one = 0; one < count; ++one) {
      for (int two = one + 1; two < count; ++two) {
        if (HostOf(one) == HostOf(two) || shares.streams.contains({one, two})) continue;
        ++shares.others[HostOf(one)];
        ++shares.others[HostOf(two)];
      }
    }
    return shares;
  }
  int HostOf(int worker) const { return input_.cluster.workers[judged_.workers[worker]].host; }

  // What a stream between two workers of the pipeline has; replicas, which talk at other times than neighbouring
  // stages, share the cards among themselves.
  v1::LinkTimes LinkBetween(int one, int two, const CardShares& shares) const {
    const Cluster& cluster = input_.cluster;
    const int from = HostOf(one);
    const int to = HostOf(two);
    double bytes_per_second = cluster.hosts[from].inside_bytes_per_second;
    double latency_s = cluster.hosts[from].inside_latency_s;
    if (from != to) {
      bytes_per_second = std::numeric_limits<double>::infinity();
      latency_s = std::max(cluster.hosts[from].card_latency_s, cluster.hosts[to].card_latency_s);
      const auto stream = shares.streams.find({one, two});
      for (const int host : {from, to}) {
        const double share = stream != shares.streams.end() ? stream->second / shares.load[host]
                                                            : 1.0 / shares.others[host];
        bytes_per_second =
            std::min(bytes_per_second, cluster.hosts[host].card_bytes_per_second * share);
      }
      for (const HostPath& path : cluster.paths) {
        if (std::minmax(path.from, path.to) != std::minmax(from, to)) continue;
        bytes_per_second = std::min(bytes_per_second, path.bytes_per_second);
        latency_s = std::max(latency_s, path.latency_s);
      }
    }
    v1::LinkTimes link;
    link.add_workers(one);
    link.add_workers(two);
    if (std::isfinite(bytes_per_second)) link.set_gigabits_per_second(bytes_per_second * 8e-9);
    link.set_latency_ms(latency_s * 1e3);
    return link;
  }

  absl::Status Simulated(const ResolvedJob& job, const ScheduleOptions& options) {
    PENSTOCK_ASSIGN_OR_RETURN(const SimulatedStep step,
                              SimulateStep(job, options, judged_.layers, judged_.times));
    judged_.step_s = step.step_s;
    judged_.bubble_ratio = step.bubble_ratio;
    judged_.sent_bytes = step.sent_bytes;
    return absl::OkStatus();
  }

  absl::Status Counted(const ResolvedJob& job, const ScheduleOptions& options) {
    const std::vector<Cut> cuts = CutsOf(judged_.spec, 0, {});
    PENSTOCK_ASSIGN_OR_RETURN(
        judged_.memory,
        PredictRunMemory(job, options, LayersOfStages(options.topology, judged_.layers), 0, cuts,
                         input_.profile, /*own_memory=*/false));
    PENSTOCK_ASSIGN_OR_RETURN(judged_.lateness, LatenessOf(job, options));
    if (absl::StatusOr<BlockDelay> delay = PredictBlockDelay(*job.method, options); delay.ok()) {
      judged_.block_delay = *delay;
    }
    judged_.updates_per_step = job.method->updates_each_microbatch ? job.microbatches : 1;
    for (size_t worker = 0; worker < judged_.memory.size(); ++worker) {
      const PlanWorker& on = input_.cluster.workers[judged_.workers[worker]];
      const auto needed = static_cast<double>(judged_.memory[worker].total());
      if (needed <= on.memory_bytes) continue;
      return absl::ResourceExhaustedError(absl::StrFormat(
          "needs %.4g MB on %s, which has %.4g MB", needed / 1e6, on.name, on.memory_bytes / 1e6));
    }
    return absl::OkStatus();
  }

  // What the job will be held against when it runs.
  void Predict() {
    v1::PredictionSpec& prediction = *judged_.spec.mutable_prediction();
    prediction.set_step_seconds(judged_.step_s);
    for (const WorkerMemory& memory : judged_.memory) prediction.add_memory_bytes(memory.total());
    for (const double bytes : judged_.sent_bytes) prediction.add_sent_bytes(bytes);
    SetPredictedTimes(judged_.times, prediction);
    prediction.set_job_sha256(PredictedJobSha256(judged_.spec));
  }

  const PlanningInput& input_;
  JudgedCandidate judged_;
};

}  // namespace

std::string NameOf(const Candidate& candidate) {
  const std::string stages = candidate.replicas.empty() ? absl::StrCat(candidate.stages, " stages")
                                                        : absl::StrJoin(candidate.replicas, "-");
  return absl::StrCat(candidate.method, ", ", stages, ", ", candidate.microbatches, " microbatches",
                      candidate.recomputes ? ", recomputing" : "");
}

int64_t JudgedCandidate::most_memory() const {
  int64_t most = 0;
  for (const WorkerMemory& worker : memory) most = std::max(most, worker.total());
  return most;
}

int64_t JudgedCandidate::most_staleness() const {
  int64_t most = 0;
  for (const StageLateness& stage : lateness) most = std::max(most, stage.staleness);
  return most;
}

absl::StatusOr<JudgedCandidate> JudgeCandidate(const PlanningInput& input,
                                               const Candidate& candidate,
                                               const std::vector<LayerRange>& layers) {
  return Judge(input, candidate).Run(layers);
}

}  // namespace penstock
