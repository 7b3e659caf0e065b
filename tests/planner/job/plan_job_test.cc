// Plans of jobs: what candidates there are, what each is judged to take, and which is chosen.
#include "planner/job/plan_job.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <set>

#include "absl/strings/str_join.h"
#include "job/defaults.h"
#include "job/resolve.h"
#include "planner/job/searched_order.h"
#include "schedule/verify.h"
#include "schedule/warm_up.h"
#include "tests/planner/job/planning_input.h"
#include "tests/support/status_matchers.h"
#include "tests/support/ticking_clock.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> Counts(const JudgedCandidate& judged) {
  std::vector<int> counts;
  for (const LayerRange& range : judged.layers) counts.push_back(range.count);
  return counts;
}

TEST(JudgeCandidate, EqualStages_TakeTheClosedFormsOfTheirMethods) {
  const PlanningInput input = InputOf(kPlannedJob, Alike(3));
  // A stage of three layers takes 3 ms for each third of a microbatch; 8 microbatches.
  const auto step_ms = [&](const std::string& method) {
    const absl::StatusOr<JudgedCandidate> judged =
        JudgeCandidate(input, {.method = method, .stages = 3, .microbatches = 8});
    EXPECT_THAT(judged, IsOk());
    EXPECT_EQ(judged->rejected, "");
    EXPECT_THAT(Counts(*judged), ElementsAre(3, 3, 3));
    return judged->step_s * 1e3;
  };
  EXPECT_NEAR(step_ms("gpipe"), 9.0 * (8 + 2), 1e-6);
  EXPECT_NEAR(step_ms("1f1b"), 9.0 * (8 + 2), 1e-6);
  EXPECT_NEAR(step_ms("zb-h1"), 9.0 * 8 + 3.0 * 2, 1e-6);
  EXPECT_NEAR(step_ms("zb-h2"), 9.0 * 8, 1e-6);
  EXPECT_NEAR(step_ms("pipedream"), 9.0 * 8, 1e-6);
  EXPECT_NEAR(step_ms("paci"), 9.0 * 8, 1e-6);
}

TEST(JudgeCandidate, Outcome_SaysWhatRunsAndWhatItCosts) {
  const PlanningInput input = InputOf(kPlannedJob, Alike(4));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const JudgedCandidate judged,
      JudgeCandidate(input, {.method = "pipedream", .stages = 3, .microbatches = 8}));
  EXPECT_THAT(ValidateJob(judged.spec), IsOk());
  EXPECT_EQ(judged.spec.pipeline().method(), "pipedream");
  EXPECT_THAT(judged.spec.pipeline().stage_layers(), ElementsAre(3, 3, 3));
  EXPECT_THAT(judged.workers, ElementsAre(0, 1, 2));
  EXPECT_EQ(judged.memory.size(), 3u);
  EXPECT_GT(judged.memory[0].stashed_weights, judged.memory[2].stashed_weights);
  EXPECT_EQ(judged.most_staleness(), 2);
  ASSERT_TRUE(judged.block_delay.has_value());
  EXPECT_EQ(judged.block_delay->max, 7);  // floor(S^2 - S/2)
  EXPECT_NEAR(judged.bubble_ratio, 0.0, 1e-9);
}

// Methods whose stages are one on each worker and drain: what an order is searched among.
constexpr const char* kOneStageEach[] = {"gpipe", "1f1b", "zb-h1", "zb-h2"};

TEST(JudgeCandidate, SearchedOrder_IsAtLeastAsFastAsTheMethodsOfItsPlacement) {
  for (const std::map<std::string, double>& slow : {std::map<std::string, double>{},
                                                    {{"h.0.mlp", 2.5}},
                                                    {{"embedding", 3.0}, {"h.2.attention", 2.0}}}) {
    PlanningInput input =
        InputOf(kPlannedJob, UniformCluster(1, 3, 2048.0 / 0.002, kInfinity), slow);
    input.cluster.workers[1].speed = 1.7;
    const std::vector<LayerRange> layers = {{0, 2}, {2, 4}, {6, 3}};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const JudgedCandidate searched,
        JudgeCandidate(input, {.method = "searched", .stages = 3, .microbatches = 8}, layers));
    EXPECT_EQ(searched.rejected, "");
    EXPECT_GE(searched.step_s, searched.step_bound_s);
    for (const char* method : kOneStageEach) {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          const JudgedCandidate other,
          JudgeCandidate(input, {.method = method, .stages = 3, .microbatches = 8}, layers));
      EXPECT_LE(searched.step_s, other.step_s * (1 + 1e-9)) << method;
      if (std::string(method) == "1f1b") {
        EXPECT_LT(searched.step_s, 0.97 * other.step_s);
      }
    }
  }
}

