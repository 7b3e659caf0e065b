// The verifier against an independent execution, over thousands of broken schedules.
//
// The execution here shares nothing with the machine, the interpreter or the verifier: it keeps
// what exists as a set of named things, picks the next worker at random, and judges at the end.
// What the verifier accepts must run through in every order, with the counts it promised; what it
// rejects must not.
#include "tests/schedule/mutants.h"

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "base/random.h"
#include "schedule/block_draws.h"
#include "schedule/verify.h"
#include "tests/schedule/schedules.h"
#include "tests/support/environment.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

class RandomExecution {
 public:
  RandomExecution(const Schedule& schedule, size_t channel_capacity, uint64_t seed)
      : schedule_(schedule),
        firsts_(FirstsOf(schedule.topology)),
        capacity_(channel_capacity),
        random_(seed, 1) {
    for (const Program& program : schedule.programs) lists_.push_back(Expand(program));
    next_.resize(lists_.size());
  }

  // Whether all lists are performed and nothing is missing or left.
  bool RunsThrough() {
    while (ok_) {
      std::vector<size_t> ready;
      for (size_t worker = 0; worker < lists_.size(); ++worker) {
        if (next_[worker] < lists_[worker].size() && CanGo(worker)) ready.push_back(worker);
      }
      if (ready.empty()) break;
      Go(ready[random_.Below(ready.size())]);
    }
    for (size_t worker = 0; worker < lists_.size(); ++worker) {
      if (next_[worker] < lists_[worker].size()) return false;
    }
    for (const auto& [key, messages] : channels_) {
      if (!messages.empty()) return false;
    }
    return ok_ && things_.empty() && accumulated_.empty() && Complete();
  }

  StalenessCount staleness(int32_t stage) const {
    const auto found = staleness_.find(stage);
    return found == staleness_.end() ? StalenessCount() : found->second;
  }

 private:
  // ("input", stage, microbatch) and the like.
  using Thing = std::tuple<std::string, int32_t, int64_t>;
  enum Kind { kActivations, kGradients, kCheckpoints, kSums, kRequests, kWeights };
  using ChannelKey = std::pair<Kind, int32_t>;

  const Action& Current(size_t worker) const { return lists_[worker][next_[worker]]; }
  bool OnWorker(int32_t stage, size_t worker) const {
    return stage >= 0 && stage < schedule_.topology.stages() &&
           schedule_.topology.table[stage].worker.value == static_cast<int32_t>(worker);
  }
  int32_t stages() const { return schedule_.topology.stages(); }
  // Where there are replicas, the first stage of each place, and at last the number of stages.
  static std::vector<int32_t> FirstsOf(const Topology& topology) {
    std::vector<int32_t> firsts;
    if (topology.form != Topology::Form::kReplicas) return firsts;
    for (int32_t s = 0; s < topology.stages(); ++s) {
      if (s == 0 || topology.table[s].place > topology.table[s - 1].place) firsts.push_back(s);
    }
    firsts.push_back(topology.stages());
    return firsts;
  }
  const std::vector<int32_t>& firsts() const { return firsts_; }
  bool Replicated() const { return !firsts().empty(); }
  int32_t depth() const {
    return Replicated() ? static_cast<int32_t>(firsts().size()) - 1
                        : stages() / schedule_.topology.pipelines;
  }
  // There and back: 2 parts - 1 places, forwards up to the last part and backwards from it on.
  bool Loops() const { return schedule_.topology.form == Topology::Form::kThereAndBack; }
  int64_t StepLength() const { return schedule_.topology.rounds.step; }
  int32_t parts() const { return Loops() ? depth() / 2 + 1 : depth(); }
  int32_t Place(int32_t s) const {
    if (!Replicated()) return s % depth();
    int32_t place = 0;
    while (firsts()[place + 1] <= s) ++place;
    return place;
  }
  bool Forwards(int32_t s) const { return Place(s) < parts(); }
  bool Backwards(int32_t s) const { return !Loops() || Place(s) >= parts() - 1; }
  int32_t Twin(int32_t s) const { return s - Place(s) + depth() - 1 - Place(s); }
  int32_t PipelineOf(int64_t m) const {
    const Topology& topology = schedule_.topology;
    const int64_t turn = Loops() ? m % StepLength() / topology.rounds.microbatches : m;
    return static_cast<int32_t>(turn % topology.pipelines);
  }
  int32_t At(int32_t place, int64_t m) const {
    if (!Replicated()) return PipelineOf(m) * depth() + place;
    const int64_t replicas = firsts()[place + 1] - firsts()[place];
    return firsts()[place] + static_cast<int32_t>(m % replicas);
  }
  // The stage one place on, or back, that the microbatch takes.
  int32_t Next(int32_t s, int64_t m) const { return Replicated() ? At(Place(s) + 1, m) : s + 1; }
  int32_t Previous(int32_t s, int64_t m) const {
    return Replicated() ? At(Place(s) - 1, m) : s - 1;
  }
  // The channel of a microbatch's message into a stage; with replicas one for each sender.
  ChannelKey Into(Kind kind, int32_t s, int64_t m) const {
    if (!Replicated() || s < 0) return {kind, s};
    const int32_t from = kind == kActivations ? Place(s) - 1 : Place(s) + 1;
    const bool none = from < 0 || from >= depth();
    return {kind, none ? -1 : s * stages() + At(from, m)};
  }
  bool Updates(int32_t s) const {
    return !Loops() || (Backwards(s) && s / depth() == PipelineOf(StepLength() - 1));
  }
  // Whether a round but the first of its step begins with m, in another place than the one before it.
  bool GoesOn(int64_t m) const {
    return Loops() && schedule_.topology.pipelines > 1 && m >= 0 &&
           m % schedule_.topology.rounds.microbatches == 0 && m % StepLength() != 0;
  }
  // Streamed weights: the stage with the updates of the part, if it is on another worker; -1 otherwise.
  int32_t Source(int32_t s) const {
    if (!schedule_.topology.streams_weights || s < 0 || s >= stages()) return -1;
    for (int32_t other = 0; other < stages(); ++other) {
      if (!Updates(other) || !SamePart(s, other)) continue;
      return schedule_.topology.table[other].worker == schedule_.topology.table[s].worker ? -1
                                                                                          : other;
    }
    return -1;
  }
  bool SamePart(int32_t s, int32_t other) const {
    return Place(s) == Place(other) || Place(s) == depth() - 1 - Place(other);
  }
  bool First(int32_t s) const { return Place(s) == 0; }
  bool Last(int32_t s) const { return Place(s) == parts() - 1; }
  // Where the gradient of the input goes, and that of the output comes from; -1: nowhere.
  int32_t GradientTo(int32_t s, int64_t m) const {
    if (!Loops()) return First(s) ? -1 : Previous(s, m);
    return Place(s) + 1 < depth() ? s + 1 : -1;
  }
  int32_t GradientFrom(int32_t s, int64_t m) const {
    if (!Loops()) return Last(s) ? -1 : Next(s, m);
    return Place(s) >= parts() ? s - 1 : -1;
  }
  bool Recomputes(int32_t s) const {
    if (Loops()) return !Forwards(s);
    return schedule_.topology.table[s].recomputes;
  }
  bool Takes(int32_t s, int64_t m) const {
    return Replicated() ? At(Place(s), m) == s : PipelineOf(m) == s / depth();
  }

