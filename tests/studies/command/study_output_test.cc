#include "studies/command/study_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace penstock {
namespace {

StudyResult SomeResult() {
  StudyResult result{.title = "A study", .settings = {{"seeds", int64_t{2}}, {"step_size", 0.5}}};
  result.table = {
      .columns = {"method", "delta", "final_mean"},
      .rows = {{std::string("rpd, old"), int64_t{8}, 0.1},
               {std::string("pd"), std::string("-"), std::numeric_limits<double>::infinity()}}};
  result.charts = {{"logistic", {.lines = {{.label = "PD, γ", .points = {{1, 2, 1.5, 2.5}}}}}}};
  result.findings = {{"more is worse", true, "1, 2"}, {"less is more", false, "3, 4"}};
  return result;
}

TEST(StudyTextTest, Result_ShowsSettingsTableAndFindings) {
  EXPECT_EQ(StudyText(SomeResult()),
            "A study\n"
            "seeds 2, step size 0.5\n"
            "\n"
            "METHOD    DELTA  FINAL MEAN\n"
            "rpd, old      8         0.1\n"
            "pd            -    infinite\n"
            "\n"
            "agrees   more is worse\n"
            "         1, 2\n"
            "DIFFERS  less is more\n"
            "         3, 4\n");
}

TEST(StudyJsonTest, WhatIsNotKnownOrNotFinite_IsNull) {
  const nlohmann::ordered_json json = StudyJson("quadratic", SomeResult(), 1.5, {"a.csv"});
  EXPECT_EQ(json["study"], "quadratic");
  EXPECT_EQ(json["settings"]["seeds"], 2);
  EXPECT_EQ(json["rows"][0]["delta"], 8);
  EXPECT_TRUE(json["rows"][1]["delta"].is_null());
  EXPECT_TRUE(json["rows"][1]["final_mean"].is_null());
  EXPECT_EQ(json["findings"][1]["agrees"], false);
  EXPECT_EQ(json["files"][0], "a.csv");
}

TEST(StudyCsvTest, Cells_AreQuotedWhereTheyMustAndExact) {
  EXPECT_EQ(TableCsv(SomeResult().table),
            "method,delta,final_mean\n"
            "\"rpd, old\",8,0.10000000000000001\n"
            "pd,-,inf\n");
  EXPECT_EQ(CurvesCsv(SomeResult().charts),
            "chart,line,x,mean,least,greatest\n"
            "logistic,\"PD, γ\",1,2,1.5,2.5\n");
}

}  // namespace
}  // namespace penstock
