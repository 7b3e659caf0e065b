#include "studies/command/curve_files.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class CurveFilesTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) {
    ASSERT_THAT(files_.CreateDirectories(path.substr(0, path.rfind('/'))), IsOk());
    ASSERT_THAT(files_.WriteDurably(path, {text}), IsOk());
  }
  // A run that a study kept.
  static std::string Kept(const std::string& optimizer, const std::string& method, int seed,
                          const std::string& curve) {
    return absl::StrCat(R"({"job": {"name": "paci", "training": {"steps": 20, "microbatches": 8, )",
                        R"("optimizer": {")", optimizer, R"(": {"learning_rate": 0.1}}, "seed": )",
                        seed, R"(}, "pipeline": {"method": ")", method, R"("}}, )", curve, "}");
  }
  absl::StatusOr<std::vector<FinishedCurve>> Read(const std::vector<std::string>& paths) {
    return ReadCurveFiles(files_, paths);
  }

  MemoryFiles files_;
};

TEST_F(CurveFilesTest, KeptRuns_AreSetupsByTheirJobs) {
  const std::string curve =
      R"("validations": [{"step": 10, "loss": 2.5}, {"step": 20, "loss": 2.25}])";
  Write("runs/adamw-20-1f1b-seed1.json", Kept("adamw", "1f1b", 1, curve));
  Write("runs/adamw-20-paci-seed2.json", Kept("adamw", "paci", 2, curve));
  Write("runs/muon-20-paci-seed1.json", Kept("muon", "paci", 1, R"("losses": [3, 2.5, 2])"));
  Write("runs/muon-20-paci-seed2.json",
        Kept("muon", "paci", 2, R"("losses": [3], "diverged": true)"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto curves, Read({"runs"}));
  ASSERT_EQ(curves.size(), 3u);
  EXPECT_EQ(curves[0].setup, "adamw-20");
  EXPECT_EQ(curves[1].setup, "adamw-20");
  EXPECT_EQ(curves[1].name, "adamw-20-paci-seed2");
  EXPECT_THAT(curves[1].points, ElementsAre(LossCurve::Point{10, 2.5}, LossCurve::Point{20, 2.25}));
  EXPECT_EQ(curves[2].setup, "muon-20-paci-seed1") << "alone in its setup";
  EXPECT_THAT(curves[2].losses, ElementsAre(3, 2.5, 2));
  EXPECT_THAT(curves[2].points, IsEmpty());
}

TEST_F(CurveFilesTest, Results_AreSetupsByFolderAndJob) {
  const std::string result = R"({"job": "small", "method": "1f1b",
      "losses": [{"step": 1, "loss": 5.5}, {"step": 2, "loss": 4}]})";
  Write("x/fast/a.json", result);
  Write("x/slow/a.json", result);
  Write("x/slow/notes.txt", "of no interest");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto curves, Read({"x/fast/a.json", "x/slow"}));
  ASSERT_EQ(curves.size(), 2u);
  EXPECT_EQ(curves[0].setup, "fast/small");
  EXPECT_EQ(curves[1].setup, "slow/small");
  EXPECT_EQ(curves[1].name, "a");
  EXPECT_THAT(curves[1].losses, ElementsAre(5.5, 4));
}

TEST_F(CurveFilesTest, Charts_AreSetupsOfTheirLines) {
  Write("theory/local-sgd-curves.csv",
        "chart,line,x,mean,least,greatest\n"
        "logistic,\"PD, step 1\",0,0.7,0.7,0.7\n"
        "logistic,\"PD, step 1\",1,0.6,0.6,0.6\n"
        "logistic,\"PD, step 1\",2.5,0.5,0.5,0.5\n"
        "logistic,other,1,inf,1,1\n"
        "logistic,other,2,0.25,1,1\n"
        "logistic,other,3,0,1,1\n"
        "logistic,other,4,0.125,1,1\n"
        "logistic,short,1,2,2,2\n"
        ",alone,1,2,2,2\n"
        ",alone,5,1,1,1\n");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto curves, Read({"theory"}));
  ASSERT_EQ(curves.size(), 3u);
  EXPECT_EQ(curves[0].setup, "local-sgd-logistic");
  EXPECT_EQ(curves[0].name, "PD, step 1");
  EXPECT_THAT(curves[0].points, ElementsAre(LossCurve::Point{1, 0.6}, LossCurve::Point{2, 0.5}));
  EXPECT_THAT(curves[1].points, ElementsAre(LossCurve::Point{2, 0.25}, LossCurve::Point{4, 0.125}));
  EXPECT_EQ(curves[2].setup, "local-sgd");
  EXPECT_EQ(curves[2].name, "alone");
}

TEST_F(CurveFilesTest, OtherFiles_AreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "bad/a.json: has no curve"},
      {"not json", "bad/a.json: has no curve"},
      {"[1]", "bad/a.json: has no curve"},
      {R"({"job": "small"})", "bad/a.json: has no curve"},
      {R"({"job": {"nothing": 1}})", "bad/a.json: is no run that a study kept"},
      {R"({"job": "a", "losses": [{"step": 2, "loss": 1}]})", "bad/a.json: losses: has not one"},
      {R"({"job": "a", "losses": [{"step": 1, "loss": null}]})", "bad/a.json: losses: has not one"},
      {R"({"job": "a", "losses": [7]})", "bad/a.json: losses: has not one"},
      {"chart,line,x,mean,least,greatest\na,b,c,d,e,f\n", "bad/a.json:2: is no point"},
      {"chart,line,x,mean,least,greatest\na,b\n", "bad/a.json:2: is no point"}};
  for (const auto& [text, expected] : cases) {
    Write("bad/a.json", text);
    EXPECT_THAT(Read({"bad"}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(expected)));
  }
  EXPECT_THAT(Read({"absent"}), StatusIs(absl::StatusCode::kNotFound, HasSubstr("absent")));
  ASSERT_THAT(files_.CreateDirectories("empty"), IsOk());
  EXPECT_THAT(Read({"empty"}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("empty: has no curves")));
}

}  // namespace
}  // namespace penstock