  std::set<size_t> Members(const Action& action) const {
    std::set<size_t> members;
    if (action.kind == ActionKind::kNorm) {
      for (size_t worker = 0; worker < lists_.size(); ++worker) members.insert(worker);
    } else if (action.index < static_cast<int32_t>(schedule_.topology.groups.size())) {
      for (const StageId stage : schedule_.topology.groups[action.index].stages) {
        members.insert(schedule_.topology.worker(stage).value);
      }
    }
    return members;
  }

  bool CanGo(size_t worker) {
    const Action& a = Current(worker);
    switch (a.kind) {
      case ActionKind::kSendActivation:
        if (Replicated() && Last(a.index)) return true;
        return channels_[Into(kActivations, Next(a.index, a.microbatch), a.microbatch)].size() <
               capacity_;
      case ActionKind::kSendGradient:
        return channels_[Into(kGradients, GradientTo(a.index, a.microbatch), a.microbatch)].size() <
               capacity_;
      case ActionKind::kSendCheckpoint:
        return channels_[{kCheckpoints, Twin(a.index)}].size() < capacity_;
      case ActionKind::kSendSum:
        return channels_[{kSums, At(Place(a.index), a.microbatch)}].size() < capacity_;
      case ActionKind::kRecvActivation:
        return !channels_[Into(kActivations, a.index, a.microbatch)].empty();
      case ActionKind::kRecvGradient:
        return !channels_[Into(kGradients, a.index, a.microbatch)].empty();
      case ActionKind::kRecvCheckpoint:
        return !channels_[{kCheckpoints, a.index}].empty();
      case ActionKind::kRecvSum:
        return !channels_[{kSums, a.index}].empty();
      case ActionKind::kSendRequest:
        return channels_[{kRequests, a.index}].size() < capacity_;
      case ActionKind::kSendWeights:
        return channels_[{kWeights, a.index}].size() < capacity_;
      case ActionKind::kRecvRequest:
        return !channels_[{kRequests, a.index}].empty();
      case ActionKind::kRecvWeights:
        return !channels_[{kWeights, a.index}].empty();
      case ActionKind::kReduce:
      case ActionKind::kNorm:
        for (const size_t member : Members(a)) {
          if (next_[member] == lists_[member].size() || !(Current(member) == a)) return false;
        }
        return true;
      default:
        return true;
    }
  }

  void Take(const Thing& thing) { ok_ = ok_ && things_.erase(thing) == 1; }
  void Leave(const Thing& thing) { ok_ = ok_ && things_.insert(thing).second; }

  void Receive(const ChannelKey& channel, const Action& a, const char* what) {
    ok_ = ok_ && channels_[channel].front() == a.microbatch;
    channels_[channel].pop_front();
    Leave({what, a.index, a.microbatch});
  }

