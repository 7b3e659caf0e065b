#include "model/metric.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "model/graph_builder.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

std::vector<std::string> NamesFor(int64_t classes) {
  GraphBuilder builder("layers");
  builder.AddPort({"scores", {DType::kF32, {classes}}});
  builder.AddPort({"label", {DType::kI32, {}}});
  builder.BeginLayer("loss");
  builder.Add({.op = "cross_entropy", .inputs = {"scores", "label"}});
  const absl::StatusOr<ModelGraph> model = std::move(builder).Build();
  EXPECT_THAT(model, IsOk());
  std::vector<std::string> names;
  for (const Metric* metric : MetricsOf(*model)) names.emplace_back(metric->name);
  return names;
}

TEST(Metrics, OfAModel_AreThoseThatSaySomething) {
  EXPECT_EQ(NamesFor(2), (std::vector<std::string>{"accuracy"}));
  EXPECT_EQ(NamesFor(5), (std::vector<std::string>{"accuracy"}));
  EXPECT_EQ(NamesFor(6), (std::vector<std::string>{"accuracy", "top5"}));
}

TEST(Metrics, OfALossWithoutClasses_AreNone) {
  GraphBuilder builder("layers");
  builder.AddPort({"a", {DType::kF32, {7}}});
  builder.AddPort({"b", {DType::kF32, {7}}});
  builder.BeginLayer("loss");
  builder.Add({.op = "mse", .inputs = {"a", "b"}});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph model, std::move(builder).Build());
  EXPECT_TRUE(MetricsOf(model).empty());
}

TEST(Metrics, OfRanks_AreOfTheHighestScores) {
  EXPECT_TRUE(FindMetric("accuracy")->is_right(0));
  EXPECT_FALSE(FindMetric("accuracy")->is_right(1));
  EXPECT_TRUE(FindMetric("top5")->is_right(4));
  EXPECT_FALSE(FindMetric("top5")->is_right(5));
  EXPECT_EQ(FindMetric("top-5"), nullptr);
}

}  // namespace
}  // namespace penstock
