#include "studies/experiments/internet_study.h"

#include <gmock/gmock.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "job/profile/model_profile.h"
#include "studies/experiments/deep_model.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pointwise;

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// A GPT: an embedding, `blocks` blocks of an attention (6 ms, 100 bytes behind it) and an mlp (12 ms, 50 bytes), a head.
v1::ModelProfile Profile(int blocks) {
  std::string text =
      "device: somewhere\nprecision: f32\noptimizer: adamw\ntime_steps: 16\nlayers:\n"
      "  - {layer: embedding, shape: table, values: [{sample_bytes: 50, readers: "
      "[h.0.attention]}]}\n";
  for (int block = 0; block < blocks; ++block) {
    const std::string next =
        block + 1 < blocks ? absl::StrCat("h.", block + 1, ".attention") : "head";
    absl::StrAppend(&text, "  - {layer: h.", block,
                    ".attention, shape: attention, values: [{sample_bytes: 100, readers: [h.",
                    block, ".mlp]}]}\n  - {layer: h.", block,
                    ".mlp, shape: mlp, values: [{sample_bytes: 50, readers: [", next, "]}]}\n");
  }
  absl::StrAppend(&text, "  - {layer: head, shape: head}\nshapes:\n");
  const auto shape = [&](const std::string& name, int forward_ms, int gradient_bytes) {
    absl::StrAppend(&text, "  - shape: ", name, "\n    gradient_bytes: ", gradient_bytes,
                    "\n    sizes:\n      - {samples: 2, forward: {ms: ", forward_ms,
                    "}, backward_input: {ms: ", forward_ms, "}, backward_weight: {ms: ", forward_ms,
                    "}}\n");
  };
  shape("table", 1, 1000);
  shape("attention", 2, 30);
  shape("mlp", 4, 60);
  shape("head", 6, 1000);
  const auto profile = ParseModelProfile(text, "profile.yaml");
  EXPECT_THAT(profile, IsOk());
  return *profile;
}

TEST(DeepenModel, MoreBlocks_AreAsTheMeasuredOnes) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const DeepModel model, DeepenModel(Profile(2), 2, /*blocks=*/3, /*stages=*/1, /*speed=*/2));
  EXPECT_EQ(model.block_layers, 2);
  EXPECT_EQ(model.measured_blocks, 2);
  EXPECT_EQ(model.blocks, 3);
  std::vector<double> pass_ms;
  std::vector<double> bytes;
  for (const DeepLayer& layer : model.layers) {
    pass_ms.push_back(layer.pass_s() * 1e3);
    bytes.push_back(layer.output_bytes);
  }
  EXPECT_THAT(pass_ms, Pointwise(DoubleNear(1e-9), {1.5, 3.0, 6.0, 3.0, 6.0, 3.0, 6.0, 9.0}));
  EXPECT_THAT(bytes, ElementsAre(100, 200, 100, 200, 100, 200, 100, 0));
  EXPECT_EQ(model.parameter_bytes, 2000 + 3 * 90);
}

TEST(DeepenModel, WithoutANumber_NoStageIsShorterThanTheLongestLayer) {
  // The longest layer takes 18 ms, a block 18, embedding and head 21: 10 stages of 18 need 9 blocks.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const DeepModel model, DeepenModel(Profile(3), 2, 0, 10, 1));
  EXPECT_EQ(model.blocks, 9);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const DeepModel few, DeepenModel(Profile(3), 2, 0, 1, 1));
  EXPECT_EQ(few.blocks, 3);  // the measured ones
}

TEST(DeepenModel, ModelsWithoutEqualBlocks_AreNamed) {
  v1::ModelProfile profile = Profile(1);
  EXPECT_THAT(
      DeepenModel(profile, 2, 4, 1, 1),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no layers of its profile repeat")));
  profile = Profile(3);
  profile.mutable_layers(3)->mutable_values(0)->set_sample_bytes(70);
  EXPECT_THAT(
      DeepenModel(profile, 2, 4, 1, 1),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("70 bytes of a sample cross behind layer h.1.attention, but 100")));
  EXPECT_THAT(DeepenModel(Profile(2), 3, 4, 1, 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("2")));
}