  void Go(size_t worker) {
    const Action a = Current(worker);
    if (a.kind == ActionKind::kReduce || a.kind == ActionKind::kNorm) {
      const std::set<size_t> members = Members(a);
      ok_ = ok_ && members.count(worker) == 1;
      if (a.kind == ActionKind::kReduce) ok_ = ok_ && ReduceTheSame(a.index);
      for (const size_t member : members) ++next_[member];
      for (const size_t member : members) Collective(a, member);
      return;
    }
    ++next_[worker];
    if (a.kind == ActionKind::kFlush) {
      Flush(worker);
      return;
    }
    if (StreamsWeights(a.kind)) {
      Stream(a, worker);
      return;
    }
    if (a.kind == ActionKind::kBeginReduce) {
      BeginReduce(a.index, worker);
      return;
    }
    ok_ = ok_ && OnWorker(a.index, worker);
    if (ok_) Perform(a, worker);
  }

  // The next W of the stage here is the last before the REDUCE of its replicas.
  void BeginReduce(int32_t group, size_t worker) {
    const std::vector<ReduceGroup>& groups = schedule_.topology.groups;
    ok_ = ok_ && Replicated() && group < static_cast<int32_t>(groups.size());
    if (!ok_) return;
    const std::vector<StageId>& stages = groups[group].stages;
    ok_ = Place(stages.front().value) == Place(stages.back().value);
    bool here = false;
    for (const StageId stage : stages) {
      if (!OnWorker(stage.value, worker)) continue;
      here = true;
      ok_ = ok_ && reduced_[stage.value].empty() && last_came_.count(stage.value) == 0;
      last_came_[stage.value] = false;
    }
    ok_ = ok_ && here;
    begun_[worker].push_back(group);
  }

  // Whether replicas reduce a row of microbatches that begins with the first and ends with the last of them.
  bool ReduceTheSame(int32_t group) {
    const std::vector<StageId>& stages = schedule_.topology.groups[group].stages;
    if (!Replicated() || Place(stages.front().value) != Place(stages.back().value)) return true;
    std::set<int64_t> all;
    for (const StageId stage : stages) {
      const auto found = accumulated_.find(stage.value);
      if (found != accumulated_.end()) all.insert(found->second.begin(), found->second.end());
    }
    const auto replicas = static_cast<int64_t>(stages.size());
    return !all.empty() && *all.begin() % replicas == 0 && (*all.rbegin() + 1) % replicas == 0 &&
           *all.rbegin() - *all.begin() + 1 == static_cast<int64_t>(all.size());
  }

  void Perform(const Action& a, size_t worker) {
    const int32_t s = a.index;
    const int64_t m = a.microbatch;
    const bool before = Forwards(s) && !First(s);
    const bool after = Forwards(s) && !Last(s);
    const bool local_before = before && OnWorker(Previous(s, m), worker);
    const bool local_after = after && OnWorker(Next(s, m), worker);
    const int32_t gradient_to = GradientTo(s, m);
    const bool takes = a.kind == ActionKind::kSendSum ? GoesOn(m) && Takes(s, m - 1) : Takes(s, m);
    if (HasMicrobatch(a.kind)) ok_ = ok_ && takes;
    switch (a.kind) {
      case ActionKind::kRecvActivation:
        ok_ = ok_ && before && !local_before;
        if (ok_) Receive(Into(kActivations, s, m), a, "input");
        break;
      case ActionKind::kForward:
        ++done_[a];
        ok_ = ok_ && Forwards(s) && HasWeights(s);
        if (!First(s)) Take({"input", s, m});
        if (Backwards(s)) {
          Leave({Recomputes(s) ? "checkpoint" : "stash", s, m});
        } else if (!First(s)) {
          Leave({"checkpoint", OnWorker(Twin(s), worker) ? Twin(s) : s, m});
        }
        if (!Last(s)) Leave(local_after ? Thing{"input", Next(s, m), m} : Thing{"output", s, m});
        Read(s, m);
        break;
      case ActionKind::kSendActivation:
        ok_ = ok_ && after && !local_after;
        Take({"output", s, m});
        if (ok_) channels_[Into(kActivations, Next(s, m), m)].push_back(m);
        break;
      case ActionKind::kSendCheckpoint:
        ok_ = ok_ && Loops() && !Backwards(s) && !First(s) && !OnWorker(Twin(s), worker);
        Take({"checkpoint", s, m});
        channels_[{kCheckpoints, Twin(s)}].push_back(m);
        break;
      case ActionKind::kRecvCheckpoint:
        ok_ =
            ok_ && Loops() && !Forwards(s) && Place(s) + 1 < depth() && !OnWorker(Twin(s), worker);
        Receive({kCheckpoints, s}, a, "checkpoint");
        break;
      case ActionKind::kSendSum:
        SendSum(s, m, worker);
        break;
      case ActionKind::kRecvSum:
        ok_ = ok_ && GoesOn(m) && channels_[{kSums, s}].front() == m && accumulated_.count(s) == 0;
        channels_[{kSums, s}].pop_front();
        accumulated_[s] = sums_[{Place(s), m}];
        break;
      case ActionKind::kRecvGradient:
        ok_ = ok_ && GradientFrom(s, m) >= 0 && !OnWorker(GradientFrom(s, m), worker);
        if (ok_) Receive(Into(kGradients, s, m), a, "output gradient");
        break;
      case ActionKind::kRecompute:
        ++done_[a];
        ok_ = ok_ && Recomputes(s) && HasWeights(s);
        if (!Loops() || Place(s) + 1 < depth()) Take({"checkpoint", s, m});
        Leave({"stash", s, m});
        if (Loops()) Read(s, m);
        read_again_[{s, m}] = BackwardVersion(s, m);
        break;
      case ActionKind::kBackwardInput:
        ++done_[a];
        ok_ = ok_ && Backwards(s) && HasWeights(s);
        Take({"stash", s, m});
        // What was done again must be of the weights that the backward reads.
        if (Recomputes(s)) ok_ = ok_ && read_again_[{s, m}] == BackwardVersion(s, m);
        if (!Last(s)) Take({"output gradient", s, m});
        Leave({"weight stash", s, m});
        if (gradient_to >= 0) {
          Leave(OnWorker(gradient_to, worker) ? Thing{"output gradient", gradient_to, m}
                                              : Thing{"input gradient", s, m});
        }
        break;
      case ActionKind::kSendGradient:
        ok_ = ok_ && gradient_to >= 0 && !OnWorker(gradient_to, worker);
        Take({"input gradient", s, m});
        if (ok_) channels_[Into(kGradients, gradient_to, m)].push_back(m);
        break;
      case ActionKind::kBackwardWeight:
        ++done_[a];
        Take({"weight stash", s, m});
        // Ascending without gaps, and not after the gradient was exchanged.
        ok_ = ok_ && m == NextWeight(s);
        next_weight_[s] = m + 1;
        // There and back with all of the step before it.
        if (Loops()) ok_ = ok_ && HasSumBefore(s, m);
        ok_ = ok_ && reduced_[s].empty() && normed_.count(s) == 0;
        if (const auto begun = last_came_.find(s); begun != last_came_.end()) {
          ok_ = ok_ && !begun->second;
          begun->second = true;
        }
        accumulated_[s].push_back(m);
        break;
      case ActionKind::kOffload:
        Take({"stash", s, m});
        Leave({"leaving stash", s, m});
        break;
      case ActionKind::kEvict:
        Take({"leaving stash", s, m});
        Leave({"stash on the host", s, m});
        break;
      case ActionKind::kPrefetch:
        Take({"stash on the host", s, m});
        Leave({"stash", s, m});
        break;
      case ActionKind::kUpdate:
        Step(s);
        break;
      default:
        break;
    }
  }

