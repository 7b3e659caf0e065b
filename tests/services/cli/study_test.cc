// penstock study, as a user runs it.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/services/cli/job_directory.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

class StudyCommandTest : public ::testing::Test {
 protected:
  ProcessResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {ProgramPath("penstock"), "study"});
    arguments.insert(arguments.end(), {"--output", directory_.path("results")});
    return RunProcess(arguments);
  }

  JobDirectory directory_;
};

TEST_F(StudyCommandTest, Paci_TrainsPrintsAndKeepsWhatItTrained) {
  directory_.Write("text", std::string(2000, 'x'));
  const std::vector<std::string> arguments = {
      "paci", "--data", directory_.path("text"), "--steps", "2", "--optimizer", "adamw", "--seeds",
      "1",    "--json"};
  const ProcessResult result = Run(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto json = nlohmann::ordered_json::parse(result.out, nullptr, false);
  EXPECT_EQ(json["study"], "paci");
  EXPECT_EQ(json["settings"]["parameters"], 119104);
  ASSERT_EQ(json["rows"].size(), 3u);
  EXPECT_EQ(json["rows"][2]["at_percent"], 100);
  EXPECT_EQ(json["rows"][2]["steps"], 2);
  EXPECT_EQ(json["files"].size(), 4u);
  EXPECT_TRUE(RealFiles().Exists(
      directory_.path("results/paci-runs/adamw-0.0003-batch8-2-paci-seed1.json")));
  // The same from the runs that are there.
  std::vector<std::string> finished = arguments;
  finished.emplace_back("--finished");
  const ProcessResult again = Run(finished);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(nlohmann::ordered_json::parse(again.out, nullptr, false)["rows"], json["rows"]);
}

TEST_F(StudyCommandTest, Forecast_ReadsFinishedRuns) {
  nlohmann::ordered_json result = {{"job", "small"}, {"method", "1f1b"}};
  for (int step = 1; step <= 100; ++step) {
    result["losses"].push_back({{"step", step}, {"loss", 5.0 / step}});
  }
  ASSERT_TRUE(RealFiles().CreateDirectories(directory_.path("runs")).ok());
  for (const char* file : {"runs/a.json", "runs/b.json"}) directory_.Write(file, result.dump());
  const ProcessResult told =
      Run({"forecast", "--curves", directory_.path("runs"), "--seen", "25", "--json"});
  ASSERT_EQ(told.exit_code, 0) << told.err;
  const auto json = nlohmann::ordered_json::parse(told.out, nullptr, false);
  EXPECT_EQ(json["settings"]["curves"], 2);
  EXPECT_EQ(json["settings"]["seen_percent"], 25.0);
  ASSERT_EQ(json["rows"].size(), 14u);
  EXPECT_EQ(json["rows"][0]["setup"], "runs/small");
  EXPECT_EQ(json["rows"][0]["at_percent"], 40);
  EXPECT_NEAR(json["rows"][0]["forecast"].get<double>(), 40, 4);
}

TEST_F(StudyCommandTest, BadInput_IsRefusedInOneLine) {
  directory_.Write("text", std::string(2000, 'x'));
  const std::string text = directory_.path("text");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"nothing"}, "nothing"},
      {{"paci"}, "--data: the study paci needs a text"},
      {{"paci", "--data", directory_.path("absent")}, "absent"},
      {{"paci", "--data", text, "--optimizer", "sgd"}, "--optimizer"},
      {{"paci", "--data", text, "--rate", "0"}, "--rate"},
      {{"paci", "--data", text, "--steps", "1000,0"}, "--steps"},
      {{"paci", "--data", text, "--batch", "12"},
       "training.microbatches: is 8, which does not divide training.batch (12)"},
      {{"paci", "--data", text, "--seeds", "0"}, "--seeds"},
      {{"forecast"}, "--curves: the study forecast needs curves"},
      {{"forecast", "--curves", directory_.path("absent")}, "absent"},
      {{"forecast", "--curves", text}, "has no curve"},
      {{"forecast", "--curves", text, "--seen", "100"}, "--seen"}};
  for (const auto& [arguments, expected] : cases) {
    const ProcessResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(expected));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
  }
  const ProcessResult unfinished = Run({"paci", "--data", text, "--finished"});
  EXPECT_EQ(unfinished.exit_code, 2) << unfinished.err;
  EXPECT_THAT(unfinished.err, HasSubstr("has not all runs of any of the 2 settings"));
}

}  // namespace
}  // namespace penstock