TEST(JudgeCandidate, SearchedOrder_IsInTheJobAndTheSameEveryTime) {
  const PlanningInput input = InputOf(kPlannedJob, Alike(4), {{"h.1.mlp", 2.0}});
  const Candidate candidate = {.method = "searched", .stages = 3, .microbatches = 8};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate judged, JudgeCandidate(input, candidate));
  EXPECT_EQ(judged.spec.pipeline().method(), "searched");
  EXPECT_THAT(judged.spec.pipeline().stage_layers(), ::testing::SizeIs(3));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(judged.spec));
  ASSERT_NE(job.listed, nullptr);
  EXPECT_EQ(job.method, &SearchedMethod());
  EXPECT_EQ(judged.most_staleness(), 0);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate again, JudgeCandidate(input, candidate));
  EXPECT_EQ(again.spec.SerializeAsString(), judged.spec.SerializeAsString());
}

TEST(JudgeCandidate, SearchedOrder_KeepsToTheMemoryOfTheWorkers) {
  const Candidate searched = {.method = "searched", .stages = 3, .microbatches = 8};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate roomy,
                                JudgeCandidate(InputOf(kPlannedJob, Alike(3)), searched));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate plain,
                                JudgeCandidate(InputOf(kPlannedJob, Alike(3)),
                                               {.method = "1f1b", .stages = 3, .microbatches = 8}));
  ASSERT_GT(roomy.most_memory(), plain.most_memory());
  Cluster cluster = Alike(3);
  for (int worker = 0; worker < 3; ++worker) {
    cluster.workers[worker].memory_bytes = static_cast<double>(plain.memory[worker].total());
  }
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate tight,
                                JudgeCandidate(InputOf(kPlannedJob, cluster), searched));
  EXPECT_EQ(tight.rejected, "");
  EXPECT_LE(tight.most_memory(), plain.most_memory());
  EXPECT_GE(tight.step_s, roomy.step_s);
  EXPECT_LT(tight.step_s, plain.step_s);
  cluster.workers[0].memory_bytes -= 1;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate lacking,
                                JudgeCandidate(InputOf(kPlannedJob, cluster), searched));
  EXPECT_TRUE(lacking.runs() || lacking.lacks_memory);
}

// The simulator counts the reductions, and the search does not.
TEST(JudgeCandidate, SearchedOrderOfReplicas_PaysForTheirReductionsAndIsFast) {
  struct Case {
    std::vector<int32_t> replicas;
    int64_t microbatches;
  };
  for (const Case& one : {Case{{2, 2}, 8}, {{3, 1}, 12}, {{2, 1, 1}, 8}, {{1, 3}, 12}}) {
    const auto stages = static_cast<int32_t>(one.replicas.size());
    SCOPED_TRACE(absl::StrJoin(one.replicas, ","));
    double faster_links_s = 0;
    for (const double bytes_per_second : {kInfinity, 4e6, 1e6}) {
      PlanningInput input = InputOf(kPlannedJob, UniformCluster(4, 1, bytes_per_second, kInfinity),
                                    {{"h.1.mlp", 2.0}});
      input.spec.mutable_training()->set_batch(24);
      const Candidate searched = {.method = "searched",
                                  .stages = stages,
                                  .microbatches = one.microbatches,
                                  .replicas = one.replicas};
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate judged, JudgeCandidate(input, searched));
      ASSERT_EQ(judged.rejected, "");
      EXPECT_GE(judged.step_s, judged.step_bound_s);
      EXPECT_GT(judged.step_s, faster_links_s);
      faster_links_s = judged.step_s;
      EXPECT_THAT(judged.spec.pipeline().replicas(), ::testing::ElementsAreArray(one.replicas));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(judged.spec));
      EXPECT_EQ(job.stage_replicas, one.replicas);
      EXPECT_EQ(job.listed->topology.form, Topology::Form::kReplicas);
      for (const char* method : kOneStageEach) {
        Candidate other = searched;
        other.method = method;
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate plain, JudgeCandidate(input, other));
        ASSERT_EQ(plain.rejected, "");
        const double factor = other.method == "1f1b" ? 0.96 : 1.02;
        EXPECT_LT(judged.step_s, factor * plain.step_s) << method;
      }
    }
  }
}

TEST(JudgeCandidate, SearchedOrder_MayRecompute) {
  const PlanningInput input = InputOf(kPlannedJob, Alike(3));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const JudgedCandidate judged,
      JudgeCandidate(
          input,
          {.method = "searched", .stages = 3, .microbatches = 8, .recompute = {.places = {0}}}));
  EXPECT_EQ(judged.rejected, "");
  EXPECT_EQ(judged.spec.pipeline().recompute(), "0");
  EXPECT_THAT(ValidateJob(judged.spec), IsOk());
}

TEST(JudgeCandidate, UnequalWorkers_GetLayersBySpeed) {
  Cluster cluster = Alike(2);
  cluster.workers[1].speed = 2;
  const PlanningInput input = InputOf(kPlannedJob, cluster);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const JudgedCandidate judged,
      JudgeCandidate(input, {.method = "paci", .stages = 2, .microbatches = 8}));
  EXPECT_THAT(Counts(judged), ElementsAre(3, 6));
  EXPECT_NEAR(judged.step_s * 1e3, 9.0 * 8, 1e-6);
}