  // A message with weights, or their end. There is one set of weights of a part on a worker, of one slot at a time.
  void Stream(const Action& a, size_t worker) {
    const int32_t s = a.index;
    const int64_t m = a.microbatch;
    const bool serves = a.kind == ActionKind::kRecvRequest || a.kind == ActionKind::kSendWeights;
    const int32_t source = Source(s);
    const bool own = source < 0 && InFile();
    if (a.kind == ActionKind::kLoadWeights || (a.kind == ActionKind::kDropWeights && own)) {
      ok_ = ok_ && own && OnWorker(s, worker) && Takes(s, m);
    } else {
      ok_ = ok_ && source >= 0 && OnWorker(serves ? source : s, worker) && Takes(s, m);
    }
    if (!ok_) return;
    switch (a.kind) {
      case ActionKind::kLoadWeights:
        ok_ = streamed_.try_emplace(s, m, false).second;
        break;
      case ActionKind::kSendRequest:
        ok_ = streamed_.try_emplace(s, m, false).second;
        channels_[{kRequests, s}].push_back(m);
        break;
      case ActionKind::kRecvRequest:
        ok_ = channels_[{kRequests, s}].front() == m && questions_.try_emplace(s, m).second;
        channels_[{kRequests, s}].pop_front();
        break;
      case ActionKind::kSendWeights:
        ok_ = questions_.count(s) == 1 && questions_[s] == m && Has(source, ForStep(m));
        questions_.erase(s);
        channels_[{kWeights, s}].push_back(m);
        break;
      case ActionKind::kRecvWeights:
        ok_ = channels_[{kWeights, s}].front() == m && streamed_.count(s) == 1 &&
              streamed_[s] == std::pair(m, false);
        channels_[{kWeights, s}].pop_front();
        for (const auto& [other, weights] : streamed_) {
          if (weights.second && SamePart(s, other) && OnWorker(other, worker)) ok_ = false;
        }
        streamed_[s].second = true;
        version_[s] = ForStep(m);
        break;
      default:
        ok_ = streamed_.count(s) == 1 && streamed_[s] == std::pair(m, true);
        for (const auto& [what, at, microbatch] : things_) {
          if (at == s && what == "stash") ok_ = false;
        }
        streamed_.erase(s);
    }
  }

  // There and back the version that the microbatch's step reads: all updates before it, but for those that are late.
  int64_t ForStep(int64_t m) const {
    const int64_t step = (m - schedule_.range.first) / StepLength();
    return std::max<int64_t>(0, step - schedule_.weight_policy.lag);
  }
  // Whether the worker that updates `s` still has the version, or already.
  bool Has(int32_t s, int64_t version) {
    return version <= version_[s] && version >= version_[s] - schedule_.weight_policy.lag;
  }