TEST(CutDeepModel, Stages_HaveTheSumsOfTheirLayersAndTheBytesBehindThem) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const DeepModel model, DeepenModel(Profile(2), 2, 2, 1, 1));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const DeepStages stages, CutDeepModel(model, 3));
  ASSERT_EQ(stages.costs.size(), 3u);
  // 3, 6, 12 | 6, 12 | 18 ms
  EXPECT_NEAR(stages.costs[0].forward_s, 7e-3, 1e-12);
  EXPECT_NEAR(stages.costs[1].backward_weight_s, 6e-3, 1e-12);
  EXPECT_NEAR(stages.costs[2].backward_input_s, 6e-3, 1e-12);
  EXPECT_THAT(stages.output_bytes, ElementsAre(100, 100, 0));
  EXPECT_THAT(CutDeepModel(model, 7), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("7")));
}

// On four hosts F, I and W take a second each, half of it for each of eight stages.
DeepModel EvenModel() {
  DeepModel model;
  for (int layer = 0; layer < 8; ++layer) {
    model.layers.push_back(
        {.costs = {.forward_s = 0.5, .backward_input_s = 0.5, .backward_weight_s = 0.5},
         .output_bytes = layer < 7 ? 1e9 : 0});
  }
  return model;
}

double StepSeconds(const std::string& method, const InternetLinks& links) {
  const auto speed = SimulateOnInternet(EvenModel(), method, 4, 8, links);
  EXPECT_THAT(speed, IsOk());
  return 8 * speed->microbatch_s;
}

TEST(SimulateOnInternet, PerfectLinks_HaveTheKnownBubbles) {
  const InternetLinks perfect = {.gigabits = kNoLimit, .latency_ms = 0};
  EXPECT_NEAR(StepSeconds("gpipe", perfect), 24 + 3 * 3, 1e-6);
  EXPECT_NEAR(StepSeconds("1f1b", perfect), 24 + 3 * 3, 1e-6);
  EXPECT_NEAR(StepSeconds("interleaved-1f1b", perfect), 24 + 3 * 1.5, 1e-6);
  EXPECT_NEAR(StepSeconds("zb-h1", perfect), 24 + 3, 1e-6);
  EXPECT_NEAR(StepSeconds("zb-h2", perfect), 24, 1e-6);
  EXPECT_NEAR(StepSeconds("pipedream", perfect), 24, 1e-6);
  EXPECT_NEAR(StepSeconds("paci", perfect), 24, 1e-6);
}

TEST(SimulateOnInternet, Latency_IsPaidOnTheWayThereAndBackByGpipe) {
  // Three hops each way of half a second, beside the bubble.
  EXPECT_NEAR(StepSeconds("gpipe", {.gigabits = kNoLimit, .latency_ms = 500}),
              24 + 3 * (3 + 2 * 0.5), 1e-6);
  // 1F1B has fewer microbatches under way, so it waits at every one.
  EXPECT_GT(StepSeconds("1f1b", {.gigabits = kNoLimit, .latency_ms = 5000}),
            1.2 * StepSeconds("gpipe", {.gigabits = kNoLimit, .latency_ms = 5000}));
}

TEST(SimulateOnInternet, Bandwidth_IsSharedByAllMessagesOfAHost) {
  // A host between two others sends an activation and a gradient of 1 GB for each microbatch: 16 s at 1 Gb/s.
  const auto speed =
      SimulateOnInternet(EvenModel(), "pipedream", 4, 8, {.gigabits = 1, .latency_ms = 0});
  ASSERT_THAT(speed, IsOk());
  EXPECT_GE(speed->microbatch_s, 16 - 1e-6);
  EXPECT_EQ(speed->staleness, 3);
  EXPECT_EQ(speed->versions, 4);
}

