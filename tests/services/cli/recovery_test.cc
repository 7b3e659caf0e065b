// Jobs that go on after a worker or the coordinator has left or was killed, with processes.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>

#include "tests/services/cli/cluster_fixture.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

class RecoveryTest : public ClusterFixture {
 protected:
  // Submits a job that is saved, and waits until it trains.
  std::string SubmitSaved(std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"submit",
                                          job_.job(),
                                          "--no-wait",
                                          "--steps",
                                          steps_,
                                          "--set",
                                          "validation.every_steps=0",
                                          "--set",
                                          "checkpoint.directory=" + job_.path("ckpt")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    std::string id = RunJson(arguments)["job_id"];
    EXPECT_TRUE(Eventually([&] { return RunJson({"status", id})["step"] > 2; }, kMinute));
    return id;
  }

  void KillAWorkerAfterACheckpoint(const std::string& id) {
    ASSERT_TRUE(Eventually(
        [&] {
          return Run({"logs", id}).out.find("checkpoint") != std::string::npos;
        },
        kMinute));
    workers_[1]->Signal(SIGKILL);
    workers_[1]->Wait(kMinute);
  }

  Json AwaitEnd(const std::string& id) {
    EXPECT_TRUE(Eventually(
        [&] {
          return !RunJson({"status", id})["ended_unix_ms"].is_null();
        },
        2 * kMinute));
    return RunJson({"status", id});
  }

  // Of a run without any interruption. Cuts change nothing about the weights of a synchronous method.
  std::string ReferenceWeights() const {
    const ProcessResult reference = RunProcess(job_.Train(
        {"--reference", "--json", "--steps", steps_, "--set", "validation.every_steps=0"}));
    return Json::parse(reference.out)["weights_sha256"];
  }

  std::string steps_ = "400";
};

TEST_F(RecoveryTest, WorkerIsStopped_ItsJobIsSavedAndGoesOnWhenItIsBack) {
  const std::string id = SubmitSaved();
  workers_[1]->Signal(SIGTERM);
  const ProcessResult stopped = workers_[1]->Wait(kMinute);
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  EXPECT_THAT(stopped.err, HasSubstr("for its job to drain"));
  const Json waiting = RunJson({"status", id});
  EXPECT_EQ(waiting["state"], "queued");
  EXPECT_EQ(RunJson({"workers"}).size(), 1) << "it has left, it is not lost";
  RestartWorker(1);
  const Json done = AwaitEnd(id);
  EXPECT_EQ(done["state"], "succeeded") << done["error"];
  EXPECT_EQ(done["result"]["recoveries"], 1);
  EXPECT_EQ(done["result"]["losses"].size(), 400);
  EXPECT_EQ(done["result"]["weights_sha256"], ReferenceWeights());
}

TEST_F(RecoveryTest, WorkerIsKilled_ItsJobGoesOnFromItsLastCheckpointWhenItIsBack) {
  const std::string id = SubmitSaved({"--set", "checkpoint.every_steps=20"});
  ASSERT_NO_FATAL_FAILURE(KillAWorkerAfterACheckpoint(id));
  ASSERT_TRUE(Eventually(
      [&] {
        return RunJson({"status", id})["state"] == "recovering";
      },
      kMinute));
  RestartWorker(1);
  const Json done = AwaitEnd(id);
  EXPECT_EQ(done["state"], "succeeded") << done["error"];
  EXPECT_EQ(done["result"]["recoveries"], 1);
  EXPECT_EQ(done["result"]["steps"], 400);
  EXPECT_EQ(done["result"]["losses"].size(), 400) << "steps that were done again count once";
  EXPECT_EQ(done["result"]["weights_sha256"], ReferenceWeights());
  const Json& failed = done["result"]["attempts"][0];
  EXPECT_EQ(failed["cause"], "worker_lost") << failed;
  EXPECT_EQ(failed["worker"], "worker-1");
  EXPECT_THAT(std::string(failed["message"]),
              HasSubstr("its connection closed, and nobody listens"))
      << "no heartbeat was waited for";
  EXPECT_EQ(failed["last_step"].get<int64_t>() - failed["steps_redone"].get<int64_t>(),
            done["result"]["attempts"].back()["first_step"]);
}

// Workers that have no disk in common with the coordinator, so that checkpoints travel.
class RemoteCheckpointTest : public RecoveryTest {
 protected:
  void SetUp() override {
    MakeCertificates();
    StartCoordinator("127.0.0.1:0");
    for (int i = 0; i < 2; ++i) StartWorker({"--checkpoint-root", "coordinator"});
    ASSERT_TRUE(Eventually([&] { return RunJson({"workers"}).size() == 2; })) << address_;
  }

  // Whether files of a checkpoint are on their way to the coordinator, or wait there for the others.
  bool IsStaging() const {
    std::error_code error;  // directories come and go meanwhile
    std::filesystem::directory_iterator entry(job_.path("ckpt"), error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (name.find(".tmp-") != std::string::npos && !name.ends_with(".tmp-removed")) return true;
    }
    return false;
  }
};