  // Weights from a file are here with the first pass that reads them, if no other slot's are.
  bool HasWeights(int32_t s) {
    if (Source(s) < 0 && !InFile()) return true;
    const auto found = streamed_.find(s);
    if (found == streamed_.end()) return false;
    if (found->second.second || Source(s) >= 0) return found->second.second;
    for (const auto& [other, weights] : streamed_) {
      const bool together =
          schedule_.topology.table[other].worker == schedule_.topology.table[s].worker;
      if (weights.second && SamePart(s, other) && together) return false;
    }
    return found->second.second = true;
  }
  bool InFile() const { return schedule_.topology.weights_in_file; }

  bool HasSumBefore(int32_t s, int64_t m) const {
    const auto found = accumulated_.find(s);
    const int64_t count = m % StepLength();
    if (found == accumulated_.end()) return count == 0;
    return static_cast<int64_t>(found->second.size()) == count && found->second.back() == m - 1;
  }
  bool HasWholeStep(int32_t s) const {
    const auto found = accumulated_.find(s);
    return found != accumulated_.end() && (found->second.back() + 1) % StepLength() == 0;
  }

  void SendSum(int32_t s, int64_t m, size_t worker) {
    ok_ = ok_ && GoesOn(m) && accumulated_.count(s) == 1 && HasSumBefore(s, m) &&
          reduced_[s].empty() && normed_.count(s) == 0 && !OnWorker(At(Place(s), m), worker);
    if (!ok_) return;
    sums_[{Place(s), m}] = accumulated_[s];
    accumulated_.erase(s);
    channels_[{kSums, At(Place(s), m)}].push_back(m);
  }

  // The next microbatch of the range whose W is due.
  int64_t NextWeight(int32_t s) {
    int64_t m = next_weight_.try_emplace(s, schedule_.range.first).first->second;
    while (!Takes(s, m)) ++m;
    return m;
  }

  void Read(int32_t s, int64_t m) {
    const WeightPolicy& policy = schedule_.weight_policy;
    const int64_t forward = forwards_[s]++;
    if (policy.draws()) {
      // Allowed is what is right whatever is drawn.
      const BlockDraws draws(policy.seed, policy.lag, stages());
      ok_ = ok_ && m == schedule_.range.first + forward &&
            forward - draws.DelayMin(s, forward) <= version_[s];
      read_[{s, m}] = forward - draws.DelayOf(m, s, forward);
      return;
    }
    if (Loops()) {
      // The weights for the step, wherever they were made. What was borrowed is one version.
      read_[{s, m}] = ForStep(m);
      ok_ = ok_ && (Source(s) < 0 ? Has(s, ForStep(m)) : version_[s] == ForStep(m));
      return;
    }
    read_[{s, m}] = policy.lag > 0 ? Delayed(s, forward) : version_[s];
    ok_ = ok_ && read_[{s, m}] <= version_[s];
  }

  // The version of a fixed age that a forward reads.
  int64_t Delayed(int32_t s, int64_t forward) {
    const WeightPolicy& policy = schedule_.weight_policy;
    const int64_t replicas = Replicated() ? firsts()[Place(s) + 1] - firsts()[Place(s)] : 1;
    const std::vector<ReduceGroup>& groups = schedule_.topology.groups;
    const bool by_round = std::any_of(groups.begin(), groups.end(), [](const ReduceGroup& group) {
      return group.quantity == ReduceGroup::Quantity::kGradient &&
             group.operation == ReduceGroup::Operation::kMean;
    });
    const int64_t update = forward * replicas / policy.batch;
    const int64_t known = std::max<int64_t>(0, update - policy.lag) * policy.batch;
    return known / (by_round ? replicas : policy.batch);
  }

  int64_t BackwardVersion(int32_t s, int64_t m) {
    const WeightPolicy& policy = schedule_.weight_policy;
    const bool current = policy == kSingleVersion || policy.moves_weights();
    return current ? version_[s] : read_[{s, m}];
  }

  void Step(int32_t s) {
    ok_ = ok_ && accumulated_.count(s) == 1 && (!Loops() || HasWholeStep(s));
    if (schedule_.weight_policy.draws()) ok_ = ok_ && accumulated_[s].size() == 1;
    for (size_t g = 0; g < schedule_.topology.groups.size(); ++g) {
      for (const StageId stage : schedule_.topology.groups[g].stages) {
        if (stage.value != s) continue;
        if (OfWeights(g)) {
          differ_.insert({g, s});
        } else {
          ok_ = ok_ && reduced_[s].count(g) == 1;
        }
      }
    }
    if (!ok_) return;
    StalenessCount& count = staleness_[s];
    ++count.updates;
    for (const int64_t m : accumulated_[s]) {
      const int64_t staleness = version_[s] - read_[{At(Place(s), m), m}];
      count.max = std::max(count.max, staleness);
      count.sum += staleness;
      ++count.microbatches;
    }
    accumulated_.erase(s);
    reduced_[s].clear();
    last_came_.erase(s);
    normed_.erase(s);
    ++version_[s];
    for (int32_t other = 0; schedule_.topology.streams_weights && other < stages(); ++other) {
      // Nobody reads from a file what is written there.
      if (InFile() && SamePart(s, other) && questions_.count(other) > 0) ok_ = false;
      const bool here = OnWorker(other, schedule_.topology.table[s].worker.value);
      if (InFile() && here && SamePart(s, other) && streamed_.count(other) > 0) ok_ = false;
      if (!here || !SamePart(s, other)) continue;
      // Nobody reads the weights between an F or R and its W.
      for (const auto& [what, at, m] : things_) {
        const bool in_flight = what == "checkpoint" || what == "stash" || what == "weight stash";
        if (at == other && in_flight) ok_ = false;
      }
      if (other != s) ++version_[other];
    }
  }

