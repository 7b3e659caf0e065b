// Workers that take what is ready, without threads: every timing there can be, drawn at random,
// with the rules of the machine and channels that must never be full.
#include "schedule/ready_order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/random.h"
#include "schedule/machine.h"
#include "schedule/verify.h"
#include "tests/schedule/schedules.h"
#include "tests/support/status_matchers.h"
#include "worker/order_replay.h"

namespace penstock {
namespace {

struct Setting {
  const Method* method;
  ScheduleOptions options;
  MicrobatchRange range;
  int64_t per_update;

  int64_t in_flight_max = 0;  // 0: as the verifier finds
};

class PlayedCluster {
 public:
  PlayedCluster(const Setting& setting, uint64_t seed)
      : setting_(setting), random_(seed, /*purpose=*/0) {
    const Schedule schedule =
        BuildSchedule(*setting.method, setting.options, setting.range).value();
    policy_ = schedule.weight_policy;
    const VerifyReport report = Verify(schedule).value();
    for (const StageCounts& stage : report.stages) {
      in_flight_max_.push_back(setting.in_flight_max > 0 ? setting.in_flight_max
                                                         : stage.activations_peak);
    }
    capacity_ = *std::max_element(in_flight_max_.begin(), in_flight_max_.end());
    for (int32_t id = 0; id < topology_.workers; ++id) {
      const WorkerId worker(id);
      workers_.push_back(std::make_unique<Worker>(
          Machine(topology_, worker, policy_),
          ReadyOrder(topology_, worker,
                     {.range = setting.range,
                      .in_flight_max = in_flight_max_,
                      .microbatches_per_update = setting.per_update,
                      .drains = setting.method->synchronous,
                      .lower = {.global_norm = setting.options.global_norm}}),
          OrderLog(topology_.StagesOf(worker), setting.range,
                   topology_[topology_.StagesOf(worker).front()].replicas)));
    }
    channels_.resize(topology_.edges.size());
  }

  // Plays to the end. Fails the test where a rule is broken, a channel is full, or nobody can go on.
  void Play() {
    const int64_t turns_max = 2000 * setting_.range.count * topology_.stages();
    for (int64_t turn = 0; turn < turns_max; ++turn) {
      if (std::all_of(workers_.begin(), workers_.end(), [](const auto& worker) {
            return worker->order.finished() && worker->due.empty();
          })) {
        break;
      }
      // Each worker has its own pace for a while.
      if (turn % 64 == 0) slow_ = random_.Below(topology_.workers + 1);
      const auto id = static_cast<int32_t>(random_.Below(topology_.workers));
      if (id == static_cast<int32_t>(slow_) && random_.Below(8) != 0) continue;
      Turn(*workers_[id]);
      if (::testing::Test::HasFatalFailure()) return;
    }
    for (const auto& worker : workers_) {
      ASSERT_TRUE(worker->order.finished() && worker->due.empty()) << "blocked";
      ASSERT_THAT(worker->machine.Apply({ActionKind::kFlush}), IsOk());
      ASSERT_EQ(worker->log.size(), worker->log.size_complete());
    }
    for (int32_t s = 0; s < topology_.stages(); ++s) {
      const StageCounts& counts =
          workers_[topology_.table[s].worker.value]->machine.counts(StageId(s));
      EXPECT_LE(counts.activations_peak, in_flight_max_[s]);
      const int64_t of_update =
          std::max<int64_t>(1, setting_.per_update / topology_.table[s].replicas);
      if (policy_.lag > 0 && topology_.form == Topology::Form::kReplicas) continue;
      EXPECT_LE(counts.versions_peak,
                policy_.weights->versions_max(policy_, in_flight_max_[s], of_update));
    }
  }

  // What the log says must be what the machines saw.
  void ExpectReplayCounts() {
    RecordedOrder order = {.method = std::string(setting_.method->name), .microbatches = 1};
    for (const StageWiring& stage : topology_.table) {
      order.stages.push_back({stage.worker, stage.place, 1});
    }
    RecordedOrder::Range& range = order.ranges.emplace_back();
    range.microbatches = setting_.range;
    for (const auto& worker : workers_) range.workers.push_back(worker->log);
    OrderReplay::Rules rules = {.microbatches_per_update = setting_.per_update,
                                .drains = setting_.method->synchronous};
    rules.lag = policy_.lag;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const OrderReplay replay, OrderReplay::Make(order, rules));
    if (policy_.lag > 0) return;
    for (const auto& [stage, microbatch, version] : forwards_) {
      const int32_t place = topology_.table[stage].place;
      ASSERT_EQ(replay.UpdatesBeforeForward(place, microbatch), version)
          << "stage " << stage << ", microbatch " << microbatch;
      ASSERT_LE(replay.FewestFrom(place, microbatch), version);
    }
  }