TEST(JudgeCandidate, SlowNetwork_SetsTheStep) {
  // 4 samples of 8 time steps of 16 floats: 2048 bytes a microbatch.
  const PlanningInput input = InputOf(kPlannedJob, UniformCluster(2, 1, 2048.0 / 0.050, kInfinity));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const JudgedCandidate judged,
      JudgeCandidate(input, {.method = "pipedream", .stages = 2, .microbatches = 8}));
  // The first stage has two microbatches in flight, each of which computes for 27 ms and is 50 ms on the
  // way there and back.
  EXPECT_NEAR(judged.step_s * 1e3, (27.0 + 2 * 50.0) / 2 * 8, 1e-3);
}

TEST(JudgeCandidate, StreamsOverOnePath_ShareIt) {
  Cluster cluster = UniformCluster(2, 2, kInfinity, kInfinity);
  const double path = 2048.0 / 0.050;
  cluster.paths = {{.from = 0, .to = 1, .bytes_per_second = path}};
  const auto gigabits = [&](const std::vector<int32_t>& replicas) {
    const PlanningInput input = InputOf(kPlannedJob, cluster);
    const absl::StatusOr<JudgedCandidate> judged = JudgeCandidate(
        input, {.method = "pipedream", .stages = 2, .microbatches = 8, .replicas = replicas});
    EXPECT_THAT(judged, IsOk());
    double least = kInfinity;
    for (const v1::LinkTimes& link : judged->times.links()) {
      if (link.has_gigabits_per_second()) {
        least = std::min(least, link.gigabits_per_second());
      }
    }
    return least;
  };
  // Two stages on two workers of one host need no path; with two replicas each, two streams cross it.
  EXPECT_EQ(gigabits({}), kInfinity);
  EXPECT_NEAR(gigabits({2, 2}), path * 8e-9 / 2, 1e-12);
  cluster.full_duplex = false;
  EXPECT_NEAR(gigabits({2, 2}), path * 8e-9 / 4, 1e-12);
}

TEST(JudgeCandidate, ReplicasOfTheFile_AreNotThoseOfOtherCandidates) {
  PlanningInput input = InputOf(kPlannedJob, Alike(4));
  input.spec.mutable_pipeline()->set_method("pipedream");
  input.spec.mutable_pipeline()->add_replicas(3);
  input.spec.mutable_pipeline()->add_replicas(1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const JudgedCandidate judged,
      JudgeCandidate(input, {.method = "pipedream", .stages = 3, .microbatches = 8}));
  EXPECT_EQ(judged.rejected, "");
  EXPECT_EQ(judged.workers.size(), 3u);
}

TEST(JudgeCandidate, WhatCannotRun_SaysWhy) {
  Cluster small = Alike(2);
  small.workers[0].memory_bytes = 100;
  const PlanningInput input = InputOf(kPlannedJob, small);
  const auto why = [&](const Candidate& candidate) {
    const absl::StatusOr<JudgedCandidate> judged = JudgeCandidate(input, candidate);
    EXPECT_THAT(judged, IsOk());
    return judged->rejected;
  };
  EXPECT_THAT(why({.method = "1f1b", .stages = 2, .microbatches = 8}),
              HasSubstr("MB on host-0/0, which has 0.0001 MB"));
  EXPECT_THAT(why({.method = "1f1b", .stages = 3, .microbatches = 8}),
              HasSubstr("needs 3 workers, there are 2"));
  EXPECT_THAT(why({.method = "1f1b", .stages = 12, .microbatches = 8}), HasSubstr("layers"));
  EXPECT_THAT(why({.method = "1f1b", .stages = 2, .microbatches = 5}),
              HasSubstr("training.microbatches"));
  EXPECT_THAT(why({.method = "1f2b", .stages = 2, .microbatches = 8}), HasSubstr("1f2b"));
}

