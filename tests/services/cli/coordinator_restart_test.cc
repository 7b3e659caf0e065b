// Commands that watch a job while the coordinator is killed and started again.
#include <gmock/gmock.h>
#include <signal.h>

#include <sstream>

#include "tests/services/cli/cluster_fixture.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class CoordinatorRestartTest : public ClusterFixture {
 protected:
  void KillCoordinator() {
    coordinator_->Signal(SIGKILL);
    EXPECT_EQ(coordinator_->Wait(kMinute).exit_code, -SIGKILL);
  }

  // That events came once each, in order, from the first to the last, and are those that are kept.
  void ExpectAllEventsOnce(const std::string& id, const std::string& followed) {
    EXPECT_EQ(followed, Run({"logs", id, "--json"}).out);
    std::istringstream lines(followed);
    int64_t sequence = 0;
    for (std::string line; std::getline(lines, line);) {
      EXPECT_EQ(Json::parse(line)["sequence"], ++sequence);
    }
    EXPECT_GT(sequence, 0);
  }
};

TEST_F(CoordinatorRestartTest, JobThatWaits_IsWatchedOnAndTrains) {
  Process submit(Reaching({"submit", job_.job(), "--set", "pipeline.stages=3", "--json"}));
  ASSERT_TRUE(Eventually([&] { return RunJson({"list"}).size() == 1; }));
  const std::string id = RunJson({"list"})[0]["job_id"];
  EXPECT_THAT(id, MatchesRegex(".+-1-[a-z]{5}")) << "no coordinator gives it again";
  Process logs(Reaching({"logs", id, "-f", "--json"}));
  ASSERT_TRUE(Eventually([&] { return logs.out().find("queued") != std::string::npos; }));
  KillCoordinator();
  for (const Process* watching : {&submit, &logs}) {
    EXPECT_TRUE(Eventually([&] {
      return watching->err().find("trying again for 30s") != std::string::npos;
    })) << watching->err();
  }
  StartCoordinator(address_);
  StartWorker();
  const ProcessResult submitted = submit.Wait(kMinute);
  EXPECT_EQ(submitted.exit_code, 0) << submitted.err;
  EXPECT_EQ(Json::parse(submitted.out)["state"], "succeeded");
  const ProcessResult logged = logs.Wait(kMinute);
  EXPECT_EQ(logged.exit_code, 0) << logged.err;
  EXPECT_THAT(logged.err, HasSubstr("the coordinator answers again"));
  ExpectAllEventsOnce(id, logged.out);
}

TEST_F(CoordinatorRestartTest, JobThatTrainsAndIsNotSaved_GoesOnAndIsWatchedOn) {
  Process submit(
      Reaching({"submit", job_.job(), "--steps", "1000000", "--set", "validation.every_steps=0"}));
  ASSERT_TRUE(Eventually([&] { return RunJson({"list"}).size() == 1; }));
  const std::string id = RunJson({"list"})[0]["job_id"];
  Process logs(Reaching({"logs", id, "-f", "--json"}));
  ASSERT_TRUE(
      Eventually([&] { return logs.out().find("step_done") != std::string::npos; }, kMinute));
  KillCoordinator();
  StartCoordinator(address_);
  ASSERT_TRUE(
      Eventually([&] { return logs.out().find("no step is lost") != std::string::npos; }, kMinute));
  const int64_t step = RunJson({"status", id})["step"];
  EXPECT_TRUE(Eventually([&] { return RunJson({"status", id})["step"] > step; }, kMinute));
  Run({"cancel", id});
  const ProcessResult logged = logs.Wait(kMinute);
  const ProcessResult submitted = submit.Wait(kMinute);
  EXPECT_EQ(RunJson({"status", id})["state"], "cancelled");
  EXPECT_THAT(submitted.err, HasSubstr("the coordinator answers again"));
  ExpectAllEventsOnce(id, logged.out);
}

}  // namespace
}  // namespace penstock