  std::string Logs() const {
    std::string logs;
    for (const auto& worker : workers_) {
      for (int64_t i = 0; i < worker->log.size(); ++i) {
        absl::StrAppend(&logs, ToString(worker->log.At(i)), " ");
      }
    }
    return logs;
  }

 private:
  struct Worker {
    Worker(Machine machine, ReadyOrder order, OrderLog log)
        : machine(std::move(machine)), order(std::move(order)), log(std::move(log)) {}
    Machine machine;
    ReadyOrder order;
    OrderLog log;
    std::deque<Action> due;  // of an update that it has to make before anything else
  };
  struct Forward {
    size_t stage;
    int64_t microbatch;
    int64_t version;
  };

  std::deque<int64_t>& ChannelOf(const Action& action) {
    return channels_[topology_.EdgeOf(action)];
  }

  // All workers that are in a collective, or this one alone, go on if all of them have come.
  void MakeUpdate(Worker& worker) {
    const Action action = worker.due.front();
    std::vector<Worker*> members = {&worker};
    if (IsCollective(action.kind)) members.clear();
    for (const auto& each : workers_) {
      const bool of_group = action.kind == ActionKind::kNorm ||
                            (action.kind == ActionKind::kReduce && IsMember(*each, action));
      if (of_group) members.push_back(each.get());
    }
    for (const Worker* member : members) {
      if (member->due.empty() || !(member->due.front() == action)) return;
    }
    for (Worker* member : members) {
      ASSERT_THAT(member->machine.Apply(action), IsOk()) << ToString(action);
      member->due.pop_front();
    }
  }

  bool IsMember(const Worker& worker, const Action& reduce) const {
    for (const StageId stage : topology_.groups[reduce.index].stages) {
      if (&worker == workers_[topology_.worker(stage).value].get()) return true;
    }
    return false;
  }

  void Turn(Worker& worker) {
    if (!worker.due.empty()) return MakeUpdate(worker);
    // A message that was sent may still be on its way.
    // Without replicas the action names no microbatch.
    const auto message_waits = [&](const Action& receive) {
      return !ChannelOf(receive).empty() && random_.Below(3) != 0;
    };
    const auto version_is_made = [&](StageId stage) {
      return worker.machine.NextForwardVersionIsMade(stage);
    };
    const auto block = worker.order.Next({message_waits, version_is_made});
    if (!block.has_value()) return;
    const int64_t microbatch = worker.order.MicrobatchOf(*block);
    for (Action action : worker.order.ActionsOf(*block)) {
      action.microbatch = microbatch;
      Perform(worker, action);
      if (::testing::Test::HasFatalFailure()) return;
    }
    worker.log.Append(*block);
    const absl::Span<const Action> update = worker.order.Done(*block);
    worker.due.assign(update.begin(), update.end());
  }

  void Perform(Worker& worker, const Action& action) {
    const auto effect = worker.machine.Apply(action);
    ASSERT_THAT(effect, IsOk());
    if (action.kind == ActionKind::kForward) {
      forwards_.push_back({static_cast<size_t>(action.index), action.microbatch, effect->version});
    }
    if (IsSend(action.kind)) {
      ASSERT_LT(static_cast<int64_t>(ChannelOf(action).size()), capacity_) << ToString(action);
      ChannelOf(action).push_back(action.microbatch);
    }
    if (IsReceive(action.kind)) {
      ASSERT_EQ(ChannelOf(action).front(), action.microbatch);
      ChannelOf(action).pop_front();
    }
  }

