#include "schedule/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "schedule/collective_clock.h"
#include "schedule/costs_ns.h"
#include "schedule/microbatch_table.h"
#include "schedule/network_cards.h"
#include "schedule/run.h"
#include "schedule/verify.h"

namespace penstock {
namespace {

constexpr double kNsPerSecond = 1e9;

double ToSeconds(int64_t ns) { return static_cast<double>(ns) / kNsPerSecond; }

// Puts times to the actions of a run.
//
// The interpreter reports actions in an order that respects all dependencies, and that is enough:
// the start of an action is the maximum of the times of what it depends on. Place i of a channel
// with capacity C carries messages i, i + C, i + 2C, ...; its time says since when its message is
// there or, after the receive, since when it is free. Places are made when their first message comes.
class Timekeeper : public RunObserver {
 public:
  // `collectives`: null where they take the same time for all members. `cards`: null where they have no limit.
  Timekeeper(const Schedule& schedule, const CostsNs& costs, const SimulationOptions& options,
             int32_t channel_capacity, CollectiveClock* collectives, NetworkCards* cards)
      : topology_(schedule.topology),
        costs_(costs),
        collectives_(collectives),
        cards_(cards),
        channel_capacity_(channel_capacity),
        spans_per_worker_max_(options.timeline_spans_max / schedule.topology.workers),
        workers_(schedule.topology.workers),
        stage_busy_ns_(schedule.topology.stages()),
        copied_ns_(schedule.topology.stages()),
        read_ns_(schedule.topology.stages()) {
    timeline_.workers = schedule.topology.workers;
    const size_t channels = schedule.topology.edges.size();
    link_free_ns_.resize(channels);
    places_.resize(channels);
    const Program& program = schedule.programs.front();
    const auto copy_end = [&program](int64_t copies) {
      return static_cast<int64_t>(program.prologue.size()) +
             copies * static_cast<int64_t>(program.period.size());
    };
    middle_ = {copy_end(program.repeats / 2)};
    end_ = {copy_end(program.repeats)};
  }

  absl::Status OnAction(WorkerId id, const Action& action, const Effect& effect,
                        MessageId message) override {
    if (action.kind == ActionKind::kBeginReduce) {
      // An announcement, which takes nothing.
    } else if (message.channel < 0) {
      Worker& worker = workers_[id.value];
      worker.now_ns += costs_.overhead_ns();
      if (MovesStash(action.kind)) {
        Move(id, action);
      } else if (action.kind == ActionKind::kLoadWeights) {
        ReadWeights(id, action);
      } else if (action.kind == ActionKind::kDropWeights) {
        if (effect.sum_in_file) {
          WaitUntil(id, Wait::kHost, action,
                    Copy(id, action, Lane::kOffload, costs_.store_ns(action)));
        }
      } else if (action.kind != ActionKind::kFlush) {
        const int64_t start_ns = worker.now_ns;
        Compute(id, action);
        if (effect.completes.value >= 0 && collectives_ != nullptr) {
          collectives_->NoteLastPass(effect.completes, id, {start_ns, worker.now_ns});
        }
      }
    } else if (IsSend(action.kind)) {
      if (action.kind == ActionKind::kSendWeights) AwaitWeights(id, action);
      if (effect.sum_in_file) {
        WaitUntil(id, Wait::kHost, action,
                  Copy(id, action, Lane::kPrefetch, costs_.load_ns(action)));
      }
      Send(id, action, message);
    } else {
      Place& place = PlaceOf(message);
      if (cards_ != nullptr) {
        const int64_t there_ns = cards_->Arrive(id, place.bytes, place.left_ns);
        place.time_ns = std::max(place.time_ns, there_ns + place.latency_ns);
      }
      WaitUntil(id, Wait::kInput, action, place.time_ns);
      Spend(id, Lane::kReceive, action, costs_.overhead_ns());
      place.time_ns = workers_[id.value].now_ns;
      const bool asks = action.kind == ActionKind::kRecvRequest;
      if (asks && topology_.weights_in_file) ReadWeights(id, action);
    }
    CountAction(id);
    return absl::OkStatus();
  }