  bool OfWeights(size_t g) const {
    return schedule_.topology.groups[g].quantity == ReduceGroup::Quantity::kWeight;
  }

  // Weights are averaged where nothing waits for them: no stash, no gradient.
  void Average(const Action& a, size_t member) {
    for (const StageId stage : schedule_.topology.groups[a.index].stages) {
      const int32_t s = stage.value;
      if (!OnWorker(s, member)) continue;
      ok_ = ok_ && accumulated_.count(s) == 0;
      for (const auto& [what, at, m] : things_) {
        ok_ =
            ok_ && (at != s || (what != "checkpoint" && what != "stash" && what != "weight stash" &&
                                what != "leaving stash" && what != "stash on the host"));
      }
      if (Loops() && Updates(s)) {
        ok_ = ok_ && differ_.count({static_cast<size_t>(a.index), s}) == 1;
      } else if (Loops()) {
        ++version_[s];
      }
      differ_.erase({static_cast<size_t>(a.index), s});
    }
  }

  void Collective(const Action& a, size_t member) {
    if (std::deque<int32_t>& begun = begun_[member];
        a.kind == ActionKind::kReduce && !begun.empty()) {
      ok_ = ok_ && begun.front() == a.index;
      begun.pop_front();
    }
    if (a.kind == ActionKind::kReduce && OfWeights(static_cast<size_t>(a.index)))
      return Average(a, member);
    for (int32_t s = 0; s < stages(); ++s) {
      if (!OnWorker(s, member)) continue;
      size_t groups = 0;
      bool in_group = a.kind == ActionKind::kNorm;
      for (size_t g = 0; g < schedule_.topology.groups.size(); ++g) {
        for (const StageId stage : schedule_.topology.groups[g].stages) {
          if (stage.value != s || OfWeights(g)) continue;
          ++groups;
          in_group |= a.kind == ActionKind::kReduce && static_cast<int32_t>(g) == a.index;
        }
      }
      if (!in_group || (a.kind == ActionKind::kNorm && !Updates(s))) continue;
      const bool of_models = !Loops() && !Replicated();
      if (a.kind == ActionKind::kNorm && (of_models ? s / depth() : 0) != a.index) continue;
      ok_ = ok_ && accumulated_.count(s) == 1;
      if (a.kind == ActionKind::kNorm && Loops()) ok_ = ok_ && HasWholeStep(s);
      if (a.kind == ActionKind::kNorm) {
        ok_ = ok_ && reduced_[s].size() == groups && normed_.insert(s).second;
      } else {
        ok_ = ok_ && reduced_[s].insert(static_cast<size_t>(a.index)).second;
        // Replicas that have begun wait for the W that they announced; it is only their own group's business.
        const std::vector<StageId>& stages = schedule_.topology.groups[a.index].stages;
        const auto begun = last_came_.find(s);
        const bool own = Place(stages.front().value) == Place(stages.back().value);
        if (own && begun != last_came_.end()) ok_ = ok_ && begun->second;
      }
    }
  }

  void Flush(size_t worker) {
    for (const Thing& thing : things_) ok_ = ok_ && !OnWorker(std::get<1>(thing), worker);
    for (const auto& [stage, gradients] : accumulated_) ok_ = ok_ && !OnWorker(stage, worker);
    for (const auto& [group, stage] : differ_) ok_ = ok_ && !OnWorker(stage, worker);
    for (const auto& [stage, weights] : streamed_) ok_ = ok_ && !OnWorker(stage, worker);
    for (const auto& [stage, m] : questions_) ok_ = ok_ && !OnWorker(Source(stage), worker);
    for (const auto& [stage, came] : last_came_) ok_ = ok_ && !OnWorker(stage, worker);
  }

  bool Complete() const {
    for (int32_t s = 0; s < stages(); ++s) {
      for (int64_t m = schedule_.range.first; m < schedule_.range.end(); ++m) {
        if (!Takes(s, m)) continue;
        for (const ActionKind kind : {ActionKind::kForward, ActionKind::kRecompute,
                                      ActionKind::kBackwardInput, ActionKind::kBackwardWeight}) {
          if (!Does(kind, s)) continue;
          const auto found = done_.find({kind, s, m});
          if (found == done_.end() || found->second != 1) return false;
        }
      }
    }
    size_t expected = 0;
    for (int32_t s = 0; s < stages(); ++s) {
      for (int64_t m = schedule_.range.first; m < schedule_.range.end(); ++m) {
        if (!Takes(s, m)) continue;
        for (const ActionKind kind : {ActionKind::kForward, ActionKind::kRecompute,
                                      ActionKind::kBackwardInput, ActionKind::kBackwardWeight}) {
          expected += Does(kind, s);
        }
      }
    }
    return done_.size() == expected;
  }
  bool Does(ActionKind kind, int32_t s) const {
    if (kind == ActionKind::kRecompute) return Recomputes(s);
    return kind == ActionKind::kForward ? Forwards(s) : Backwards(s);
  }