TEST_F(RemoteCheckpointTest, WorkerIsKilled_ItsJobGoesOnFromTheCheckpointAtTheCoordinator) {
  const std::string id = SubmitSaved({"--set", "checkpoint.every_steps=20"});
  ASSERT_NO_FATAL_FAILURE(KillAWorkerAfterACheckpoint(id));
  RestartWorker(1);
  const Json done = AwaitEnd(id);
  EXPECT_EQ(done["state"], "succeeded") << done["error"];
  ASSERT_GE(done["result"]["attempts"].size(), 2);
  EXPECT_GT(done["result"]["attempts"].back()["first_step"], 0) << "it began again";
  EXPECT_EQ(done["result"]["weights_sha256"], ReferenceWeights());
  for (const auto& entry : std::filesystem::recursive_directory_iterator(job_.path("ckpt"))) {
    const bool staged = entry.path().string().find(".tmp-") != std::string::npos;
    EXPECT_TRUE(staged || entry.path().extension() != ".part") << entry.path();
  }
}

TEST_F(RemoteCheckpointTest, CoordinatorIsKilledDuringATransfer_TheRunGoesOnAndSavesWhenItIsBack) {
  const std::string id = SubmitSaved({"--set", "checkpoint.every_steps=20"});
  ASSERT_TRUE(Eventually([&] { return IsStaging(); }));
  coordinator_->Signal(SIGKILL);
  coordinator_->Wait(kMinute);
  StartCoordinator(address_);
  const Json done = AwaitEnd(id);
  EXPECT_EQ(done["state"], "succeeded") << done["error"];
  EXPECT_FALSE(done["result"]["checkpoint"].is_null());
  EXPECT_EQ(done["result"]["weights_sha256"], ReferenceWeights());
}

