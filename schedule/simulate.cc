#include "schedule/simulate.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/run.h"

namespace penstock {
namespace {

constexpr double kNsPerSecond = 1e9;

int64_t ToNs(double seconds) { return std::llround(seconds * kNsPerSecond); }
double ToSeconds(int64_t ns) { return static_cast<double>(ns) / kNsPerSecond; }

absl::Status CheckTime(double seconds, absl::string_view what) {
  constexpr double kSecondsMax = 1e6;
  if (seconds >= 0 && seconds <= kSecondsMax) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " must lie between 0 and ", kSecondsMax, " seconds, got ", seconds));
}

absl::Status CheckStage(const StageCosts& stage) {
  PENSTOCK_RETURN_IF_ERROR(CheckTime(stage.forward_s, "forward time"));
  PENSTOCK_RETURN_IF_ERROR(CheckTime(stage.backward_input_s, "backward-input time"));
  PENSTOCK_RETURN_IF_ERROR(CheckTime(stage.backward_weight_s, "backward-weight time"));
  return CheckTime(stage.step_s, "step time");
}

absl::Status CheckLink(const LinkCosts& link) {
  if (!(link.bytes_per_second > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes per second must be positive, got ", link.bytes_per_second));
  }
  PENSTOCK_RETURN_IF_ERROR(CheckTime(link.bytes / link.bytes_per_second, "transfer time"));
  return CheckTime(link.latency_s, "latency");
}

// SimulationCosts in nanoseconds, the defaults filled in.
class Costs {
 public:
  static absl::StatusOr<Costs> From(const SimulationCosts& costs, int32_t stages);

  int64_t compute_ns(const Action& action) const {
    const Stage& stage = stages_[action.index];
    switch (action.op) {
      case Op::kForward:
        return stage.forward_ns;
      case Op::kBackwardInput:
        return stage.backward_input_ns;
      case Op::kBackwardWeight:
        return stage.backward_weight_ns;
      default:
        return stage.step_ns;
    }
  }
  // Of the link that a SEND uses.
  int64_t transfer_ns(const Action& send) const { return links_[LinkOf(send)].transfer_ns; }
  int64_t latency_ns(const Action& send) const { return links_[LinkOf(send)].latency_ns; }
  int64_t overhead_ns() const { return overhead_ns_; }
  int64_t collective_ns() const { return collective_ns_; }
  // No action or message takes longer.
  int64_t longest_ns() const;

 private:
  struct Stage {
    int64_t forward_ns, backward_input_ns, backward_weight_ns, step_ns;
  };
  struct Link {
    int64_t transfer_ns, latency_ns;
  };

  static int32_t LinkOf(const Action& send) {
    return send.op == Op::kSendActivation ? send.index : send.index - 1;
  }

  std::vector<Stage> stages_;
  std::vector<Link> links_;
  int64_t overhead_ns_ = 0;
  int64_t collective_ns_ = 0;
};

absl::StatusOr<Costs> Costs::From(const SimulationCosts& costs, int32_t stages) {
  const auto check_size = [](size_t size, int32_t expected, absl::string_view what) {
    if (size == 0 || static_cast<int32_t>(size) == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("expected costs of ", expected, " ", what, " (or none), got ", size));
  };
  PENSTOCK_RETURN_IF_ERROR(check_size(costs.stages.size(), stages, "stages"));
  PENSTOCK_RETURN_IF_ERROR(check_size(costs.links.size(), stages - 1, "links"));
  PENSTOCK_RETURN_IF_ERROR(CheckTime(costs.overhead_s, "overhead"));
  PENSTOCK_RETURN_IF_ERROR(CheckTime(costs.collective_s, "collective time"));
  Costs result;
  for (int32_t s = 0; s < stages; ++s) {
    const StageCosts stage = costs.stages.empty() ? StageCosts() : costs.stages[s];
    PENSTOCK_RETURN_IF_ERROR(Annotate(CheckStage(stage), absl::StrCat("stage ", s)));
    result.stages_.push_back({ToNs(stage.forward_s), ToNs(stage.backward_input_s),
                              ToNs(stage.backward_weight_s), ToNs(stage.step_s)});
  }
  for (int32_t s = 0; s + 1 < stages; ++s) {
    const LinkCosts link = costs.links.empty() ? LinkCosts() : costs.links[s];
    PENSTOCK_RETURN_IF_ERROR(Annotate(CheckLink(link), absl::StrCat("link ", s)));
    result.links_.push_back({ToNs(link.bytes / link.bytes_per_second), ToNs(link.latency_s)});
  }
  result.overhead_ns_ = ToNs(costs.overhead_s);
  result.collective_ns_ = ToNs(costs.collective_s);
  return result;
}

int64_t Costs::longest_ns() const {
  int64_t longest = std::max(overhead_ns_, collective_ns_);
  for (const Stage& stage : stages_) {
    longest = std::max({longest, stage.forward_ns, stage.backward_input_ns,
                        stage.backward_weight_ns, stage.step_ns});
  }
  for (const Link& link : links_) longest = std::max({longest, link.transfer_ns, link.latency_ns});
  return longest;
}

// Puts times to the actions of a run.
//
// The interpreter reports actions in an order that respects all dependencies, and that is enough: the
// start of an action is the maximum of the times of what it depends on. Place i of a channel with
// capacity C carries messages i, i + C, i + 2C, ...; its time says since when its message is there or,
// after the receive, since when it is free.
class Timekeeper : public RunObserver {
 public:
  Timekeeper(const Schedule& schedule, const Costs& costs, const SimulationOptions& options)
      : costs_(costs),
        channel_capacity_(options.channel_capacity),
        spans_per_worker_max_(options.timeline_spans_max / schedule.topology.workers),
        workers_(schedule.topology.workers) {
    timeline_.workers = schedule.topology.workers;
    const size_t channels = 2 * static_cast<size_t>(schedule.topology.stages());
    link_free_ns_.resize(channels);
    place_ns_.resize(channels * static_cast<size_t>(channel_capacity_));
    const Program& program = schedule.programs.front();
    const auto copy_end = [&program](int64_t copies) {
      return static_cast<int64_t>(program.prologue.size()) +
             copies * static_cast<int64_t>(program.period.size());
    };
    middle_ = {copy_end(program.repeats / 2)};
    end_ = {copy_end(program.repeats)};
  }

  absl::Status OnAction(WorkerId id, const Action& action, const Effect&,
                        MessageId message) override {
    if (message.channel < 0) {
      Worker& worker = workers_[id.value];
      worker.now_ns += costs_.overhead_ns();
      if (action.op != Op::kFlush) Spend(id, Lane::kCompute, action, costs_.compute_ns(action));
    } else if (IsSend(action.op)) {
      Send(id, action, message);
    } else {
      int64_t& place = PlaceOf(message);
      WaitUntil(id, Wait::kInput, action, place);
      Spend(id, Lane::kReceive, action, costs_.overhead_ns());
      place = workers_[id.value].now_ns;
    }
    CountAction(id);
    return absl::OkStatus();
  }

  void OnCollective(const Action& action, absl::Span<const WorkerId> members) override {
    int64_t start_ns = 0;
    for (const WorkerId id : members) start_ns = std::max(start_ns, workers_[id.value].now_ns);
    for (const WorkerId id : members) {
      WaitUntil(id, Wait::kCollective, action, start_ns);
      Spend(id, Lane::kCollective, action, costs_.overhead_ns() + costs_.collective_ns());
      CountAction(id);
    }
  }

  SimulationResult Finish(const Schedule& schedule) {
    SimulationResult result;
    int64_t makespan_ns = 0;
    for (const Worker& worker : workers_) makespan_ns = std::max(makespan_ns, worker.now_ns);
    result.makespan_s = ToSeconds(makespan_ns);
    for (const Worker& worker : workers_) {
      result.workers.push_back(TimesOf(worker, makespan_ns));
      result.bubble_ratio += result.workers.back().bubble_ratio / timeline_.workers;
    }
    const Program& program = schedule.programs.front();
    const int64_t copies = program.repeats - program.repeats / 2;
    const bool repeats = program.repeats >= 2 && program.shift > 0;
    result.steady_state_period_s =
        repeats ? ToSeconds(end_.time_ns - middle_.time_ns) /
                      static_cast<double>(copies * program.shift)
                : result.makespan_s / static_cast<double>(schedule.range.count);
    result.timeline = std::move(timeline_);
    return result;
  }

 private:
  struct Worker {
    int64_t now_ns = 0;
    int64_t actions = 0;
    int64_t spans = 0;  // kept
    TimeShares shares;
  };
  // The time after which worker 0 has performed `actions` actions.
  struct Milestone {
    int64_t actions = 0;
    int64_t time_ns = 0;
  };

  int64_t& PlaceOf(MessageId message) {
    return place_ns_[static_cast<size_t>(message.channel) * channel_capacity_ +
                     message.number % channel_capacity_];
  }

  void Send(WorkerId id, const Action& action, MessageId message) {
    int64_t& place = PlaceOf(message);
    int64_t& link_free_ns = link_free_ns_[message.channel];
    WaitUntil(id, Wait::kCredit, action, place);
    Spend(id, Lane::kSend, action, costs_.overhead_ns());
    const int64_t start_ns = std::max(workers_[id.value].now_ns, link_free_ns);
    link_free_ns = start_ns + costs_.transfer_ns(action);
    place = link_free_ns + costs_.latency_ns(action);
    if (place > start_ns) Keep({id, Lane::kTransfer, Wait::kNone, action, start_ns, place});
  }

  void WaitUntil(WorkerId id, Wait cause, const Action& action, int64_t time_ns) {
    Worker& worker = workers_[id.value];
    if (time_ns <= worker.now_ns) return;
    Account({id, Lane::kWait, cause, action, worker.now_ns, time_ns});
    worker.now_ns = time_ns;
  }

  // Collectives, sends and receives that take no time are left out of the timeline.
  void Spend(WorkerId id, Lane lane, const Action& action, int64_t duration_ns) {
    Worker& worker = workers_[id.value];
    const Span span{id, lane, Wait::kNone, action, worker.now_ns, worker.now_ns + duration_ns};
    if (duration_ns > 0 || lane == Lane::kCompute) Account(span);
    worker.now_ns = span.end_ns;
  }

  void Account(const Span& span) {
    workers_[span.worker.value].shares.Add(span);
    Keep(span);
  }

  void Keep(const Span& span) {
    Worker& worker = workers_[span.worker.value];
    if (worker.spans >= spans_per_worker_max_) return;
    ++worker.spans;
    timeline_.spans.push_back(span);
  }

  void CountAction(WorkerId id) {
    Worker& worker = workers_[id.value];
    ++worker.actions;
    if (id.value != 0) return;
    if (worker.actions == middle_.actions) middle_.time_ns = worker.now_ns;
    if (worker.actions == end_.actions) end_.time_ns = worker.now_ns;
  }

  static WorkerTimes TimesOf(const Worker& worker, int64_t makespan_ns) {
    const TimeShares& shares = worker.shares;
    WorkerTimes times;
    times.busy_s = ToSeconds(shares.busy_ns());
    times.overhead_s = ToSeconds(worker.now_ns - shares.busy_ns() - shares.waiting_ns());
    times.wait_input_s = ToSeconds(shares.waiting_ns(Wait::kInput));
    times.wait_credit_s = ToSeconds(shares.waiting_ns(Wait::kCredit));
    times.wait_collective_s = ToSeconds(shares.waiting_ns(Wait::kCollective));
    times.done_early_s = ToSeconds(makespan_ns - worker.now_ns);
    if (makespan_ns > 0) times.bubble_ratio = times.idle_s() / ToSeconds(makespan_ns);
    return times;
  }

  const Costs& costs_;
  const int64_t channel_capacity_;
  const int64_t spans_per_worker_max_;
  std::vector<Worker> workers_;
  std::vector<int64_t> link_free_ns_;  // by channel
  std::vector<int64_t> place_ns_;      // by channel and place
  Timeline timeline_;
  Milestone middle_;
  Milestone end_;
};

absl::Status CheckSize(const Schedule& schedule, const Costs& costs,
                       const SimulationOptions& options) {
  int64_t actions = 0;
  for (const Program& program : schedule.programs) actions += program.size();
  if (actions > options.actions_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the schedule has ", actions, " actions, more than the limit of ", options.actions_max));
  }
  // An upper bound: every action and message after every other.
  constexpr double kYears = 200;
  const double ns_max =
      3.0 * static_cast<double>(actions) * static_cast<double>(costs.longest_ns());
  if (ns_max > kYears * 365 * 86400 * kNsPerSecond) {
    return absl::InvalidArgumentError(
        absl::StrCat("the schedule may last longer than ", kYears, " years"));
  }
  if (options.channel_capacity < 1 || options.channel_capacity > 1'000'000) {
    return absl::InvalidArgumentError(
        absl::StrCat("a channel must hold 1 to 1000000 messages, got ", options.channel_capacity));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SimulationResult> Simulate(const Schedule& schedule, const SimulationCosts& costs,
                                          const SimulationOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckSchedule(schedule));
  const Topology& topology = schedule.topology;
  PENSTOCK_ASSIGN_OR_RETURN(const Costs costs_ns, Costs::From(costs, topology.stages()));
  PENSTOCK_RETURN_IF_ERROR(CheckSize(schedule, costs_ns, options));
  Timekeeper timekeeper(schedule, costs_ns, options);
  Interpreter interpreter(schedule, options.channel_capacity, timekeeper);
  PENSTOCK_ASSIGN_OR_RETURN(const bool done, interpreter.RunToEnd());
  if (!done) {
    return absl::FailedPreconditionError(
        absl::StrCat("deadlock with channels of ", options.channel_capacity,
                     " messages: ", interpreter.DescribeBlocked()));
  }
  SimulationResult result = timekeeper.Finish(schedule);
  for (int32_t id = 0; id < topology.stages(); ++id) {
    const StageId stage(id);
    result.stages.push_back(interpreter.machine(topology.worker(stage)).counts(stage));
  }
  return result;
}

}  // namespace penstock