  struct Less {
    bool operator()(const Action& a, const Action& b) const {
      return std::tuple(a.kind, a.index, a.microbatch) < std::tuple(b.kind, b.index, b.microbatch);
    }
  };

  const Schedule& schedule_;
  const std::vector<int32_t> firsts_;
  const size_t capacity_;
  RandomStream random_;
  std::vector<ActionList> lists_;
  std::vector<size_t> next_;
  bool ok_ = true;
  std::set<Thing> things_;
  std::map<ChannelKey, std::deque<int64_t>> channels_;
  std::map<Action, int, Less> done_;
  std::map<int32_t, int64_t> version_;
  std::map<int32_t, int64_t> forwards_;
  std::map<std::pair<int32_t, int64_t>, int64_t> read_;        // version by stage and microbatch
  std::map<std::pair<int32_t, int64_t>, int64_t> read_again_;  // by R
  std::map<int32_t, int64_t> next_weight_;
  std::map<int32_t, std::vector<int64_t>> accumulated_;
  std::map<std::pair<int32_t, int64_t>, std::vector<int64_t>> sums_;  // by place, on their way
  std::map<int32_t, std::set<size_t>> reduced_;
  std::set<int32_t> normed_;
  std::map<int32_t, bool> last_came_;            // by stage that has begun: whether its last W came
  std::map<size_t, std::deque<int32_t>> begun_;  // groups, by worker
  std::set<std::pair<size_t, int32_t>> differ_;  // stages that made a step since a group averaged
  std::map<int32_t, StalenessCount> staleness_;
  // Streamed weights, by stage: from which microbatch on they are asked for, and whether they are here; what is asked.
  std::map<int32_t, std::pair<int64_t, bool>> streamed_;
  std::map<int32_t, int64_t> questions_;
};

