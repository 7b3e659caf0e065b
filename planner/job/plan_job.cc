#include "planner/job/plan_job.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "job/open_job.h"
#include "job/resolve.h"
#include "planner/graph/placement_planner.h"
#include "planner/job/candidate_judge.h"
#include "planner/job/layer_orders.h"
#include "planner/job/memory_split.h"
#include "planner/job/profiled_graph.h"
#include "planner/job/split_search.h"

namespace penstock {
namespace {

constexpr double kMargin = 1e-6;  // relative; smaller gains are none
// These limit the searches for the best placements: a share of the time that is left, and placements per candidate.
constexpr double kSearchShare = 0.3;
constexpr double kShareOfOne = 0.2;  // of that, for the best of one method
constexpr double kGraphShare = 0.1;  // of the time that is left, for each plan of the layers' graph
constexpr int64_t kRefinementsMax = 200;
constexpr int64_t kSimulationsMax = 1'000;
constexpr int64_t kOrdersMax = 30;  // of a candidate whose order is searched for each placement
constexpr int64_t kCountsMax = 100;

absl::StatusOr<std::vector<const Method*>> MethodsOf(const PlanJobOptions& options) {
  std::vector<const Method*> methods;
  if (options.methods.empty()) {
    for (const Method& method : Methods()) methods.push_back(&method);
    methods.push_back(&SearchedMethod());
  }
  for (const std::string& name : options.methods) {
    PENSTOCK_ASSIGN_OR_RETURN(const Method* const method, FindMethod(absl::string_view(name)));
    methods.push_back(method);
  }
  return methods;
}

// The bytes per second of the slowest link that every pipeline over the cluster may need, in the time of a worker
// of mean speed: a plan of equal workers of speed 1 with such links is one of these workers, all times multiplied
// by the speed.
double BytesPerSecondOf(const Cluster& cluster) {
  double slowest = std::numeric_limits<double>::infinity();
  double speeds = 0;
  for (const std::vector<int>& workers : WorkersByHost(cluster)) {
    if (workers.empty()) continue;
    const PlanHost& host = cluster.hosts[cluster.workers[workers.front()].host];
    if (workers.size() > 1) slowest = std::min(slowest, host.inside_bytes_per_second);
    if (static_cast<int>(workers.size()) < cluster.size()) {
      slowest = std::min(slowest, host.nic_bytes_per_second);
    }
  }
  for (const HostPath& path : cluster.paths) slowest = std::min(slowest, path.bytes_per_second);
  for (const PlanWorker& worker : cluster.workers) speeds += worker.speed;
  // A cost model adds up both directions.
  return (cluster.full_duplex ? 2.0 : 1.0) * slowest * cluster.size() / speeds;
}

// What the graph of the job's layers suggests to candidates: replicas of stages, and orders of the layers.
class GraphPlans {
 public:
  GraphPlans(const PlanningInput& input, const ResolvedJob& job, TimeBudget& budget)
      : input_(input), budget_(budget) {
    absl::StatusOr<ProfiledGraph> profiled = GraphOfProfile(input.profile, job.microbatch_samples);
    if (profiled.ok()) profiled_ = *std::move(profiled);
    // An order that the job says itself is not replaced.
    reorders_ = profiled_.has_value() && input.spec.pipeline().layer_order().empty() &&
                !IsChain(*profiled_);
  }

  // Returns the replicas of stages that planner/graph/placement_planner.h gives the job's layers, and its order of
  // them, as far as a candidate says them. Absent: none has a replica.
  std::optional<Candidate> Replicas() {
    if (!profiled_.has_value()) return std::nullopt;
    TimeBudget part = budget_.Part(kGraphShare);
    const absl::StatusOr<StagePlan> plan = PlanPlacement(
        profiled_->graph, {.cluster = input_.cluster, .memory = profiled_->memory}, part);
    if (!plan.ok()) return std::nullopt;
    Candidate candidate = {.stages = static_cast<int32_t>(plan->stages.size())};
    for (const PlannedStage& stage : plan->stages) candidate.replicas.push_back(stage.replicas);
    if (reorders_) candidate.layer_order = LayerOrderOfPlan(*profiled_, *plan);
    const bool has_replicas = std::any_of(candidate.replicas.begin(), candidate.replicas.end(),
                                          [](int32_t replicas) { return replicas > 1; });
    return has_replicas ? std::optional(std::move(candidate)) : std::nullopt;
  }