TEST(SimulateOnInternet, WhatDoesNotRun_IsNamed) {
  const InternetLinks links = {.gigabits = 1, .latency_ms = 1};
  EXPECT_THAT(SimulateOnInternet(EvenModel(), "roundpipe", 4, 8, links),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("weights stay")));
  EXPECT_THAT(SimulateOnInternet(EvenModel(), "no-such", 4, 8, links),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no-such")));
  EXPECT_THAT(SimulateOnInternet(EvenModel(), "interleaved-1f1b", 4, 7, links),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("7")));
}

std::string Text(const StudyResult& result, size_t row, const std::string& column) {
  for (size_t i = 0; i < result.table.columns.size(); ++i) {
    if (result.table.columns[i] == column) return std::get<std::string>(result.table.rows[row][i]);
  }
  ADD_FAILURE() << "no column " << column;
  return "";
}

TEST(RunInternetStudy, SmallGrid_NamesTheWinners) {
  InternetStudy study = {.hosts = 4,
                         .blocks = 20,
                         .gigabits = {1000},
                         .latencies_ms = {500, 0},
                         .microbatches = {8},
                         .methods = {"1f1b", "gpipe", "zb-h2", "pipedream", "dualpipe-v"}};
  SerialContext context;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result,
                                RunInternetStudy(study, Profile(2), context));
  ASSERT_EQ(result.table.rows.size(), 2u);
  // Without latency nothing beats zb-h2 by more than its updates, and they are not late.
  EXPECT_EQ(std::get<double>(result.table.rows[0][2]), 0);
  EXPECT_EQ(Text(result, 0, "fastest_not_late"), "zb-h2");
  // With a latency of several passes the method with all microbatches under way is the fastest that drains.
  EXPECT_EQ(Text(result, 1, "fastest_not_late"), "gpipe");
  ASSERT_EQ(result.charts.size(), 3u);
  EXPECT_EQ(result.charts[0].name, "fastest-8");
  EXPECT_EQ(result.charts[2].name, "1000-gigabits-8");
  EXPECT_EQ(result.charts[2].chart.lines.size(), 5u);
}

TEST(RunInternetStudy, BadRequests_AreNamed) {
  SerialContext context;
  const auto run = [&](InternetStudy study) {
    return RunInternetStudy(study, Profile(2), context).status();
  };
  const auto is = [](const char* what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
  };
  EXPECT_THAT(run({.hosts = 1}), is("at least 2 hosts, got 1"));
  EXPECT_THAT(run({.speed = 0}), is("the speed of the hosts must be above 0"));
  EXPECT_THAT(run({.gigabits = {}}), is("at least one bandwidth"));
  EXPECT_THAT(run({.gigabits = {0}}), is("a bandwidth in Gb/s must be above 0"));
  EXPECT_THAT(run({.latencies_ms = {-1}}), is("a latency in ms must be 0 or more"));
  EXPECT_THAT(run({.microbatches = {0}}), is("the microbatches of a step"));
  EXPECT_THAT(run({.blocks = -1}), is("blocks and samples must be 0 or more, got -1"));
  EXPECT_THAT(run({.hosts = 4, .samples = 9}), is("9"));
  EXPECT_THAT(run({.methods = {"no-such"}}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("no-such")));
  EXPECT_THAT(run({.hosts = 4, .microbatches = {7}, .methods = {"interleaved-1f1b"}}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("no method runs with 7 microbatches on 4 hosts")));
}

TEST(RunInternetStudy, MethodsThatDoNotRun_AreLeftOutAndNamed) {
  InternetStudy study = {.hosts = 4,
                         .gigabits = {1},
                         .latencies_ms = {1},
                         .microbatches = {7},
                         .methods = {"1f1b", "interleaved-1f1b"}};
  SerialContext context;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const StudyResult result,
                                RunInternetStudy(study, Profile(2), context));
  EXPECT_EQ(result.settings.back().first, "left_out");
  EXPECT_THAT(std::get<std::string>(result.settings.back().second),
              HasSubstr("interleaved-1f1b with 7 microbatches"));
}

}  // namespace
}  // namespace penstock
