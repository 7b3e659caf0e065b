#include "job/profile/device_times.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "job/resolve.h"
#include "tests/job/jobs.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::vector<StageCosts>> Costs(const std::string& yaml,
                                              const std::vector<LayerRange>& layers) {
  const absl::StatusOr<v1::DeviceTimes> times = ParseDeviceTimes(yaml, "times.yaml");
  if (!times.ok()) return times.status();
  return StageCostsOf(*times, ResolveJob(GoodJob())->model, layers);
}

TEST(DeviceTimes, OfTheModel_AreSplitEvenlyOverTheStages) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const std::vector<StageCosts> costs,
      Costs("model: {forward_ms: 80, backward_input_ms: 40, backward_weight_ms: 20, update_ms: 8}",
            {{0, 1}, {1, 12}, {13, 1}, {14, 1}}));
  ASSERT_EQ(costs.size(), 4u);
  for (const StageCosts& stage : costs) {
    EXPECT_DOUBLE_EQ(stage.forward_s, 0.020);
    EXPECT_DOUBLE_EQ(stage.backward_input_s, 0.010);
    EXPECT_DOUBLE_EQ(stage.backward_weight_s, 0.005);
    EXPECT_DOUBLE_EQ(stage.update_s, 0.002);
  }
}

TEST(DeviceTimes, OfTheModel_AreThoseOfEachReplica) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const std::vector<StageCosts> costs,
      Costs("model: {forward_ms: 80}", {{0, 1}, {1, 14}, {0, 1}, {1, 14}, {0, 1}, {1, 14}}));
  ASSERT_EQ(costs.size(), 6u);
  for (const StageCosts& stage : costs) EXPECT_DOUBLE_EQ(stage.forward_s, 0.040);
}

TEST(DeviceTimes, SpeedsAndLinksThatCannotBe_AreRefusedWithTheirPlace) {
  const auto refusal = [](const std::string& more) {
    return std::string(
        ParseDeviceTimes("model: {forward_ms: 1}\n" + more, "times.yaml").status().message());
  };
  EXPECT_EQ(refusal("speeds: [1, 0]"),
            "times.yaml:2:1: speeds: that of worker 1 is 0; expected 0.001 to 1000");
  EXPECT_THAT(refusal("speeds: [.nan]"), HasSubstr("expected a number, got .nan"));
  EXPECT_THAT(refusal("links: [{workers: [1]}]"),
              HasSubstr("links[0].workers: are 1; expected the numbers of two workers, or none"));
  EXPECT_THAT(refusal("links: [{workers: [2, 2]}]"), HasSubstr("are 2, 2; expected"));
  EXPECT_THAT(refusal("links: [{workers: [-1, 2]}]"), HasSubstr("are -1, 2; expected"));
  EXPECT_THAT(refusal("links: [{gigabits_per_second: 0}]"),
              HasSubstr("links[0].gigabits_per_second: is 0; expected 1e-06 to 1e+06, or none"));
  EXPECT_THAT(refusal("links: [{latency_ms: -1}]"), HasSubstr("links[0].latency_ms: is -1 ms"));
  EXPECT_THAT(refusal("links: [{workers: [0, 1]}, {workers: [1, 0]}]"),
              HasSubstr("links[1].workers: 1 and 0 are joined twice"));
  EXPECT_THAT(refusal("links: [{latency_ms: 1}, {latency_ms: 2}]"),
              HasSubstr("links[1]: is a second entry without workers"));
}