// With weights in files a worker holds little more than one stage, so what cannot be cut decides.
TEST(JudgeCandidate, LayerThatIsTooLargeByItself_IsNamed) {
  Cluster small = Alike(2);
  small.workers[0].memory_bytes = 100;
  PlanningInput input = InputOf(kPlannedJob, small);
  input.spec.mutable_pipeline()->set_method("roundpipe");
  input.spec.mutable_pipeline()->set_stream_weights("file");
  const Candidate candidate = {
      .method = "roundpipe", .stages = 2, .microbatches = 8, .recompute = {.all = true}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(JudgedCandidate judged, JudgeCandidate(input, candidate));
  EXPECT_THAT(judged.rejected, HasSubstr("alone needs"));
  EXPECT_THAT(judged.rejected, HasSubstr("on host-0/0, which has 0.0001 MB; a layer is never cut"));
  EXPECT_TRUE(judged.lacks_memory);
  // Where there is memory, the plan says what the file takes.
  input.cluster = Alike(2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(judged, JudgeCandidate(input, candidate));
  EXPECT_EQ(judged.rejected, "");
  for (const WorkerMemory& memory : judged.memory) EXPECT_GT(memory.in_file, 0);
}

TEST(JudgeCandidate, ProfileOfAnotherModel_IsRefused) {
  PlanningInput input = InputOf(kPlannedJob, Alike(2));
  input.profile.mutable_layers(1)->set_layer("h.9.attention");
  EXPECT_THAT(JudgeCandidate(input, {.method = "1f1b", .stages = 2, .microbatches = 8}).status(),
              StatusIs(kInvalid, HasSubstr("the profile is of another model")));
  input = InputOf(kPlannedJob, Alike(2));
  EXPECT_THAT(JudgeCandidate(input, {.method = "1f1b", .stages = 2, .microbatches = 1}).status(),
              StatusIs(kInvalid, HasSubstr("training.microbatches")));
}

TEST(EnumerateCandidates, Microbatches_ChangeOnlyWhereResultsDoNot) {
  const PlanningInput input = InputOf(kPlannedJob, Alike(2));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const std::vector<Candidate> synchronous,
      EnumerateCandidates(input, PlanJobOptions{.methods = {"zb-v"}}, Unlimited()));
  // 1 or 2 workers; 4, 8, 16 or 32 microbatches of 8 to 1 samples; with and without recomputation.
  EXPECT_EQ(synchronous.size(), 2u * 4 * 2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const std::vector<Candidate> asynchronous,
      EnumerateCandidates(input, PlanJobOptions{.methods = {"paci"}}, Unlimited()));
  // 1 or 2 workers, or 1 stage with 2 replicas.
  EXPECT_EQ(asynchronous.size(), 3u * 2);
  // Every microbatch of local-sgd is a step of its own.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const std::vector<Candidate> local,
      EnumerateCandidates(input, PlanJobOptions{.methods = {"local-sgd"}}, Unlimited()));
  for (const Candidate& candidate : local) EXPECT_EQ(candidate.microbatches, 8);
  EXPECT_THAT(EnumerateCandidates(input, PlanJobOptions{.methods = {"pacy"}}, Unlimited()).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("pacy")));
}

// More stages than workers, which 1F1B cannot have, and as many as are asked for.
TEST(EnumerateCandidates, StagesThatGoRoundTheWorkers_MayBeMoreThanThese) {
  const PlanningInput input = InputOf(kPlannedJob, Alike(2));
  const auto round_trips = [&](std::vector<int32_t> asked) {
    const absl::StatusOr<std::vector<Candidate>> candidates = EnumerateCandidates(
        input, PlanJobOptions{.methods = {"roundpipe", "1f1b"}, .stages = std::move(asked)},
        Unlimited());
    EXPECT_THAT(candidates, IsOk());
    std::set<int32_t> stages;
    for (const Candidate& candidate : *candidates) {
      if (candidate.workers == 2) stages.insert(candidate.stages);
    }
    return stages;
  };
  const int layers = ResolveJob(DraftOf(input.spec))->model.size();
  ASSERT_EQ(layers, 9);
  EXPECT_EQ(round_trips({}), (std::set<int32_t>{3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(round_trips({5}), (std::set<int32_t>{5}));
  EXPECT_EQ(round_trips({2}), (std::set<int32_t>{}));  // a candidate like those of other methods
  const Candidate five = {.method = "roundpipe",
                          .stages = 5,
                          .microbatches = 8,
                          .recompute = {.all = true},
                          .workers = 2};
  EXPECT_EQ(NameOf(five), "roundpipe, 5 stages on 2 workers, 8 microbatches, recomputing");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate judged, JudgeCandidate(input, five));
  EXPECT_EQ(judged.rejected, "");
  EXPECT_EQ(judged.workers.size(), 2u);
  EXPECT_EQ(judged.layers.size(), 5u);
  EXPECT_EQ(judged.spec.pipeline().workers(), 2);
  // The job's own workers.
  PlanningInput own = InputOf(kPlannedJob, Alike(4));
  own.spec.mutable_pipeline()->set_method("roundpipe");
  own.spec.mutable_pipeline()->set_stages(5);
  own.spec.mutable_pipeline()->set_workers(2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const std::vector<Candidate> candidates,
      EnumerateCandidates(own, PlanJobOptions{.methods = {"roundpipe"}, .stages = {5}},
                          Unlimited()));
  ASSERT_FALSE(candidates.empty());
  for (const Candidate& candidate : candidates) EXPECT_EQ(candidate.workers, 2);
}

TEST(EnumerateCandidates, MethodsWithReplicas_HaveDataParallelismAmongThem) {
  const PlanningInput input = InputOf(kPlannedJob, Alike(4));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const std::vector<Candidate> candidates,
      EnumerateCandidates(input, PlanJobOptions{.methods = {"pipedream"}}, Unlimited()));
  for (const std::vector<int32_t>& replicas : {std::vector<int32_t>{4}, {2, 2}}) {
    const Candidate expected = {.method = "pipedream",
                                .stages = static_cast<int32_t>(replicas.size()),
                                .microbatches = 8,
                                .replicas = replicas};
    EXPECT_TRUE(std::find(candidates.begin(), candidates.end(), expected) != candidates.end());
  }
  // Each would need a search of its own.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const std::vector<Candidate> searched,
      EnumerateCandidates(input, PlanJobOptions{.methods = {"searched"}}, Unlimited()));
  EXPECT_FALSE(searched.empty());
  for (const Candidate& candidate : searched) EXPECT_TRUE(candidate.replicas.empty());
}