  void OnCollective(const Action& action, absl::Span<const WorkerId> members) override {
    int64_t start_ns = 0;
    done_ns_.resize(workers_.size());
    for (const WorkerId id : members) {
      start_ns = std::max(start_ns, workers_[id.value].now_ns);
      done_ns_[id.value] = workers_[id.value].now_ns;
    }
    const bool by_messages =
        collectives_ != nullptr && collectives_->Perform(action, members, absl::MakeSpan(done_ns_));
    for (const WorkerId id : members) {
      const int64_t done_ns = by_messages ? done_ns_[id.value] : start_ns;
      WaitUntil(id, Wait::kCollective, action, std::min(start_ns, done_ns));
      const int64_t messages_ns = done_ns - workers_[id.value].now_ns;
      Spend(id, Lane::kCollective, action,
            costs_.overhead_ns() + costs_.collective_ns() + messages_ns);
      CountAction(id);
    }
    if (!by_messages) return;
    for (const auto& [id, window] : collectives_->early_windows()) {
      Keep({id, Lane::kTransfer, Wait::kNone, action, window.start_ns, window.end_ns});
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
    for (const int64_t busy_ns : stage_busy_ns_) result.stage_busy_s.push_back(ToSeconds(busy_ns));
    if (cut_ns_ < makespan_ns) {
      std::erase_if(timeline_.spans, [this](const Span& span) { return span.start_ns >= cut_ns_; });
      result.timeline_cut_s = ToSeconds(cut_ns_);
    }
    result.timeline = std::move(timeline_);
    return result;
  }

 private:
  struct Worker {
    int64_t now_ns = 0;
    int64_t offload_free_ns = 0;  // the lanes of copies
    int64_t prefetch_free_ns = 0;
    int64_t actions = 0;
    int64_t spans = 0;  // kept
    TimeShares shares;
  };
  // Of a channel.
  struct Place {
    int64_t time_ns = 0;
    // With network cards, of the message that is there: they have still to carry it in.
    int64_t left_ns = 0;
    int64_t latency_ns = 0;
    double bytes = 0.0;
  };
  // The time after which worker 0 has performed `actions` actions.
  struct Milestone {
    int64_t actions = 0;
    int64_t time_ns = 0;
  };

  Place& PlaceOf(MessageId message) {
    std::vector<Place>& places = places_[message.channel];
    const auto place = static_cast<size_t>(message.number % channel_capacity_);
    if (place >= places.size()) places.resize(place + 1);
    return places[place];
  }

  void Move(WorkerId id, const Action& action) {
    if (action.kind == ActionKind::kEvict) {
      AwaitCopy(id, action);
      return;
    }
    const bool offloads = action.kind == ActionKind::kOffload;
    copied_ns_[action.index].Insert(action.microbatch) =
        Copy(id, action, offloads ? Lane::kOffload : Lane::kPrefetch,
             offloads ? costs_.offload_ns(action) : costs_.prefetch_ns(action));
  }

  // Begins a copy in a lane that has one at a time. Returns when it ends.
  int64_t Copy(WorkerId id, const Action& action, Lane lane, int64_t duration_ns) {
    Worker& worker = workers_[id.value];
    int64_t& free_ns = lane == Lane::kOffload ? worker.offload_free_ns : worker.prefetch_free_ns;
    const int64_t start_ns = std::max(worker.now_ns, free_ns);
    free_ns = start_ns + duration_ns;
    if (duration_ns > 0) Keep({id, lane, Wait::kNone, action, start_ns, free_ns});
    return free_ns;
  }

  // From the worker's own file.
  void ReadWeights(WorkerId id, const Action& action) {
    read_ns_[action.index] = Copy(id, action, Lane::kPrefetch, costs_.load_ns(action));
  }
  void AwaitWeights(WorkerId id, const Action& action) {
    WaitUntil(id, Wait::kHost, action, read_ns_[action.index]);
  }

  // Waits for the last copy of the stash, if there is one.
  void AwaitCopy(WorkerId id, const Action& action) {
    MicrobatchTable<int64_t>& copied_ns = copied_ns_[action.index];
    const int64_t* const until_ns = copied_ns.Find(action.microbatch);
    if (until_ns == nullptr) return;
    WaitUntil(id, Wait::kHost, action, *until_ns);
    copied_ns.Erase(action.microbatch);
  }

  void Compute(WorkerId id, const Action& action) {
    if (action.kind == ActionKind::kBackwardInput) AwaitCopy(id, action);
    const bool updates_file = topology_.weights_in_file && action.kind == ActionKind::kUpdate;
    if (updates_file) {
      WaitUntil(id, Wait::kHost, action,
                Copy(id, action, Lane::kPrefetch, costs_.read_state_ns(action)));
    } else {
      AwaitWeights(id, action);
    }
    const int64_t duration_ns = costs_.compute_ns(action);
    stage_busy_ns_[action.index] += duration_ns;
    Spend(id, Lane::kCompute, action, duration_ns);
    if (!updates_file) return;
    WaitUntil(id, Wait::kHost, action,
              Copy(id, action, Lane::kOffload, costs_.write_state_ns(action)));
  }

  void Send(WorkerId id, const Action& action, MessageId message) {
    Place& place = PlaceOf(message);
    int64_t& link_free_ns = link_free_ns_[message.channel];
    WaitUntil(id, Wait::kCredit, action, place.time_ns);
    Spend(id, Lane::kSend, action, costs_.overhead_ns());
    int64_t start_ns = std::max(workers_[id.value].now_ns, link_free_ns);
    place.latency_ns = costs_.latency_ns(action);
    int64_t card_ns = 0;
    if (cards_ != nullptr) {
      place.bytes = costs_.bytes(action);
      card_ns = cards_->TimeOf(place.bytes);
      place.left_ns = start_ns = cards_->Leave(id, place.bytes, start_ns);
    }
    link_free_ns = start_ns + costs_.transfer_ns(action);
    place.time_ns = std::max(link_free_ns, start_ns + card_ns) + place.latency_ns;
    if (place.time_ns > start_ns) {
      Keep({id, Lane::kTransfer, Wait::kNone, action, start_ns, place.time_ns});
    }
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
    if (worker.spans >= spans_per_worker_max_) {
      if (spans_per_worker_max_ > 0) cut_ns_ = std::min(cut_ns_, span.start_ns);
      return;
    }
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
    times.wait_host_s = ToSeconds(shares.waiting_ns(Wait::kHost));
    times.done_early_s = ToSeconds(makespan_ns - worker.now_ns);
    if (makespan_ns > 0) times.bubble_ratio = times.idle_s() / ToSeconds(makespan_ns);
    return times;
  }

  const Topology& topology_;
  const CostsNs& costs_;
  CollectiveClock* const collectives_;
  NetworkCards* const cards_;
  std::vector<int64_t> done_ns_;  // by worker, for the time of a collective
  const int64_t channel_capacity_;
  const int64_t spans_per_worker_max_;
  std::vector<Worker> workers_;
  std::vector<int64_t> stage_busy_ns_;
  std::vector<MicrobatchTable<int64_t>> copied_ns_;  // by stage: when the last copy of a stash ends
  std::vector<int64_t> read_ns_;       // by stage: when its weights have last come from their file
  std::vector<int64_t> link_free_ns_;  // by channel
  std::vector<std::vector<Place>> places_;  // by channel and place
  Timeline timeline_;
  int64_t cut_ns_ =
      std::numeric_limits<int64_t>::max();  // the first start of a span that is not kept
  Milestone middle_;
  Milestone end_;
};

absl::Status CheckSize(const Schedule& schedule, const CostsNs& costs,
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
  if (options.channel_capacity &&
      !(*options.channel_capacity >= 1 && *options.channel_capacity <= 1'000'000)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a channel must hold 1 to 1000000 messages, got ", *options.channel_capacity));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SimulationResult> Simulate(const Schedule& schedule, const SimulationCosts& costs,
                                          const SimulationOptions& options) {
  PENSTOCK_RETURN_IF_ERROR(CheckSchedule(schedule));
  const Topology& topology = schedule.topology;
  PENSTOCK_ASSIGN_OR_RETURN(const CostsNs costs_ns, CostsNs::From(costs, topology));
  PENSTOCK_RETURN_IF_ERROR(CheckSize(schedule, costs_ns, options));
  const int32_t channel_capacity =
      options.channel_capacity.value_or(ChannelCapacityOf(schedule.topology));
  std::optional<NetworkCards> cards;
  std::optional<CollectiveClock> collectives;
  if (costs.worker_links.has_value()) {
    const WorkerLinks& links = *costs.worker_links;
    if (std::isfinite(links.card_bytes_per_second)) {
      cards.emplace(topology.workers, links.card_bytes_per_second);
    }
    collectives.emplace(topology, links, costs.traffic, cards ? &*cards : nullptr);
  }
  Timekeeper timekeeper(schedule, costs_ns, options, channel_capacity,
                        collectives ? &*collectives : nullptr, cards ? &*cards : nullptr);
  Interpreter interpreter(schedule, channel_capacity, timekeeper);
  PENSTOCK_ASSIGN_OR_RETURN(const bool done, interpreter.RunToEnd());
  if (!done && !options.channel_capacity && interpreter.BlockedOnFullChannel()) {
    PENSTOCK_ASSIGN_OR_RETURN(const VerifyReport report, Verify(schedule));
    SimulationOptions wider = options;
    wider.channel_capacity = report.channel_capacity_min;
    return Simulate(schedule, costs, wider);
  }
  if (!done) {
    return absl::FailedPreconditionError(
        absl::StrCat("deadlock with channels of ", channel_capacity,
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