TEST_F(RemoteCheckpointTest, JobThatIsResumedByAnother_HasTheWeightsOfOneThatWentOn) {
  const std::vector<std::string> job = {"submit",
                                        job_.job(),
                                        "--json",
                                        "--set",
                                        "validation.every_steps=0",
                                        "--set",
                                        "checkpoint.directory=" + job_.path("ckpt")};
  const auto submit = [&](std::vector<std::string> more) {
    more.insert(more.begin(), job.begin(), job.end());
    return Run(more);
  };
  const ProcessResult first = submit({"--steps", "20"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const ProcessResult second = submit({"--steps", "40", "--resume", "latest"});
  ASSERT_EQ(second.exit_code, 0) << second.err;
  steps_ = "40";
  EXPECT_EQ(Json::parse(second.out)["weights_sha256"], ReferenceWeights());
}

TEST_F(RecoveryTest, WorkerIsKilledOfAJobThatIsOnNoDisk_ItGoesOnFromTheMemoryOfTheOther) {
  const std::string id =
      RunJson({"submit", job_.job(), "--no-wait", "--steps", steps_, "--set",
               "validation.every_steps=0", "--set", "recovery.snapshot_every_steps=10"})["job_id"];
  ASSERT_TRUE(Eventually(
      [&] {
        return RunJson({"status", id})["result"]["snapshot_step"] > 0;
      },
      kMinute));
  workers_[1]->Signal(SIGKILL);
  workers_[1]->Wait(kMinute);
  RestartWorker(1);
  const Json done = AwaitEnd(id);
  EXPECT_EQ(done["state"], "succeeded") << done["error"];
  EXPECT_EQ(done["result"]["losses"].size(), 400);
  EXPECT_EQ(done["result"]["weights_sha256"], ReferenceWeights());
  ASSERT_EQ(done["result"]["attempts"].size(), 2);
  EXPECT_GT(done["result"]["attempts"][1]["first_step"], 0);
  EXPECT_EQ(done["result"]["attempts"][1]["first_step"].get<int64_t>() % 10, 0);
  EXPECT_TRUE(done["result"]["checkpoint"].is_null());
}

// On devices whose steps take so long that there is time enough left to be worth it.
TEST_F(RecoveryTest, WorkerIsKilledAndComesBackLate_ItsJobGoesOnWithFewerAndThenWithAsMany) {
  for (const auto& worker : workers_) {
    worker->Signal(SIGTERM);
    worker->Wait(kMinute);
  }
  job_.Write("device.yaml",
             "model: {forward_ms: 4, backward_input_ms: 4, backward_weight_ms: 4, update_ms: 0}\n");
  for (int i = 0; i < 4; ++i) StartWorker({"--emulate", job_.path("device.yaml")});
  ASSERT_TRUE(Eventually([&] { return RunJson({"workers"}).size() == 4; }));
  const auto await_attempt = [&](const std::string& id, size_t number) {
    return Eventually(
        [&] {
          const Json status = RunJson({"status", id});
          return status["state"] == "running" && status["result"]["attempts"].size() == number;
        },
        kMinute);
  };
  steps_ = "500";
  const std::string id =
      SubmitSaved({"--set", "pipeline.stages=4", "--set", "checkpoint.every_steps=20", "--set",
                   "recovery.wait_seconds=0"});
  workers_[4]->Signal(SIGKILL);
  workers_[4]->Wait(kMinute);
  ASSERT_TRUE(await_attempt(id, 2));
  EXPECT_EQ(RunJson({"status", id})["result"]["stages"], 3);
  RestartWorker(4);
  const Json done = AwaitEnd(id);
  EXPECT_EQ(done["state"], "succeeded") << done["error"];
  const Json& result = done["result"];
  EXPECT_EQ(result["stages"], 4);
  EXPECT_EQ(result["growths"], 1);
  EXPECT_EQ(result["losses"].size(), 500) << "steps that were done again count once";
  EXPECT_EQ(result["extra_cuts"].size(), 0) << "it grew at a cut of its own";
  EXPECT_EQ(result["weights_sha256"], ReferenceWeights());
  ASSERT_EQ(result["attempts"].size(), 3);
  EXPECT_EQ(result["attempts"][0]["cause"], "worker_lost");
  EXPECT_EQ(result["attempts"][1]["cause"], "grew");
  EXPECT_EQ(result["attempts"][1]["steps_redone"], 0);
}

TEST_F(RecoveryTest, WorkerIsKilledOfAJobThatDoesNotRecover_ItFails) {
  const std::string id = SubmitSaved({"--set", "recovery.mode=off"});
  workers_[1]->Signal(SIGKILL);
  const Json failed = AwaitEnd(id);
  EXPECT_EQ(failed["state"], "failed");
  EXPECT_THAT(std::string(failed["error"]), HasSubstr("worker-1"));
}

TEST_F(RecoveryTest, SecondSignal_EndsTheWorkerAtOnce) {
  const std::string id = RunJson({"submit", job_.job(), "--no-wait", "--steps", "1000000", "--set",
                                  "validation.every_steps=0"})["job_id"];
  ASSERT_TRUE(Eventually([&] { return RunJson({"status", id})["step"] > 2; }, kMinute));
  workers_[1]->Signal(SIGTERM);
  ASSERT_TRUE(Eventually([&] {
    return Run({"logs", id}).out.find("worker-1 is leaving") != std::string::npos;
  })) << "a job that is not saved runs on";
  workers_[1]->Signal(SIGTERM);
  EXPECT_EQ(workers_[1]->Wait(kMinute).exit_code, 0);
  const Json failed = AwaitEnd(id);
  EXPECT_EQ(failed["state"], "failed");
  EXPECT_THAT(std::string(failed["error"]), HasSubstr("worker-1 is shutting down"));
}

TEST_F(RecoveryTest, CoordinatorIsStopped_ItsJobGoesOnInTheNext) {
  const std::string id = SubmitSaved();
  Process logs(Reaching({"logs", id, "-f"}));
  ASSERT_TRUE(Eventually([&] { return logs.out().find("step") != std::string::npos; }));
  coordinator_->Signal(SIGTERM);
  const ProcessResult stopped = coordinator_->Wait(kMinute);
  EXPECT_EQ(stopped.exit_code, 0) << stopped.err;
  StartCoordinator(address_);
  const Json done = AwaitEnd(id);
  EXPECT_EQ(done["state"], "succeeded") << done["error"];
  EXPECT_EQ(done["result"]["recoveries"], 1);
  EXPECT_EQ(done["result"]["losses"].size(), 400) << "the curve of the first half is kept";
  EXPECT_EQ(done["result"]["weights_sha256"], ReferenceWeights());
  const ProcessResult logged = logs.Wait(kMinute);
  EXPECT_EQ(logged.exit_code, 0) << logged.err;
  EXPECT_THAT(logged.out, HasSubstr("goes on after step"));
}

TEST_F(RecoveryTest, CoordinatorIsKilled_ItsJobGoesOnWhereItIs) {
  const std::string id = SubmitSaved({"--set", "checkpoint.every_steps=20"});
  ASSERT_TRUE(Eventually(
      [&] {
        return Run({"logs", id}).out.find("checkpoint") != std::string::npos;
      },
      kMinute));
  coordinator_->Signal(SIGKILL);
  coordinator_->Wait(kMinute);
  StartCoordinator(address_);
  const Json done = AwaitEnd(id);
  EXPECT_EQ(done["state"], "succeeded") << done["error"];
  EXPECT_EQ(done["result"]["attempts"].size(), 1) << done["result"]["attempts"];
  EXPECT_EQ(done["result"]["losses"].size(), 400);
  EXPECT_EQ(done["result"]["weights_sha256"], ReferenceWeights());
  EXPECT_THAT(Run({"logs", id}).out, HasSubstr("no step is lost"));
}

}  // namespace
}  // namespace penstock