// What the file says of its own method stays, also where other methods are tried beside it.
TEST(EnumerateCandidates, OpenOrder_KeepsTheReplicasAndStagesOnAWorkerOfTheJob) {
  PlanningInput input = InputOf(kPlannedJob, Alike(4));
  v1::PipelineSpec& pipeline = *input.spec.mutable_pipeline();
  pipeline.set_method("searched");
  pipeline.add_replicas(2);
  pipeline.set_stages_per_worker(2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<Candidate> candidates,
                                EnumerateCandidates(input, PlanJobOptions{}, Unlimited()));
  int searched = 0;
  for (const Candidate& candidate : candidates) {
    if (candidate.method != "searched") continue;
    EXPECT_EQ(candidate.stages % 2, 0);
    EXPECT_EQ(candidate.replicas, std::vector<int32_t>(candidate.stages, 2));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate judged, JudgeCandidate(input, candidate));
    if (!judged.runs()) continue;
    ++searched;
    EXPECT_EQ(judged.spec.pipeline().stages_per_worker(), 2);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(judged.spec));
    EXPECT_EQ(job.WorkersOf(candidate.stages), candidate.stages);
    EXPECT_EQ(job.stage_replicas.front(), 2);
  }
  EXPECT_GT(searched, 0);
}

TEST(JudgeCandidate, SearchedOrderOfSeveralStagesOnAWorker_IsAtLeastAsFastAsItsMethods) {
  PlanningInput input =
      InputOf(kPlannedJob, UniformCluster(2, 2, 2048.0 / 0.002, kInfinity), {{"h.0.mlp", 2.5}});
  const std::vector<LayerRange> layers = {{0, 2}, {2, 3}, {5, 2}, {7, 2}};
  Candidate candidate = {.stages = 4, .microbatches = 8};
  const auto step_s = [&](const char* method) {
    candidate.method = method;
    input.spec.mutable_pipeline()->set_method(method);
    input.spec.mutable_pipeline()->set_stages_per_worker(2);
    const absl::StatusOr<JudgedCandidate> judged = JudgeCandidate(input, candidate, layers);
    EXPECT_THAT(judged, IsOk());
    EXPECT_EQ(judged->rejected, "") << method;
    EXPECT_THAT(ValidateJob(judged->spec), IsOk());
    return judged->step_s;
  };
  const double searched_s = step_s("searched");
  for (const char* method : {"interleaved-1f1b", "looped-bfs"}) {
    EXPECT_LE(searched_s, step_s(method) * (1 + 1e-9)) << method;
  }
}

TEST(JudgeCandidate, Replicas_ShareAStageAndPayForTheAveraging) {
  Cluster cluster = UniformCluster(4, 1, kInfinity, kInfinity);
  PlanningInput input = InputOf(kPlannedJob, cluster);
  const Candidate candidate = {
      .method = "1f1b", .stages = 2, .microbatches = 8, .replicas = {3, 1}};
  const auto judge = [&] { return JudgeCandidate(input, candidate); };
  // 8 microbatches do not go round three replicas.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate uneven, judge());
  EXPECT_THAT(uneven.rejected, HasSubstr("training.microbatches"));
  input.spec.mutable_training()->set_batch(24);
  Candidate even = candidate;
  even.microbatches = 6;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate free, JudgeCandidate(input, even));
  EXPECT_EQ(free.rejected, "");
  EXPECT_EQ(free.workers.size(), 4u);
  // Three of four workers have the first stage.
  EXPECT_THAT(Counts(free), ElementsAre(7, 2));
  for (PlanHost& host : input.cluster.hosts) host.nic_bytes_per_second = 1e6;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate paid, JudgeCandidate(input, even));
  EXPECT_GT(paid.step_s, free.step_s);
}

