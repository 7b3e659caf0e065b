// Files of the release before go on in this one: its job file, schedule file, results, checkpoint and state of
// a coordinator (tests/compatibility/README.md says how they were made).
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "services/coordinator/job_store.h"
#include "tests/services/cli/cluster_fixture.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CompatibilityTest : public ClusterFixture {
 protected:
  void SetUp() override {
    std::filesystem::copy(PENSTOCK_SOURCE_DIR "/tests/compatibility/33b21fa", job_.path(),
                          std::filesystem::copy_options::recursive |
                              std::filesystem::copy_options::overwrite_existing);
  }

  Json ReadJson(const std::string& name) const {
    std::ifstream file(job_.path(name));
    return Json::parse(file, nullptr, /*allow_exceptions=*/false);
  }

  // `penstock train` of the old job on two workers, to its end.
  Json Train(std::vector<std::string> more) {
    more.insert(more.end(), {"--workers", "2", "--json"});
    const ProcessResult result = RunProcess(job_.Train(more));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    notes_ = result.err;
    return Json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  }
  std::string WeightsOf(const std::vector<std::string>& more) {
    return Train(more)["weights_sha256"];
  }

  // Kernels for other vector units round otherwise, so only a machine that computes as the one that made the files can
  // end with the weights of an uninterrupted run. The first steps tell which machine this is.
  bool ComputesAsThen() {
    return WeightsOf({"--reference", "--steps", "4"}) ==
           ReadJson("checkpoint/MANIFEST.json")["weights_sha256"];
  }

  std::string notes_;  // standard error of the last Train
};

TEST_F(CompatibilityTest, Checkpoint_ATrainingGoesOnFromIt) {
  ASSERT_FALSE(ReadJson("checkpoint/MANIFEST.json").contains("model"));
  const std::string resumed = WeightsOf({"--resume", job_.path("checkpoint")});
  EXPECT_THAT(notes_, HasSubstr("training.device_graphs is called training.cuda_graphs now"));
  EXPECT_EQ(WeightsOf({"--resume", job_.path("checkpoint"), "--method", "gpipe"}), resumed);
  if (ComputesAsThen()) {
    EXPECT_EQ(WeightsOf({"--reference"}), resumed);
    EXPECT_EQ(ReadJson("result.json")["weights_sha256"], resumed);
  }
}

TEST_F(CompatibilityTest, Checkpoint_IsExportedWithItsModel) {
  const ProcessResult exported = RunProcess(
      {ProgramPath("penstock"), "export", job_.path("checkpoint"), "-o", job_.path("exported")});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  const Json config = ReadJson("exported/config.json");
  EXPECT_EQ(config["n_layer"], 1);
  EXPECT_EQ(config["n_embd"], 4);
  EXPECT_EQ(config["n_head"], 2);
  EXPECT_EQ(config["n_positions"], 8);
  EXPECT_EQ(config["vocab_size"], 256);
  EXPECT_EQ(config["tie_word_embeddings"], false);
}

TEST_F(CompatibilityTest, ScheduleFile_TrainsToTheSameWeightsAndIsNoted) {
  const std::string weights = WeightsOf({});
  EXPECT_THAT(notes_, Not(HasSubstr("UPDATE")));
  EXPECT_EQ(WeightsOf({"--set", "pipeline.schedule_file=schedule.txt"}), weights);
  EXPECT_THAT(notes_, HasSubstr("pipeline.schedule_file: the action STEP is called UPDATE now"));
  const ProcessResult verified =
      RunProcess({ProgramPath("penstock"), "schedule", "verify", job_.path("schedule.txt")});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  EXPECT_THAT(verified.err, HasSubstr("schedule.txt: the action STEP is called UPDATE now"));
}

TEST_F(CompatibilityTest, Result_IsCompared) {
  const ProcessResult compared =
      RunProcess({ProgramPath("penstock"), "compare", "--results", job_.path("result.json")});
  EXPECT_EQ(compared.exit_code, 0) << compared.err;
  EXPECT_THAT(compared.out, HasSubstr("1f1b"));
}

class OldCoordinatorTest : public CompatibilityTest {
 protected:
  // The directory of its checkpoints must be absolute in a job, so it is that of the machine that made the state.
  void MoveCheckpointsHere() {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(JobStore store, JobStore::Open(job_.path("state.sqlite")));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<StoredJob> jobs, store.Load());
    ASSERT_EQ(jobs.size(), 3u);
    for (const StoredJob& job : jobs) {
      if (!job.record.spec().has_checkpoint() || job.record.spec().checkpoint().directory().empty())
        continue;
      SaveJob save = {.record = job.record};
      save.record.mutable_spec()->mutable_checkpoint()->set_directory(job_.path("returned"));
      const JobStore::Change change = {.job = &save};
      ASSERT_THAT(store.Write({&change, 1}), IsOk());
    }
  }

  std::string StateOf(const std::string& id) const { return RunJson({"status", id})["state"]; }
};

TEST_F(OldCoordinatorTest, State_ShowsWhatIsOverAndGoesOnWithTheRest) {
  MoveCheckpointsHere();
  MakeCertificates();
  StartCoordinator("127.0.0.1:0");
  const Json jobs = RunJson({"list"});
  ASSERT_EQ(jobs.size(), 3u) << jobs;
  const Json finished = RunJson({"status", "finished-1"});
  EXPECT_EQ(finished["state"], "succeeded");
  EXPECT_EQ(finished["result"]["weights_sha256"], ReadJson("result.json")["weights_sha256"]);
  EXPECT_EQ(Run({"logs", "finished-1"}).exit_code, 0);
  const ProcessResult timeline = Run({"timeline", "finished-1", "-o", job_.path("trace.json")});
  EXPECT_EQ(timeline.exit_code, 0) << timeline.err;
  EXPECT_THAT(ReadJson("trace.json").dump(), AllOf(HasSubstr("0UPDATE"), Not(HasSubstr("STEP"))));
  EXPECT_EQ(StateOf("returned-2"), "queued");
  EXPECT_EQ(StateOf("waiting-3"), "queued");

  StartWorker();
  ASSERT_TRUE(Eventually([&] { return StateOf("returned-2") == "succeeded"; }, kMinute))
      << RunJson({"status", "returned-2"});
  const Json returned = RunJson({"status", "returned-2"});
  EXPECT_EQ(returned["result"]["recoveries"], 1);
  EXPECT_EQ(returned["result"]["steps"], 40);
  if (ComputesAsThen()) {
    EXPECT_EQ(WeightsOf({"--reference", "--steps", "40"}), returned["result"]["weights_sha256"]);
  }

  StartWorker();
  StartWorker();
  ASSERT_TRUE(Eventually([&] { return StateOf("waiting-3") == "succeeded"; }, kMinute))
      << RunJson({"status", "waiting-3"});
  EXPECT_EQ(RunJson({"status", "waiting-3"})["result"]["weights_sha256"],
            WeightsOf({"--reference"}));
}

}  // namespace
}  // namespace penstock