  const Setting setting_;
  const Topology& topology_ = setting_.options.topology;
  WeightPolicy policy_;
  RandomStream random_;
  std::vector<int64_t> in_flight_max_;
  int64_t capacity_ = 0;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::deque<int64_t>> channels_;
  std::vector<Forward> forwards_;
  uint64_t slow_ = 0;
};

// All settings that may be in recorded order, with few and many microbatches.
std::vector<Setting> Settings() {
  std::vector<Setting> settings;
  for (const char* name :
       {"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "pipedream", "pipedream-2bw", "paci"}) {
    const Method& method = **FindMethod(absl::string_view(name));
    for (int32_t workers = 1; workers <= 5; ++workers) {
      for (const int64_t few : {1, 3, 8}) {
        for (const Weights* weights : {static_cast<const Weights*>(nullptr), &Weights::kSingle,
                                       &Weights::kStash, &Weights::kVerticalSync}) {
          Setting setting = {.method = &method};
          const int64_t step = StepFor(method, workers, few);
          setting.options = {.topology = PlacedOn(method, workers, step),
                             .microbatches_per_step = step,
                             .weights = weights,
                             .global_norm = method.synchronous};
          setting.range = {.first = 3 * step, .count = 5 * step};
          setting.per_update = method.updates_each_microbatch ? 1 : step;
          if (!CheckBuildable(method, setting.options, setting.range).ok()) continue;
          settings.push_back(setting);
        }
      }
    }
  }
  return settings;
}

// With replicas, in all numbers of two and three places.
std::vector<Setting> ReplicatedSettings() {
  std::vector<Setting> settings;
  for (const char* name : {"gpipe", "1f1b", "looped-bfs", "pipedream", "pipedream-2bw", "paci"}) {
    const Method& method = **FindMethod(absl::string_view(name));
    for (const std::vector<int32_t>& replicas : std::vector<std::vector<int32_t>>{
             {3}, {2, 2}, {1, 3}, {3, 1}, {2, 3}, {3, 2}, {1, 2, 1}, {2, 1, 3}, {4, 2, 1}}) {
      const absl::StatusOr<Topology> topology = PlaceReplicas(method, replicas);
      if (!topology.ok()) continue;
      for (const int64_t cycles : {1, 4}) {
        for (const Weights* weights : {static_cast<const Weights*>(nullptr), &Weights::kSingle,
                                       &Weights::kStash, &Weights::kVerticalSync}) {
          Setting setting = {.method = &method};
          const int64_t step = cycles * topology->cycle;
          setting.options = {
              .topology = *topology, .microbatches_per_step = step, .weights = weights};
          setting.range = {.first = 3 * step, .count = 5 * step};
          setting.per_update = method.updates_each_microbatch ? 1 : step;
          if (!CheckBuildable(method, setting.options, setting.range).ok()) continue;
          settings.push_back(setting);
        }
      }
    }
  }
  return settings;
}

TEST(ReadyOrder, ReplicasUnderAnyTiming_EndWithinTheirBoundsAndAreCountedRight) {
  const std::vector<Setting> settings = ReplicatedSettings();
  EXPECT_GT(settings.size(), 100u);
  uint64_t seed = 1000;
  for (const Setting& setting : settings) {
    for (const int64_t in_flight_max : {0, 1, 5}) {
      SCOPED_TRACE(absl::StrCat(std::string(setting.method->name), " with ",
                                absl::StrJoin(ReplicasOf(setting.options.topology), ","),
                                " replicas, ", setting.options.microbatches_per_step,
                                " microbatches, ", in_flight_max, " in flight"));
      Setting bounded = setting;
      bounded.in_flight_max = in_flight_max;
      PlayedCluster cluster(bounded, ++seed);
      cluster.Play();
      cluster.ExpectReplayCounts();
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(ReadyOrder, AnyTiming_EndsWithinItsBoundsAndIsCountedRight) {
  uint64_t seed = 0;
  for (const Setting& setting : Settings()) {
    for (int round = 0; round < 4; ++round) {
      SCOPED_TRACE(absl::StrCat(std::string(setting.method->name), " on ",
                                setting.options.topology.workers, " workers, ",
                                setting.options.microbatches_per_step, " microbatches"));
      PlayedCluster cluster(setting, ++seed);
      cluster.Play();
      cluster.ExpectReplayCounts();
      if (HasFailure()) return;
    }
  }
}

TEST(ReadyOrder, LessInFlightThanTheStaticOrderHas_EndsToo) {
  uint64_t seed = 0;
  for (Setting setting : Settings()) {
    setting.in_flight_max = 1;
    SCOPED_TRACE(absl::StrCat(std::string(setting.method->name), " on ",
                              setting.options.topology.workers, " workers"));
    PlayedCluster cluster(setting, ++seed);
    cluster.Play();
    cluster.ExpectReplayCounts();
    if (HasFailure()) return;
  }
}

TEST(ReadyOrder, OtherTiming_GivesOtherOrders) {
  Setting setting = {.method = *FindMethod("pipedream")};
  setting.options = {.topology = StraightPipeline(4), .microbatches_per_step = 4};
  setting.range = {.first = 0, .count = 20};
  setting.per_update = 1;
  std::set<std::string> orders;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    PlayedCluster cluster(setting, seed);
    cluster.Play();
    orders.insert(cluster.Logs());
  }
  EXPECT_GT(orders.size(), 10u);
}

class Choice : public ::testing::Test {
 protected:
  std::string Next(const ReadyOrder& order, const std::set<std::string>& waiting) {
    const auto block =
        order.Next({[&](const Action& receive) { return waiting.count(ToString(receive)) > 0; },
                    [](StageId) { return true; }});
    return block.has_value() ? absl::StrCat(ToString(*block), order.MicrobatchOf(*block)) : "";
  }
  static void Do(ReadyOrder& order, int32_t stage, bool backward) {
    order.Done({StageId(stage), backward});
  }
};

TEST_F(Choice, BackwardGoesFirst_AndForwardsStopAtTheBound) {
  const Topology topology = StraightPipeline(3);
  ReadyOrder order(topology, WorkerId(1), {.range = {10, 4}, .in_flight_max = {3, 2, 1}});
  EXPECT_EQ(Next(order, {}), "");
  EXPECT_EQ(Next(order, {"1RECV_F0"}), "1F10");
  Do(order, 1, false);
  EXPECT_EQ(Next(order, {"1RECV_F0", "1RECV_B0"}), "1B10");
  EXPECT_EQ(Next(order, {"1RECV_F0"}), "1F11");
  Do(order, 1, false);
  EXPECT_EQ(Next(order, {"1RECV_F0"}), "");  // two are in flight
  EXPECT_EQ(Next(order, {"1RECV_F0", "1RECV_B0"}), "1B10");
}

TEST_F(Choice, OfSeveralStages_TheOldestMicrobatchGoesFirst) {
  const Topology topology = LoopedPipeline(4, 2);
  ReadyOrder order(topology, WorkerId(0),
                   {.range = {0, 4},
                    .in_flight_max = {4, 4, 4, 4},
                    .microbatches_per_update = 4,
                    .drains = true});
  EXPECT_EQ(Next(order, {}), "0F0");
  Do(order, 0, false);
  EXPECT_EQ(Next(order, {"2RECV_F0"}), "2F0");
  EXPECT_EQ(Next(order, {}), "0F1");
  Do(order, 0, false);
  Do(order, 2, false);
  // Both have a backward; that of stage 2 stands before that of stage 0.
  EXPECT_EQ(Next(order, {"2RECV_F0", "2RECV_B0"}), "2B0");
}

TEST_F(Choice, NextStep_WaitsForTheUpdateOfAllStages) {
  const Topology topology = StraightPipeline(2);
  ReadyOrder order(topology, WorkerId(1),
                   {.range = {0, 4},
                    .in_flight_max = {2, 2},
                    .microbatches_per_update = 2,
                    .drains = true,
                    .lower = {.global_norm = true}});
  const std::set<std::string> all = {"1RECV_F0"};
  Do(order, 1, false);
  Do(order, 1, false);
  EXPECT_THAT(order.Done({StageId(1), true}), ::testing::IsEmpty());
  EXPECT_EQ(Next(order, all), "1B1");
  EXPECT_THAT(order.Done({StageId(1), true}),
              ::testing::ElementsAre(Action{ActionKind::kNorm}, Action{ActionKind::kUpdate, 1}));
  EXPECT_EQ(Next(order, all), "1F2");
  order.Shorten(2);
  EXPECT_TRUE(order.finished());
  EXPECT_EQ(Next(order, all), "");
}

}  // namespace
}  // namespace penstock