TEST(PlanJob, SlowLastLayer_MovesLayersAway) {
  // The head takes as long as five others.
  const PlanningInput input = InputOf(kPlannedJob, Alike(3), {{"head", 5.0}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const JobPlan plan, PlanJob(input, PlanJobOptions{.methods = {"1f1b", "paci"}}, Unlimited()));
  ASSERT_TRUE(plan.fastest.has_value());
  const JudgedCandidate& fastest = plan.candidates[*plan.fastest];
  EXPECT_EQ(fastest.candidate.method, "paci");
  EXPECT_THAT(Counts(fastest), ElementsAre(4, 4, 1));
  EXPECT_NEAR(fastest.step_s * 1e3, 15.0 * 8, 1e-6);
  for (const JudgedCandidate& other : plan.candidates) {
    if (!other.runs()) continue;
    EXPECT_GE(other.step_s, fastest.step_s);
    EXPECT_GE(other.most_memory(), plan.candidates[*plan.smallest].most_memory());
  }
}

// The fastest split would cut where no stage may begin: behind layers without parameters, and between uses of a weight.
TEST(PlanJob, PlacesThatAreNotToCut_AreLeftAloneAndEndNoSearch) {
  const std::string job = R"(name: places
model:
  layers:
    - input: {x: {f32: [8]}, y: {f32: [8]}}
    - block: {name: scaled, layers: [tanh]}
    - linear: {outputs: 8, name: one}
    - linear: {outputs: 8, name: two}
    - linear: {outputs: 8, name: three, weights_of: two}
    - mse: {targets: y}
data: {synthetic: {}}
training: {steps: 100, batch: 32, microbatches: 8, optimizer: {adamw: {learning_rate: 1.0e-3}}}
)";
  const PlanningInput input = InputOf(job, Alike(2), {{"scaled", 6.0}, {"three", 3.0}});
  const auto counts_of = [&](const std::string& method) {
    const absl::StatusOr<JobPlan> plan =
        PlanJob(input, PlanJobOptions{.methods = {method}, .stages = {2}}, Unlimited());
    EXPECT_THAT(plan, IsOk());
    if (!plan.ok() || !plan->fastest.has_value()) return std::vector<int>();
    return Counts(plan->candidates[*plan->fastest]);
  };
  EXPECT_THAT(counts_of("1f1b"), ElementsAre(2, 2));
  EXPECT_THAT(counts_of("pipedream"), ElementsAre(2, 2));
}

// Every method, number of workers and split of a small job, judged one by one.
TEST(PlanJob, FewLayers_FindsTheBestOfAllSplits) {
  std::string job = kPlannedJob;
  job.replace(job.find("layers: 3"), 9, "layers: 1");
  const PlanningInput input =
      InputOf(job, Alike(3), {{"head", 2.0}, {"embedding", 0.5}, {"h.0.mlp", 1.5}});
  for (const std::string method : {"gpipe", "1f1b", "zb-h1", "pipedream", "paci"}) {
    SCOPED_TRACE(method);
    const PlanJobOptions options{.methods = {method}};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const JobPlan plan, PlanJob(input, options, Unlimited()));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<Candidate> candidates,
                                  EnumerateCandidates(input, options, Unlimited()));
    double best_s = kInfinity;
    for (const Candidate& candidate : candidates) {
      if (!candidate.replicas.empty()) continue;
      for (int first = 1; first <= 5; ++first) {
        for (int second = 1; first + second <= 5; ++second) {
          std::vector<LayerRange> layers = {{0, first}, {first, second}};
          if (candidate.stages == 1) layers = {{0, 5}};
          if (candidate.stages == 2) layers = {{0, first}, {first, 5 - first}};
          if (candidate.stages == 3) layers.push_back({first + second, 5 - first - second});
          if (layers.back().count < 1) continue;
          PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate judged,
                                        JudgeCandidate(input, candidate, layers));
          if (judged.runs()) best_s = std::min(best_s, judged.step_s);
        }
      }
    }
    EXPECT_LE(plan.candidates[*plan.fastest].step_s, best_s + 1e-9);
  }
}

TEST(PlanJob, AllMethods_HaveTheSearchedOrderAmongThem) {
  PlanningInput input = InputOf(kPlannedJob, Alike(3), {{"h.0.attention", 2.0}, {"h.2.mlp", 3.0}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JobPlan plan,
                                PlanJob(input, PlanJobOptions{.stages = {3}}, Unlimited()));
  double searched_s = kInfinity;
  double synchronous_s = kInfinity;
  for (const JudgedCandidate& judged : plan.candidates) {
    if (!judged.runs()) continue;
    const std::string& method = judged.candidate.method;
    if (method == "searched") searched_s = std::min(searched_s, judged.step_s);
    for (const char* other : kOneStageEach) {
      if (method == other) synchronous_s = std::min(synchronous_s, judged.step_s);
    }
  }
  EXPECT_LE(searched_s, synchronous_s * (1 + 1e-9));
}

TEST(PlanJob, OpenOrder_IsFoundForThePlacementOfTheJob) {
  PlanningInput input = InputOf(kPlannedJob, Alike(3));
  input.spec.mutable_pipeline()->set_method("searched");
  input.spec.mutable_pipeline()->set_recompute("all");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const JobPlan plan,
      PlanJob(input, PlanJobOptions{.methods = {"searched"}, .stages = {2}, .only_placement = true},
              Unlimited()));
  ASSERT_TRUE(plan.fastest.has_value());
  const JudgedCandidate& best = plan.candidates[*plan.fastest];
  EXPECT_EQ(best.candidate.method, "searched");
  EXPECT_EQ(best.spec.pipeline().recompute(), "all");
  EXPECT_FALSE(best.spec.pipeline().schedule().empty());
  EXPECT_THAT(ValidateJob(best.spec), IsOk());
}