TEST(DeviceTimes, OfALayerThatIsNotInTheModel_AreRefused) {
  EXPECT_THAT(Costs("layers: [{layer: h.0.mpl, times: {forward_ms: 1}}]", {{0, 15}}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("did you mean h.0.mlp?")));
  EXPECT_THAT(
      Costs("layers: [{layer: convolution, times: {forward_ms: 1}}]", {{0, 15}}).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected attention, embedding")));
}

TEST(DeviceTimes, OfLayers_AddUpAndTheFullNameCountsFirst) {
  constexpr char kYaml[] = R"(
layers:
  - {layer: embedding, times: {forward_ms: 1}}
  - {layer: attention, times: {forward_ms: 10, backward_input_ms: 2}}
  - {layer: h.1.attention, times: {forward_ms: 100}}
  - {layer: mlp, times: {forward_ms: 20}}
  - {layer: final_norm, times: {}}
  - {layer: head, times: {backward_weight_ms: 5}}
)";
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<StageCosts> costs,
                                Costs(kYaml, {{0, 3}, {3, 2}, {5, 10}}));
  EXPECT_DOUBLE_EQ(costs[0].forward_s, 0.031);
  EXPECT_DOUBLE_EQ(costs[0].backward_input_s, 0.002);
  EXPECT_DOUBLE_EQ(costs[1].forward_s, 0.120);
  EXPECT_DOUBLE_EQ(costs[1].backward_input_s, 0.0);
  EXPECT_DOUBLE_EQ(costs[2].forward_s, 0.120);
  EXPECT_DOUBLE_EQ(costs[2].backward_weight_s, 0.005);
}

TEST(DeviceTimes, WithoutAName_AreCalledEmulated) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::DeviceTimes times,
                                ParseDeviceTimes("model: {forward_ms: 1}", "times.yaml"));
  EXPECT_EQ(times.device(), "emulated");
}

TEST(DeviceTimes, BadFile_IsRefusedWithItsPlace) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "is empty"},
      {"device: x", "expected either `model`"},
      {"model: {forward_ms: 1}\nlayers: [{layer: mlp, times: {}}]", "has both model and layers"},
      {"model: {forward_ms: -1}",
       "times.yaml:1:9: model.forward_ms: is -1 ms; expected 0 to 60000"},
      {"model: {forward_ms: .nan}", "model.forward_ms"},
      {"model: {backward_weight_ms: 60001}", "model.backward_weight_ms: is 60001 ms"},
      {"model: {update_ms: 1}", "no pass takes any time"},
      {"layers: [{times: {forward_ms: 1}}]", "layers[0].layer: is missing"},
      {"layers: [{layer: mlp, times: {}}, {layer: mlp, times: {}}]", "mlp is named twice"},
      {"layers: [{layer: mlp, times: {update_ms: .inf}}]", "layers[0].times.update_ms"},
      {"layers: [{layer: mlp}]", "no pass takes any time"},
      {"modle: {}", "did you mean model?"},
      {"model: {forward_ms: 1}\njitter: 1",
       "times.yaml:2:1: jitter: is 1; expected at least 0 and below 1"},
      {"model: {forward_ms: 1}\njitter: -0.1", "jitter: is -0.1"},
      {"model: {forward_ms: 1}\njitter: .nan", "jitter: expected a number"},
  };
  for (const auto& [yaml, message] : cases) {
    EXPECT_THAT(ParseDeviceTimes(yaml, "times.yaml").status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << yaml;
  }
}

TEST(DeviceTimes, LayerWithoutTimes_IsNamed) {
  EXPECT_THAT(Costs("layers: [{layer: mlp, times: {forward_ms: 1}}]", {{0, 15}}).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("layer embedding has none")));
}

TEST(DeviceTimes, StageOfManyLayers_MayNotTakeLongerThanAPass) {
  EXPECT_THAT(Costs("layers: [{layer: embedding, times: {}}, {layer: final_norm, times: {}}, "
                    "{layer: head, times: {}}, {layer: attention, times: {forward_ms: 50000}}, "
                    "{layer: mlp, times: {}}]",
                    {{0, 15}})
                  .status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stage 0: is 300000 ms")));
}

TEST(NameOfTimes, OtherTimesUnderTheSameName_AreToldApart) {
  v1::DeviceTimes times;
  times.set_device("phantom");
  times.mutable_model()->set_forward_ms(1.0);
  v1::DeviceTimes other = times;
  EXPECT_EQ(NameOfTimes(times), NameOfTimes(other));
  EXPECT_THAT(NameOfTimes(times), ::testing::MatchesRegex("phantom, times [0-9a-f]+"));
  other.mutable_model()->set_forward_ms(1.5);
  EXPECT_NE(NameOfTimes(times), NameOfTimes(other));
}

}  // namespace
}  // namespace penstock