  // Returns an order in which `stages` stages are better than in the job's; empty: none is known.
  const std::vector<std::string>& OrderFor(int32_t stages) {
    const auto [found, is_new] = orders_.try_emplace(stages);
    if (!is_new || !reorders_) return found->second;
    TimeBudget part = budget_.Part(kGraphShare);
    absl::StatusOr<std::vector<std::string>> order =
        BestLayerOrder(*profiled_, stages, BytesPerSecondOf(input_.cluster), part);
    if (order.ok()) found->second = *std::move(order);
    return found->second;
  }

 private:
  const PlanningInput& input_;
  TimeBudget& budget_;
  std::optional<ProfiledGraph> profiled_;
  bool reorders_ = false;
  std::map<int32_t, std::vector<std::string>> orders_;  // by number of stages
};

// Adds the same candidates in the orders of layers that suit their numbers of stages.
void AddOrders(GraphPlans& plans, std::vector<Candidate>& candidates) {
  const size_t in_order = candidates.size();
  for (size_t i = 0; i < in_order; ++i) {
    if (candidates[i].workers > 0) continue;  // each number of stages costs a search
    const std::vector<std::string>& order = plans.OrderFor(candidates[i].stages);
    if (order.empty() || !candidates[i].layer_order.empty()) continue;
    Candidate reordered = candidates[i];
    reordered.layer_order = order;
    candidates.push_back(std::move(reordered));
  }
}

// Returns the replicas of stages worth trying with up to `workers` workers: as many for every stage, which is data
// parallelism with one stage; and those of the plan of the layers' graph.
std::vector<Candidate> ReplicasOf(const PlanningInput& input, const ResolvedJob& job,
                                  GraphPlans& plans) {
  std::vector<Candidate> all;
  const int workers = input.cluster.size();
  const int stages_max = std::min(workers / 2, static_cast<int>(job.model.size()));
  for (int stages = 1; stages <= stages_max; ++stages) {
    for (int replicas = 2; stages * replicas <= workers; ++replicas) {
      all.push_back({.stages = stages, .replicas = std::vector<int32_t>(stages, replicas)});
    }
  }
  std::optional<Candidate> planned = plans.Replicas();
  if (planned.has_value() && std::find(all.begin(), all.end(), *planned) == all.end()) {
    all.push_back(*std::move(planned));
  }
  return all;
}

// Returns the job's own number of microbatches and, where the gradient of a step does not depend on it, the other
// divisors of the batch whose microbatches were profiled.
std::vector<int64_t> MicrobatchesOf(const PlanningInput& input, const ResolvedJob& job,
                                    const Method& method) {
  if (!method.synchronous || method.updates_each_microbatch) return {job.microbatches};
  const auto& sizes = input.profile.shapes(0).sizes();
  const int64_t least = sizes.begin()->samples();
  const int64_t most = sizes.rbegin()->samples();
  std::vector<int64_t> numbers;
  for (int64_t number = 1; number <= job.batch; ++number) {
    if (job.batch % number != 0) continue;
    const int64_t samples = job.batch / number;
    if (number == job.microbatches || (samples >= least && samples <= most)) {
      numbers.push_back(number);
    }
  }
  return numbers;
}

// Returns the candidates of a method whose stages go round the workers that have another number of stages: more than workers, each of
// which makes the bubble shorter and costs messages, or what the caller asks for. They go round all workers, or as many as
// the job says for its own method.
std::vector<Candidate> RoundTripsOf(const PlanningInput& input, const ResolvedJob& job,
                                    const Method& method, const PlanJobOptions& options) {
  constexpr int32_t kMoreStages = 8;
  const v1::PipelineSpec& pipeline = input.spec.pipeline();
  const bool says = pipeline.method() == method.name && pipeline.has_workers();
  const int32_t workers = says ? pipeline.workers() : input.cluster.size();
  std::vector<int32_t> numbers = options.stages;
  if (numbers.empty() && workers > 1) {  // one worker has no bubble
    const int32_t most = std::min(static_cast<int32_t>(job.model.size()), workers + kMoreStages);
    for (int32_t stages = workers + 1; stages <= most; ++stages) numbers.push_back(stages);
  }
  std::vector<Candidate> candidates;
  for (const int32_t stages : numbers) {
    // The others are there already.
    if (stages == workers || (says && stages <= input.cluster.size())) continue;
    for (const int64_t microbatches : MicrobatchesOf(input, job, method)) {
      candidates.push_back({.method = std::string(method.name),
                            .stages = stages,
                            .microbatches = microbatches,
                            .recompute = {.all = true},
                            .workers = workers});
    }
  }
  return candidates;
}

// Returns, for the job's own method, all that the job says, with each number of stages.
std::vector<Candidate> PlacementsOf(const PlanningInput& input, const ResolvedJob& job,
                                    const PlanJobOptions& options) {
  const int64_t per_worker = job.stages_per_worker;
  std::vector<int32_t> numbers = options.stages;
  if (numbers.empty()) {
    const int64_t workers_max =
        std::min<int64_t>(input.cluster.size(), job.model.size() / per_worker);
    for (int64_t workers = 1; workers <= workers_max; ++workers) {
      numbers.push_back(static_cast<int32_t>(workers * per_worker));
    }
  }
  const auto& said = input.spec.pipeline().replicas();
  const Method& method = OrderIsOpen(input.spec) ? SearchedMethod() : *job.method;
  std::vector<Candidate> candidates;
  for (const int32_t stages : numbers) {
    Candidate candidate = {.method = std::string(method.name),
                           .stages = stages,
                           .microbatches = job.microbatches,
                           .recompute = job.recompute,
                           .offload = job.offload};
    if (job.method->replicates_stages() && !said.empty()) {
      if (said.size() > 1 && said.size() != stages) continue;
      candidate.replicas.assign(said.begin(), said.end());
      if (said.size() == 1) candidate.replicas.assign(stages, said[0]);
    }
    candidates.push_back(candidate);
    if (!candidate.recompute.none() || !candidate.offload.none()) continue;
    candidate.recompute.all = true;
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

// Returns whether it differs from another candidate by what DawnPiper's cuts choose themselves, or do not have.
bool IsNotForDawnPiper(const Candidate& candidate) {
  return candidate.recompute.all || !candidate.replicas.empty() ||
         candidate.method == SearchedMethod().name;
}

class JobPlanner {
 public:
  JobPlanner(const PlanningInput& input, const PlanJobOptions& options, TimeBudget& budget)
      : input_(input), options_(options), budget_(budget) {}

  absl::StatusOr<JobPlan> Plan() {
    PENSTOCK_RETURN_IF_ERROR(CheckCluster(input_.cluster));
    PENSTOCK_ASSIGN_OR_RETURN(const std::vector<Candidate> candidates,
                              EnumerateCandidates(input_, options_, budget_));
    const int all = static_cast<int>(candidates.size());
    for (int done = 0; done < all; ++done) {
      options_.progress(done, all);
      PENSTOCK_RETURN_IF_ERROR(options_.may_go_on());
      if (IsSpent()) break;
      if (options_.as_dawnpiper) {
        PENSTOCK_ASSIGN_OR_RETURN(
            plan_.candidates.emplace_back(),
            SplitForMemory(input_, candidates[done], ChainPlanner::kDawnPiper));
        continue;
      }
      PENSTOCK_ASSIGN_OR_RETURN(const CandidateJudge judge,
                                CandidateJudge::Of(input_, candidates[done]));
      if (!judge.may_run()) {
        plan_.candidates.push_back(judge.draft());
        continue;
      }
      PENSTOCK_ASSIGN_OR_RETURN(const StagePlacement placement, judge.Evenly());
      plan_.candidates.push_back(judge.Judge(placement));
    }
    options_.progress(all, all);
    if (options_.as_dawnpiper) {
      Sort();
      Choose();
      return std::move(plan_);
    }
    PENSTOCK_RETURN_IF_ERROR(RecomputeWhereMemoryLacks());
    PENSTOCK_RETURN_IF_ERROR(OffloadWhereMemoryLacks());
    Sort();
    PENSTOCK_RETURN_IF_ERROR(RefineTheBestOfEachMethod());
    PENSTOCK_RETURN_IF_ERROR(SearchFastest());
    PENSTOCK_RETURN_IF_ERROR(SearchSmallest());
    Sort();
    Choose();
    return std::move(plan_);
  }

 private:
  bool IsSpent() {
    constexpr int64_t kStepsOfACandidate = 100'000;
    plan_.in_time = plan_.in_time && !budget_.IsSpent(kStepsOfACandidate);
    return !plan_.in_time;
  }

  void Sort() {
    std::stable_sort(plan_.candidates.begin(), plan_.candidates.end(),
                     [](const JudgedCandidate& a, const JudgedCandidate& b) {
                       if (a.runs() != b.runs()) return a.runs();
                       return a.runs() && a.step_s < b.step_s;
                     });
  }

  // Adds, for each candidate that memory alone keeps from running, one whose stages recompute on the workers that lack
  // it, and those whose cuts are made for that memory.
  absl::Status RecomputeWhereMemoryLacks() {
    std::vector<JudgedCandidate> found;
    for (const JudgedCandidate& judged : plan_.candidates) {
      if (!judged.lacks_memory || !KeepsAll(judged.candidate)) continue;
      PENSTOCK_RETURN_IF_ERROR(options_.may_go_on());
      if (IsSpent()) break;
      PENSTOCK_ASSIGN_OR_RETURN(CandidateJudge judge, CandidateJudge::Of(input_, judged.candidate));
      JudgedCandidate last = judged;
      while (last.lacks_memory) {
        const std::optional<RecomputeChoice> more = OneMoreRecomputes(judge.topology(), last);
        if (!more.has_value()) break;
        Candidate candidate = last.candidate;
        candidate.recompute = *more;
        PENSTOCK_ASSIGN_OR_RETURN(judge, CandidateJudge::Of(input_, candidate));
        if (!judge.may_run()) break;
        last = judge.Judge({.workers = last.workers, .layers = last.layers});
      }
      if (last.runs()) found.push_back(std::move(last));
      if (!judged.candidate.replicas.empty()) continue;
      for (const ChainPlanner planner : {ChainPlanner::kBestCuts, ChainPlanner::kDawnPiper}) {
        PENSTOCK_ASSIGN_OR_RETURN(JudgedCandidate cut,
                                  SplitForMemory(input_, judged.candidate, planner));
        if (cut.runs()) found.push_back(std::move(cut));
      }
    }
    std::move(found.begin(), found.end(), std::back_inserter(plan_.candidates));
    return absl::OkStatus();
  }

  static bool KeepsAll(const Candidate& candidate) {
    return candidate.recompute.none() && candidate.offload.none();
  }

  // Adds, for each candidate that memory alone keeps from running, one whose stages keep, offload or recompute, as the
  // memory of their workers needs it: each in turn with fewer stashes on the device, and where the fewest are too many it
  // recomputes. The simulator then says whether the copies cost less than the forwards of those that only recompute.
  absl::Status OffloadWhereMemoryLacks() {
    std::vector<JudgedCandidate> found;
    for (const JudgedCandidate& judged : plan_.candidates) {
      if (!judged.lacks_memory || !KeepsAll(judged.candidate)) continue;
      if (!judged.times.has_offload_gigabits_per_second()) continue;
      PENSTOCK_RETURN_IF_ERROR(options_.may_go_on());
      if (IsSpent()) break;
      PENSTOCK_ASSIGN_OR_RETURN(CandidateJudge judge, CandidateJudge::Of(input_, judged.candidate));
      if (judge.searches_order()) continue;
      const std::vector<int64_t> peaks = judge.StashesPeaks();
      JudgedCandidate last = judged;
      while (last.lacks_memory) {
        std::optional<Candidate> candidate = OneMoreMoves(judge.topology(), peaks, last);
        if (!candidate.has_value()) break;
        PENSTOCK_ASSIGN_OR_RETURN(judge, CandidateJudge::Of(input_, *candidate));
        if (!judge.may_run()) break;
        last = judge.Judge({.workers = last.workers, .layers = last.layers});
      }
      if (last.runs() && !last.candidate.offload.none()) found.push_back(std::move(last));
    }
    std::move(found.begin(), found.end(), std::back_inserter(plan_.candidates));
    return absl::OkStatus();
  }

  // Lets the first stage on a worker without enough memory have fewer stashes there, half of what it may have more than the
  // fewest at a time, or recompute. Absent: there is none. `peaks`: by place.
  std::optional<Candidate> OneMoreMoves(const Topology& topology, const std::vector<int64_t>& peaks,
                                        const JudgedCandidate& judged) const {
    if (topology.form == Topology::Form::kThereAndBack) return std::nullopt;
    Candidate candidate = judged.candidate;
    std::vector<OffloadChoice::Stage>& stages = candidate.offload.stages;
    for (int32_t id = 0; id < topology.stages(); ++id) {
      const int32_t worker = topology.worker(StageId(id)).value;
      const int32_t place = topology[StageId(id)].place;
      const double room = input_.cluster.workers[judged.workers[worker]].memory_bytes;
      const bool lacks = static_cast<double>(judged.memory[worker].total()) > room;
      if (!lacks || candidate.recompute.Has(place)) continue;
      const auto at = std::lower_bound(
          stages.begin(), stages.end(), place,
          [](const OffloadChoice::Stage& stage, int32_t sought) { return stage.place < sought; });
      const bool offloads = at != stages.end() && at->place == place;
      const int64_t now = offloads ? at->stashes : peaks[place];
      if (now > kStashesOnDeviceMin) {
        const auto fewer = static_cast<int32_t>(
            kStashesOnDeviceMin +
            (std::min<int64_t>(now, kStashesOnDeviceMax) - kStashesOnDeviceMin) / 2);
        if (offloads) {
          at->stashes = fewer;
        } else {
          stages.insert(at, {place, fewer});
        }
        return candidate;
      }
      if (offloads) stages.erase(at);
      std::vector<int32_t>& places = candidate.recompute.places;
      places.insert(std::lower_bound(places.begin(), places.end(), place), place);
      return candidate;
    }
    return std::nullopt;
  }

  // Adds the first stage that does not recompute yet on a worker without enough memory. Absent: there is none, or all
  // would recompute, which is a candidate of its own.
  std::optional<RecomputeChoice> OneMoreRecomputes(const Topology& topology,
                                                   const JudgedCandidate& judged) const {
    if (topology.form == Topology::Form::kThereAndBack) return std::nullopt;
    RecomputeChoice choice = judged.candidate.recompute;
    std::vector<int32_t>& places = choice.places;
    for (int32_t id = 0; id < topology.stages(); ++id) {
      const int32_t worker = topology.worker(StageId(id)).value;
      const int32_t place = topology[StageId(id)].place;
      const double room = input_.cluster.workers[judged.workers[worker]].memory_bytes;
      const bool lacks = static_cast<double>(judged.memory[worker].total()) > room;
      if (!lacks || choice.Has(place)) continue;
      places.insert(std::lower_bound(places.begin(), places.end(), place), place);
      if (static_cast<int32_t>(places.size()) == topology.depth()) return std::nullopt;
      return choice;
    }
    return std::nullopt;
  }

  // Refines with and without replicas: methods are compared by what each can do, not by how far each was improved.
  absl::Status RefineTheBestOfEachMethod() {
    TimeBudget part = budget_.Part(kSearchShare);
    std::set<std::pair<std::string, bool>> kinds;
    for (JudgedCandidate& judged : plan_.candidates) {
      if (!judged.runs()) break;
      const Candidate& candidate = judged.candidate;
      if (!kinds.emplace(candidate.method, candidate.replicas.empty()).second) continue;
      PENSTOCK_RETURN_IF_ERROR(options_.may_go_on());
      if (part.IsSpent()) break;
      PENSTOCK_ASSIGN_OR_RETURN(const CandidateJudge judge, CandidateJudge::Of(input_, candidate));
      TimeBudget own = part.Part(kShareOfOne);
      PENSTOCK_RETURN_IF_ERROR(MoveLayers(judge, own, judged));
      SearchEffort effort = {.placements = PlacementsMax(judge, kRefinementsMax), .budget = own};
      SplitSearchResult found = SearchShortestStep(judge, judged.step_s * (1 - kMargin), effort);
      if (found.best.has_value()) judged = *std::move(found.best);
    }
    return absl::OkStatus();
  }

  static int64_t PlacementsMax(const CandidateJudge& judge, int64_t most) {
    return judge.searches_order() ? kOrdersMax : most;
  }

  // Moves a layer between two neighbours as long as that makes the simulated step shorter.
  static absl::Status MoveLayers(const CandidateJudge& judge, TimeBudget& budget,
                                 JudgedCandidate& best) {
    bool improves = true;
    while (improves) {
      improves = false;
      for (size_t stage = 0; stage + 1 < best.layers.size(); ++stage) {
        for (const int moved : {-1, 1}) {
          if (budget.IsSpent()) return absl::OkStatus();
          std::vector<LayerRange> layers = best.layers;
          layers[stage].count += moved;
          layers[stage + 1].first += moved;
          layers[stage + 1].count -= moved;
          if (layers[stage].count < 1 || layers[stage + 1].count < 1) continue;
          PENSTOCK_ASSIGN_OR_RETURN(const double step_s, judge.StepSeconds(best.times, layers));
          if (step_s >= best.step_s * (1 - kMargin)) continue;
          JudgedCandidate other = judge.Judge({.workers = best.workers, .layers = layers});
          if (!other.runs()) continue;
          best = std::move(other);
          improves = true;
        }
      }
    }
    return absl::OkStatus();
  }

  // Searches all placements of all candidates for one that is faster than all, the most promising candidates first.
  absl::Status SearchFastest() {
    Sort();
    double best_s = std::numeric_limits<double>::infinity();
    if (!plan_.candidates.empty() && plan_.candidates.front().runs()) {
      best_s = plan_.candidates.front().step_s;
    }
    double unproven_s = best_s;
    TimeBudget part = budget_.Part(kSearchShare);
    for (JudgedCandidate& judged : plan_.candidates) {
      if (!judged.is_placed() || judged.step_bound_s >= best_s) continue;
      PENSTOCK_RETURN_IF_ERROR(options_.may_go_on());
      if (part.IsSpent()) {
        unproven_s = std::min(unproven_s, judged.step_bound_s);
        continue;
      }
      PENSTOCK_ASSIGN_OR_RETURN(const CandidateJudge judge,
                                CandidateJudge::Of(input_, judged.candidate));
      SearchEffort effort = {.placements = PlacementsMax(judge, kSimulationsMax), .budget = part};
      SplitSearchResult found = SearchShortestStep(judge, best_s * (1 - kMargin), effort);
      if (!found.is_complete) unproven_s = std::min(unproven_s, judged.step_bound_s);
      if (!found.best.has_value()) continue;
      best_s = found.best->step_s;
      judged = *std::move(found.best);
    }
    if (plan_.in_time && std::isfinite(best_s)) {
      plan_.step_bound_s = std::min(best_s, unproven_s);
      plan_.is_fastest = plan_.step_bound_s == best_s;
    }
    return absl::OkStatus();
  }

  // Searches likewise for the least memory. The result is added next to the candidate's fastest placement.
  absl::Status SearchSmallest() {
    int64_t best_bytes = std::numeric_limits<int64_t>::max();
    for (const JudgedCandidate& judged : plan_.candidates) {
      if (judged.runs()) best_bytes = std::min(best_bytes, judged.most_memory());
    }
    plan_.is_smallest = plan_.in_time && best_bytes < std::numeric_limits<int64_t>::max();
    TimeBudget part = budget_.Part(kSearchShare);
    std::vector<JudgedCandidate> smaller;
    for (const JudgedCandidate& judged : plan_.candidates) {
      if (!judged.is_placed()) continue;
      if (judged.candidate.method == SearchedMethod().name) continue;  // orders are for time
      PENSTOCK_RETURN_IF_ERROR(options_.may_go_on());
      if (part.IsSpent()) {
        plan_.is_smallest = false;
        break;
      }
      SearchEffort effort = {.placements = kCountsMax, .budget = part};
      PENSTOCK_ASSIGN_OR_RETURN(const CandidateJudge judge,
                                CandidateJudge::Of(input_, judged.candidate));
      SplitSearchResult found = SearchLeastMemory(judge, best_bytes, effort);
      plan_.is_smallest = plan_.is_smallest && found.is_complete;
      if (!found.best.has_value()) continue;
      best_bytes = found.best->most_memory();
      smaller.push_back(*std::move(found.best));
    }
    if (!smaller.empty()) plan_.candidates.push_back(std::move(smaller.back()));
    return absl::OkStatus();
  }

  void Choose() {
    for (size_t at = 0; at < plan_.candidates.size(); ++at) {
      const JudgedCandidate& judged = plan_.candidates[at];
      if (!judged.runs()) break;
      const int index = static_cast<int>(at);
      if (!plan_.fastest.has_value()) plan_.fastest = index;
      if (!plan_.smallest.has_value() ||
          judged.most_memory() < plan_.candidates[*plan_.smallest].most_memory()) {
        plan_.smallest = index;
      }
    }
    // Nothing is proven for an order that was searched for time.
    plan_.is_smallest = plan_.is_smallest && plan_.smallest.has_value() &&
                        plan_.candidates[*plan_.smallest].candidate.method != SearchedMethod().name;
  }

  const PlanningInput& input_;
  const PlanJobOptions& options_;
  TimeBudget& budget_;
  JobPlan plan_;
};

}  // namespace

absl::StatusOr<std::vector<Candidate>> EnumerateCandidates(const PlanningInput& input,
                                                           const PlanJobOptions& options,
                                                           TimeBudget& budget) {
  PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(DraftOf(input.spec)));
  GraphPlans plans(input, job, budget);
  if (options.only_placement) {
    std::vector<Candidate> placements = PlacementsOf(input, job, options);
    if (options.as_dawnpiper) std::erase_if(placements, IsNotForDawnPiper);
    AddOrders(plans, placements);
    return placements;
  }
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<const Method*> methods, MethodsOf(options));
  const std::vector<Candidate> replicated = ReplicasOf(input, job, plans);
  std::vector<Candidate> candidates;
  for (const Method* const method : methods) {
    const bool is_searched = method == &SearchedMethod();  // on one worker all orders are alike
    // With the replicas and the stages on a worker that the job names.
    if (is_searched && OrderIsOpen(input.spec)) {
      for (Candidate& candidate : PlacementsOf(input, job, options)) {
        if (job.WorkersOf(candidate.stages) == 1) continue;
        for (const int64_t microbatches : MicrobatchesOf(input, job, *method)) {
          candidate.microbatches = microbatches;
          candidates.push_back(candidate);
        }
      }
      continue;
    }
    const int32_t per_worker = StagesPerWorkerMin(method->placement);
    const int32_t workers_max = std::min<int32_t>(
        input.cluster.size(), static_cast<int32_t>(job.model.size()) / per_worker);
    for (int32_t workers = is_searched ? 2 : 1; workers <= workers_max; ++workers) {
      for (const int64_t microbatches : MicrobatchesOf(input, job, *method)) {
        for (const bool all : {false, true}) {
          candidates.push_back({.method = std::string(method->name),
                                .stages = workers * per_worker,
                                .microbatches = microbatches,
                                .recompute = {.all = all}});
        }
      }
    }
    if (method->placement == Placement::kRoundTrip) {
      for (Candidate& candidate : RoundTripsOf(input, job, *method, options)) {
        candidates.push_back(std::move(candidate));
      }
    }
    // Those of methods with several stages on a worker, and those of an order that is searched for each, are for the
    // user to name.
    if (!method->replicates_stages() || per_worker > 1 || is_searched) continue;
    for (const Candidate& replicas : replicated) {
      for (const int64_t microbatches : MicrobatchesOf(input, job, *method)) {
        for (const bool all : {false, true}) {
          Candidate candidate = replicas;
          candidate.method = std::string(method->name);
          candidate.microbatches = microbatches;
          candidate.recompute.all = all;
          candidates.push_back(std::move(candidate));
        }
      }
    }
  }
  const auto is_other = [&](const Candidate& candidate) {
    return !options.stages.empty() && std::find(options.stages.begin(), options.stages.end(),
                                                candidate.stages) == options.stages.end();
  };
  std::erase_if(candidates, is_other);
  if (options.as_dawnpiper) std::erase_if(candidates, IsNotForDawnPiper);
  AddOrders(plans, candidates);
  if (candidates.empty() && !options.stages.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no method can have ", absl::StrJoin(options.stages, " or "), " stages of ",
                     job.model.size(), " layers on ", input.cluster.size(), " workers"));
  }
  return candidates;
}

absl::StatusOr<JobPlan> PlanJob(const PlanningInput& input, const PlanJobOptions& options,
                                TimeBudget& budget) {
  return JobPlanner(input, options, budget).Plan();
}

}  // namespace penstock