TEST(PlanJob, OpenOrderOfReplicas_IsFoundForThoseOfTheJob) {
  for (const std::vector<int32_t>& replicas : {std::vector<int32_t>{2}, {1, 3}}) {
    PlanningInput input = InputOf(kPlannedJob, Alike(4));
    v1::PipelineSpec& pipeline = *input.spec.mutable_pipeline();
    pipeline.set_method("searched");
    pipeline.mutable_replicas()->Assign(replicas.begin(), replicas.end());
    input.spec.mutable_training()->set_microbatches(12);
    input.spec.mutable_training()->set_batch(24);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const JobPlan plan,
        PlanJob(input,
                PlanJobOptions{.methods = {"searched"}, .stages = {2}, .only_placement = true},
                Unlimited()));
    ASSERT_TRUE(plan.fastest.has_value());
    const JudgedCandidate& best = plan.candidates[*plan.fastest];
    EXPECT_EQ(best.candidate.method, "searched");
    EXPECT_EQ(best.workers.size(), 4u);
    EXPECT_THAT(ValidateJob(best.spec), IsOk());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(best.spec));
    EXPECT_EQ(ReplicasOf(job.listed->topology), job.ReplicasOfStages(2));
    EXPECT_EQ(job.stage_replicas.back(), replicas.back());
  }
}

TEST(FillEstimatedOrder, Replicas_AreOrderedInTheMemoryOf1F1B) {
  const std::vector<int32_t> replicas = {2, 1, 3};
  v1::JobSpec spec = InputOf(kPlannedJob, Alike(1)).spec;
  spec.mutable_pipeline()->set_method("searched");
  spec.mutable_pipeline()->mutable_replicas()->Assign(replicas.begin(), replicas.end());
  spec.mutable_training()->set_microbatches(12);
  spec.mutable_training()->set_batch(24);
  FillDefaults(spec);
  ASSERT_THAT(FillEstimatedOrder(3, spec), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_EQ(job.stage_replicas, replicas);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(*job.listed));
  const std::vector<int64_t> warm_ups = WarmUpForwards(replicas, ReplicasMeet::kAtSteps);
  for (int stage = 0; stage < 6; ++stage) {
    const int32_t place = job.listed->topology.table[stage].place;
    EXPECT_LE(report.stages[stage].activations_peak, warm_ups[place] + 1) << stage;
  }
}

TEST(FillEstimatedOrder, SeveralStagesOnAWorker_GoRoundInTheMemoryOfTheirStages) {
  v1::JobSpec spec = InputOf(kPlannedJob, Alike(1)).spec;
  spec.mutable_pipeline()->set_method("searched");
  spec.mutable_pipeline()->set_stages_per_worker(2);
  FillDefaults(spec);
  ASSERT_THAT(FillEstimatedOrder(4, spec), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  const Topology& topology = job.listed->topology;
  EXPECT_EQ(topology.workers, 2);
  EXPECT_EQ(job.stages_per_worker, 2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(*job.listed));
  // By hand: 4 + 2 of the first worker's stages, 3 + 1 of the other's.
  const int64_t most[] = {6, 4};
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(topology.table[stage].worker.value, stage % 2);
    EXPECT_LE(report.stages[stage].activations_peak, most[stage % 2]);
  }
}

TEST(FillEstimatedOrder, OpenOrder_IsTheSameEveryTimeAndInTheMemoryOf1F1B) {
  v1::JobSpec spec = InputOf(kPlannedJob, Alike(1)).spec;
  spec.mutable_pipeline()->set_method("searched");
  FillDefaults(spec);
  v1::JobSpec again = spec;
  ASSERT_THAT(FillEstimatedOrder(4, spec), IsOk());
  ASSERT_THAT(FillEstimatedOrder(4, again), IsOk());
  EXPECT_EQ(spec.SerializeAsString(), again.SerializeAsString());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(*job.listed));
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_LE(report.stages[stage].activations_peak, 4 - stage) << stage;
  }
}

TEST(PlanJob, OneSmallWorker_RecomputesItsStageAlone) {
  Cluster cluster = Alike(3);
  const Candidate plain = {.method = "1f1b", .stages = 3, .microbatches = 8};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate enough,
                                JudgeCandidate(InputOf(kPlannedJob, cluster), plain));
  // The first stage has most microbatches in flight.
  cluster.workers[0].memory_bytes = static_cast<double>(enough.memory[0].total() - 1);
  const PlanningInput input = InputOf(kPlannedJob, cluster);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const JobPlan plan,
      PlanJob(input, PlanJobOptions{.methods = {"1f1b"}, .stages = {3}}, Unlimited()));
  std::vector<std::string> choices;
  for (const JudgedCandidate& judged : plan.candidates) {
    if (judged.candidate.microbatches == 8 && judged.runs()) {
      choices.push_back(TextOf(judged.candidate.recompute));
      EXPECT_EQ(judged.spec.pipeline().recompute(), choices.back());
    }
  }
  EXPECT_THAT(choices, ::testing::Contains("0"));
}