std::vector<Schedule> Originals() {
  std::vector<Schedule> originals;
  for (const Method& method : Methods()) {
    for (const int32_t stages : {2, 3}) {
      originals.push_back(CatalogSteps(method, stages, 2, 4, 2));
    }
    originals.push_back(RecomputingSteps(method, {.all = true}, 2, 2, 4, 2));
    originals.push_back(RecomputingSteps(method, {.places = {0}}, 3, 2, 4, 2));
    if (method.placement == Placement::kRoundTrip) continue;
    originals.push_back(OffloadingSteps(method, {.all = 2}, 3, 4, 4, 2));
  }
  ScheduleOptions tied = TiedOptions(3, 2);
  tied.global_norm = true;
  originals.push_back(BuildSchedule(**FindMethod("1f1b"), tied, {0, 4}).value());
  ScheduleOptions tied_rounds = TiedOptions(RoundTripPipelines(2, 2, 4), 4);
  tied_rounds.global_norm = true;
  originals.push_back(BuildSchedule(**FindMethod("roundpipe"), tied_rounds, {0, 8}).value());
  const ScheduleOptions rounds{.topology = RoundTripPipelines(3, 2, 6), .microbatches_per_step = 6};
  originals.push_back(BuildSchedule(**FindMethod("roundpipe"), rounds, {0, 6}).value());
  const ScheduleOptions uneven{.topology = RoundTripPipelines(3, 2, 4, /*stages_per_forward=*/2),
                               .microbatches_per_step = 4};
  originals.push_back(BuildSchedule(**FindMethod("roundpipe"), uneven, {0, 4}).value());
  for (const auto& [parts, workers, per_forward] :
       {std::tuple(2, 2, 1), std::tuple(3, 3, 1), std::tuple(3, 2, 1), std::tuple(3, 2, 2)}) {
    const int64_t step = 2 * workers;
    const Topology round_trip = RoundTripPipelines(parts, workers, step, per_forward);
    const ScheduleOptions streamed{.topology = StreamWeights(round_trip).value(),
                                   .microbatches_per_step = step,
                                   .global_norm = parts == 3};
    originals.push_back(BuildSchedule(**FindMethod("roundpipe"), streamed, {0, 2 * step}).value());
    const ScheduleOptions late{.topology = streamed.topology, .microbatches_per_step = step};
    originals.push_back(
        BuildSchedule(**FindMethod("roundpipe-async"), late, {0, 4 * step}).value());
    for (const bool global_norm : {false, true}) {
      const ScheduleOptions in_file{.topology = StreamWeights(round_trip, /*in_file=*/true).value(),
                                    .microbatches_per_step = step,
                                    .global_norm = global_norm};
      originals.push_back(BuildSchedule(**FindMethod("roundpipe"), in_file, {0, 2 * step}).value());
    }
  }
  const ScheduleOptions tied_replicas = TiedOptions(ReplicatedPipelines(3, 2), 6);
  originals.push_back(BuildSchedule(**FindMethod("local-sgd"), tied_replicas, {0, 6}).value());
  ScheduleOptions normed_replicas = TiedOptions(ReplicatedPipelines(2, 2), 4);
  normed_replicas.global_norm = true;
  originals.push_back(BuildSchedule(**FindMethod("local-sgd"), normed_replicas, {0, 4}).value());
  for (const absl::string_view name : {"gpipe", "1f1b", "pipedream"}) {
    for (const std::vector<int32_t>& replicas :
         std::vector<std::vector<int32_t>>{{2}, {2, 1}, {1, 2}, {2, 2}}) {
      const Method& method = **FindMethod(name);
      const ScheduleOptions replicated{.topology = PlaceReplicas(method, replicas).value(),
                                       .microbatches_per_step = 2};
      originals.push_back(BuildSchedule(method, replicated, {4, 4}).value());
    }
  }
  struct Late {
    absl::string_view method;
    const Weights* weights;
  };
  for (const Late& late : {Late{"paci", &Weights::kSingle},
                           {"pipedream-2bw", &Weights::kDoubleBuffer},
                           {"pipedream", &Weights::kVerticalSync},
                           {"spectrain", &Weights::kSpecTrain}}) {
    for (const std::vector<int32_t>& replicas :
         std::vector<std::vector<int32_t>>{{2, 1}, {1, 2}, {2, 2}}) {
      const Method& method = **FindMethod(late.method);
      const ScheduleOptions options{.topology = PlaceReplicas(method, replicas).value(),
                                    .microbatches_per_step = 4,
                                    .weights = late.weights};
      originals.push_back(BuildSchedule(method, options, {4, 8}).value());
    }
  }
  ScheduleOptions tied_stages =
      TiedOptions(PlaceReplicas(**FindMethod("1f1b"), {2, 1, 3}).value(), 6);
  tied_stages.global_norm = true;
  originals.push_back(BuildSchedule(**FindMethod("1f1b"), tied_stages, {0, 6}).value());
  // Two stages on a worker, whose reductions share their messages' edges.
  for (const absl::string_view name : {"looped-bfs", "zb-v"}) {
    const Method& method = **FindMethod(name);
    const ScheduleOptions options{.topology = PlaceReplicas(method, {2, 2}, 2).value(),
                                  .microbatches_per_step = 4};
    originals.push_back(BuildSchedule(method, options, {0, 4}).value());
  }
  // R apart from I, with a step between some of them, whose weights the others must not miss.
  originals.push_back(
      ScheduleFromText("# penstock schedule 1 stages=0,1 range=0+3 recompute=0,1\n"
                       "0F0,0F1,0R0,0B0,0R1,0B1,0UPDATE,0F2,0R2,0B2,0UPDATE\n"
                       "1F0,1R0,1I0,1F1,1R1,1W0,1B1,1UPDATE,1F2,1R2,1B2,1UPDATE\n"));
  // Two neighbouring stages on one worker, and W apart from I.
  originals.push_back(ScheduleFromText(
      "# penstock schedule 1 stages=0,0,1 range=0+3\n"
      "0F0,1F0,0F1,1F1,1I0,0I0,0F2,1F2,1W0,0W0,1I1,0I1,1W1,0W1,1B2,0B2,0UPDATE,1UPDATE\n"
      "2F0,2I0,2F1,2I1,2W0,2F2,2W1,2B2,2UPDATE\n"));
  return originals;
}

// MUTANTS=100000 for longer.
TEST(Verify, ThousandsOfMutants_AreJudgedLikeByAnIndependentExecution) {
  const std::vector<Schedule> originals = Originals();
  RandomStream random(17, 0);
  int accepted = 0;
  const int mutants = EnvironmentNumber("MUTANTS", 20'000);
  for (int round = 0; round < mutants; ++round) {
    Schedule schedule = originals[random.Below(originals.size())];
    for (Program& program : schedule.programs) program = {.prologue = Expand(program)};
    for (uint64_t mutations = random.Below(4); mutations > 0; --mutations) Mutate(random, schedule);
    const auto capacity = static_cast<int32_t>(1 + random.Below(3));

    const absl::StatusOr<VerifyReport> report = Verify(schedule, {.channel_capacity = capacity});
    // A form that cannot run at all (no FLUSH at the end) is not judged further.
    if (absl::IsInvalidArgument(report.status())) continue;
    const int orders = report.ok() ? 3 : 1;
    for (int order = 0; order < orders; ++order) {
      RandomExecution execution(schedule, static_cast<size_t>(capacity), random.Next());
      ASSERT_EQ(execution.RunsThrough(), report.ok())
          << report.status() << "\ncapacity " << capacity << "\n"
          << PrintSchedule(schedule);
      if (!report.ok()) continue;
      for (int32_t stage = 0; stage < schedule.topology.stages(); ++stage) {
        ASSERT_EQ(execution.staleness(stage), report->stages[stage].staleness);
      }
    }
    accepted += report.ok();
  }
  // Neither everything nor nothing: the comparison means something.
  EXPECT_GT(accepted, mutants / 5);
  EXPECT_LT(accepted, 4 * mutants / 5);
}

}  // namespace
}  // namespace penstock