// With equal stages a forward more makes any step longer. Fast copies do not, so that the small worker offloads; with
// slow ones recomputing is better.
TEST(PlanJob, OneSmallWorker_KeepsOffloadsOrRecomputesByWhatCopiesTake) {
  Cluster cluster = Alike(3);
  const Candidate plain = {.method = "1f1b", .stages = 3, .microbatches = 8};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate enough,
                                JudgeCandidate(InputOf(kPlannedJob, cluster), plain));
  ASSERT_TRUE(enough.runs());
  cluster.workers[0].memory_bytes = static_cast<double>(enough.memory[0].total() - 1);
  const auto best_with = [&](double bytes_per_second) {
    for (PlanWorker& worker : cluster.workers) worker.offload_bytes_per_second = bytes_per_second;
    const PlanningInput input = InputOf(kPlannedJob, cluster);
    const absl::StatusOr<JobPlan> plan =
        PlanJob(input, PlanJobOptions{.methods = {"1f1b"}, .stages = {3}}, Unlimited());
    EXPECT_THAT(plan, IsOk());
    std::optional<JudgedCandidate> best;
    for (const JudgedCandidate& judged : plan->candidates) {
      if (judged.candidate.microbatches != 8 || !judged.runs()) continue;
      EXPECT_THAT(ValidateJob(judged.spec), IsOk());
      for (size_t w = 0; w < judged.memory.size(); ++w) {
        EXPECT_LE(static_cast<double>(judged.memory[w].total()),
                  cluster.workers[judged.workers[w]].memory_bytes);
      }
      if (!best.has_value() || judged.step_s < best->step_s) best = judged;
    }
    EXPECT_TRUE(best.has_value());
    return *best;
  };
  const JudgedCandidate fast = best_with(1e12);
  EXPECT_EQ(fast.candidate.offload.StashesOf(0), 2);
  EXPECT_EQ(fast.candidate.offload.StashesOf(1), 0);
  EXPECT_TRUE(fast.candidate.recompute.none());
  EXPECT_EQ(fast.spec.pipeline().offload(), "0:2");
  EXPECT_NEAR(fast.step_s, enough.step_s, 1e-6);
  const JudgedCandidate slow = best_with(1e3);
  EXPECT_TRUE(slow.candidate.offload.none());
  EXPECT_FALSE(slow.candidate.recompute.none());
  const JudgedCandidate unknown = best_with(0);
  EXPECT_TRUE(unknown.candidate.offload.none());
}

TEST(PlanJob, RoomForTheFewestStashes_IsUsed) {
  Cluster cluster = Alike(4);
  const Candidate plain = {.method = "gpipe", .stages = 4, .microbatches = 8};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate enough,
                                JudgeCandidate(InputOf(kPlannedJob, cluster), plain));
  Candidate offloads = plain;
  offloads.offload = {.all = 2};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JudgedCandidate fewest,
                                JudgeCandidate(InputOf(kPlannedJob, cluster), offloads));
  for (size_t w = 0; w < 4; ++w) {
    EXPECT_LT(fewest.memory[w].total(), enough.memory[w].total()) << w;
  }
  cluster.workers[1].memory_bytes = static_cast<double>(fewest.memory[1].total());
  for (PlanWorker& worker : cluster.workers) worker.offload_bytes_per_second = 1e12;
  const PlanningInput input = InputOf(kPlannedJob, cluster);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const JobPlan plan,
      PlanJob(input, PlanJobOptions{.methods = {"gpipe"}, .stages = {4}}, Unlimited()));
  EXPECT_TRUE(std::any_of(plan.candidates.begin(), plan.candidates.end(),
                          [](const JudgedCandidate& judged) {
                            return judged.candidate.microbatches == 8 && judged.runs() &&
                                   judged.candidate.offload == OffloadChoice{.stages = {{1, 2}}};
                          }));
}

TEST(PlanJob, TooLittleMemoryEverywhere_RejectsAll) {
  Cluster cluster = Alike(2);
  for (PlanWorker& worker : cluster.workers) worker.memory_bytes = 1'000;
  const PlanningInput input = InputOf(kPlannedJob, cluster);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JobPlan plan,
                                PlanJob(input, PlanJobOptions{.methods = {"1f1b"}}, Unlimited()));
  EXPECT_FALSE(plan.fastest.has_value());
  EXPECT_FALSE(plan.is_fastest || plan.is_smallest);
  for (const JudgedCandidate& judged : plan.candidates) EXPECT_FALSE(judged.runs());
}

TEST(PlanJob, SpentBudget_SaysSo) {
  const PlanningInput input = InputOf(kPlannedJob, Alike(3));
  TickingClock clock(absl::ToInt64Nanoseconds(absl::Milliseconds(100)));
  TimeBudget budget(clock, absl::Seconds(1));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JobPlan plan, PlanJob(input, {}, budget));
  EXPECT_FALSE(plan.in_time);
  EXPECT_TRUE(plan.fastest.has_value());
}

}  // namespace
}  // namespace penstock
