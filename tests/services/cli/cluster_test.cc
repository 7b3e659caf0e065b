// The commands that speak to a cluster, with a coordinator and workers as processes.
#include <gmock/gmock.h>
#include <signal.h>

#include <filesystem>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "job/profile/cluster_profile.h"
#include "job/profile/device_times.h"
#include "tests/services/cli/cluster_fixture.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
class ClusterTest : public ClusterFixture {
 protected:
  // Of layers that take minutes to be measured, by both workers.
  std::vector<std::string> LongProfile() const {
    return Reaching({"profile", job_.job(), "--seconds", "60", "--workers", "2", "--set",
                     "model.gpt.width=256", "--set", "model.gpt.context=64"});
  }
};

TEST_F(ClusterTest, Submit_Waits_AndGivesTheWeightsOfTheReference) {
  const Json result = RunJson({"submit", job_.job()});
  EXPECT_EQ(result["state"], "succeeded");
  EXPECT_EQ(result["stages"], 2);
  const ProcessResult reference = RunProcess(job_.Train({"--reference", "--json"}));
  EXPECT_EQ(result["weights_sha256"], Json::parse(reference.out)["weights_sha256"]);

  const std::string id = result["job_id"];
  const Json list = RunJson({"list"});
  ASSERT_THAT(list, SizeIs(1));
  EXPECT_EQ(list[0]["job_id"], id);
  EXPECT_EQ(list[0]["state"], "succeeded");
  const Json status = RunJson({"status", id});
  EXPECT_THAT(status["plan"]["stages"], SizeIs(2));
  EXPECT_THAT(status["result"]["losses"], SizeIs(6));
  EXPECT_EQ(status["progress_percentage"], 100);
  EXPECT_EQ(status["estimated_remaining_seconds"], 0);
  EXPECT_THAT(Run({"status", id}).out, HasSubstr("succeeded"));
  EXPECT_THAT(Run({"logs", id}).out, HasSubstr("step 6"));
  EXPECT_EQ(Run({"logs", id}).out, Run({"logs", id, "-f"}).out);
  EXPECT_THAT(Run({"list"}).out, HasSubstr(id));
  EXPECT_THAT(Run({"workers"}).out, HasSubstr("worker-1"));
  const ProcessResult timeline = Run({"timeline", id, "-o", job_.path("t.json"), "--text"});
  EXPECT_EQ(timeline.exit_code, 0) << timeline.err;
  EXPECT_THAT(timeline.out, AllOf(HasSubstr("measured: a step takes"), HasSubstr("worker-1 |"),
                                  HasSubstr("predicted: a step takes")));
  const Json trace = Json::parse(RealFiles().Read(job_.path("t.json"), 1 << 26).value());
  std::set<std::string> processes;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") processes.insert(event["args"]["name"]);
  }
  EXPECT_THAT(processes, ElementsAre("measured: worker-0", "measured: worker-1",
                                     "predicted: worker-0", "predicted: worker-1"));
}

// While it trains, after a worker was killed, and from the store.
TEST_F(ClusterTest, Timeline_OfARunningAndOfAFailedJob_IsThere) {
  const Json submitted = RunJson({"submit", job_.job(), "--no-wait", "--steps", "1000000", "--set",
                                  "validation.every_steps=0"});
  const std::string id = submitted["job_id"];
  ASSERT_TRUE(Eventually([&] { return RunJson({"status", id})["step"] > 20; }, kMinute));
  const Json running = RunJson({"timeline", id});
  EXPECT_EQ(running["compared"]["times_from"], "measurements");
  EXPECT_GT(running["compared"]["steps"], 0);
  EXPECT_GT(running["compared"]["measured"]["step_seconds"], 0.0);
  EXPECT_GT(running["compared"]["predicted"]["step_seconds"], 0.0);
  EXPECT_EQ(running["missing_workers"], Json::array());

  workers_[1]->Signal(SIGKILL);
  ASSERT_TRUE(Eventually([&] { return RunJson({"status", id})["state"] == "failed"; }, kMinute));
  for (int time = 0; time < 2; ++time) {
    const ProcessResult failed = Run({"timeline", id, "--json"});
    ASSERT_EQ(failed.exit_code, 0) << failed.err;
    EXPECT_THAT(failed.err, HasSubstr("without worker-1, which did not answer"));
    const Json json = Json::parse(failed.out);
    EXPECT_EQ(json["missing_workers"], Json({"worker-1"}));
    EXPECT_GT(json["workers"][0]["busy_seconds"], 0.0);
    EXPECT_EQ(json["workers"][1]["busy_seconds"], nullptr);
  }
}

TEST_F(ClusterTest, Timeline_OfAJobThatNeverTrained_SaysWhyAndDoesNotGuessAtItsName) {
  const std::string id =
      RunJson({"submit", job_.job(), "--no-wait", "--set", "pipeline.stages=3"})["job_id"];
  EXPECT_EQ(Run({"cancel", id}).exit_code, 0);
  const ProcessResult result = Run({"timeline", id});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("before it began to train"));
  EXPECT_THAT(result.err, Not(HasSubstr("did you mean")));
}

// Whether the process reads the file just now.
bool HasOpen(pid_t pid, const std::string& path) {
  std::error_code error;
  const std::filesystem::path files = "/proc/" + std::to_string(pid) + "/fd";
  for (const auto& file : std::filesystem::directory_iterator(files, error)) {
    if (std::filesystem::read_symlink(file.path(), error) == path) return true;
  }
  return false;
}

TEST_F(ClusterTest, Submit_InterruptedWhileTheTextIsRead_SubmitsNothing) {
  const std::string text = std::filesystem::canonical(job_.path("input.txt"));
  std::filesystem::resize_file(text, uintmax_t{1} << 36);  // with a hole that takes minutes to read
  Process submit(Reaching({"submit", job_.job()}));
  ASSERT_TRUE(Eventually([&] { return HasOpen(submit.pid(), text); }));
  submit.Signal(SIGINT);
  const ProcessResult result = submit.Wait(kMinute);
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.err, HasSubstr("interrupted while"));
  EXPECT_EQ(RunJson({"list"}), Json::array());
}

TEST_F(ClusterTest, SubmitAgainWithTheSameKey_WatchesTheSameJobOn) {
  const std::vector<std::string> submit = {"submit", job_.job(), "--idempotency-key", "one"};
  const Json first = RunJson(submit);
  const Json again = RunJson(submit);
  EXPECT_EQ(again["job_id"], first["job_id"]);
  EXPECT_EQ(again["weights_sha256"], first["weights_sha256"]);
  EXPECT_THAT(RunJson({"list"}), SizeIs(1));
}

TEST_F(ClusterTest, UnknownJob_NamesTheNearest) {
  const Json submitted = RunJson({"submit", job_.job(), "--no-wait"});
  std::string wrong = submitted["job_id"];
  wrong.back() = wrong.back() == '9' ? '8' : '9';
  for (const char* command : {"status", "logs", "cancel", "timeline"}) {
    const ProcessResult result = Run({command, wrong});
    EXPECT_EQ(result.exit_code, 2) << command;
    EXPECT_THAT(result.err, HasSubstr("did you mean " + submitted["job_id"].get<std::string>()));
  }
}

TEST_F(ClusterTest, Cancel_RunningJob_DrainsIt) {
  const Json submitted = RunJson({"submit", job_.job(), "--no-wait", "--steps", "1000000", "--set",
                                  "validation.every_steps=0"});
  const std::string id = submitted["job_id"];
  ASSERT_TRUE(Eventually([&] { return RunJson({"status", id})["step"] > 0; }, kMinute));
  EXPECT_EQ(Run({"cancel", id}).exit_code, 0);
  ASSERT_TRUE(Eventually([&] { return RunJson({"status", id})["state"] == "cancelled"; }, kMinute));
  EXPECT_EQ(Run({"logs", id, "-f"}).exit_code, 130);
  EXPECT_EQ(Run({"cancel", id}).exit_code, 0) << "cancelling twice is fine";
}

TEST_F(ClusterTest, Submit_Interrupted_LeavesTheJobAlone) {
  Process submit(
      Reaching({"submit", job_.job(), "--steps", "1000000", "--set", "validation.every_steps=0"}));
  ASSERT_TRUE(Eventually(
      [&] {
        const Json list = RunJson({"list"});
        return list.size() == 1 && list[0]["step"] > 1;
      },
      kMinute));
  submit.Signal(SIGINT);
  const ProcessResult result = submit.Wait(kMinute);
  EXPECT_EQ(result.exit_code, 130);
  const Json job = RunJson({"list"})[0];
  EXPECT_EQ(job["state"], "running");
  EXPECT_LT(job["progress_percentage"], 100);
  EXPECT_GT(job["estimated_remaining_seconds"], 0);
  // What is printed can be copied into a shell as it is.
  const std::string id = job["job_id"];
  const std::string flags =
      " --coordinator " + address_ + " --certificates " + certificates("client");
  for (const std::string& command : {"logs " + id + " -f", "status " + id,
                                     "timeline " + id + " -o trace.json", "cancel " + id}) {
    EXPECT_THAT(result.err, HasSubstr(absl::StrCat("\n  penstock ", command, flags, "\n")));
  }
  EXPECT_THAT(result.err,
              HasSubstr("goes on: `penstock logs " + id + " -f" + flags + "` watches it"));
}

TEST_F(ClusterTest, Profile_WritesTheClusterAndKnowsTheLayersTheSecondTime) {
  const std::string path = job_.path("cluster.yaml");
  const std::vector<std::string> profile = {"profile", job_.job(),  "--samples", "1,2", "--seconds",
                                            "0",       "--workers", "2",         "-o",  path};
  const ProcessResult first = Run(profile);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, HasSubstr("the layers are timed on worker-0"));
  EXPECT_THAT(first.out, HasSubstr("worker-0, worker-1: cpu"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ClusterProfile measured, ReadClusterProfile(path));
  ASSERT_EQ(measured.devices_size(), 1);
  EXPECT_FALSE(measured.devices(0).cached());
  ASSERT_EQ(measured.workers_size(), 2);
  EXPECT_EQ(measured.workers(1).worker(), "worker-1");
  EXPECT_EQ(measured.workers(1).device(), measured.devices(0).device());
  EXPECT_EQ(measured.workers(1).host(), "127.0.0.1");
  EXPECT_GT(measured.workers(1).memory_bytes(), 0);
  EXPECT_EQ(measured.links_size(), 2);

  const ProcessResult second = Run(profile);
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_THAT(second.err, HasSubstr("known from worker-0"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::ClusterProfile known, ReadClusterProfile(path));
  EXPECT_TRUE(known.devices(0).cached());
  EXPECT_EQ(known.devices(0).model().SerializeAsString(),
            measured.devices(0).model().SerializeAsString());
  EXPECT_EQ(known.links_size(), 2);

  const Json json = RunJson({"profile", job_.job(), "--samples", "2,4", "--seconds", "0", "--fresh",
                             "--workers", "2", "--times", job_.path("times.yaml")});
  EXPECT_EQ(json["devices"][0]["cached"], false);
  EXPECT_THAT(json["links"], SizeIs(2));
  EXPECT_THAT(ReadDeviceTimes(job_.path("times.yaml")), IsOk());

  const Json list = RunJson({"list"});
  ASSERT_THAT(list, SizeIs(3));
  EXPECT_EQ(list[0]["method"], "profile");
  EXPECT_EQ(list[0]["step"], list[0]["steps"]);
  const std::string id = list[0]["job_id"];
  EXPECT_EQ(RunJson({"status", id})["profile"], json);
  EXPECT_THAT(Run({"status", id}).out, HasSubstr("LATENCY US"));
  EXPECT_THAT(Run({"logs", id}).out, HasSubstr("embedding to head, 2 samples"));
  EXPECT_THAT(Run({"logs", id, "--json"}).out, HasSubstr("\"event\":\"profile_progress\""));
}

TEST_F(ClusterTest, Plan_ProfilesTheWorkersAndIsForThem) {
  const std::string planned = job_.path("planned.yaml");
  const Json json = RunJson({"plan", job_.job(), "--methods", "1f1b,paci", "-o", planned});
  const Json fastest = json["candidates"][json["fastest"].get<int>()];
  for (const Json& worker : fastest["workers"]) {
    EXPECT_THAT(worker["worker"], AnyOf("worker-0", "worker-1"));
    EXPECT_GT(worker["memory_bytes"], 0);
  }
  const ProcessResult run = Run({"submit", planned});
  EXPECT_EQ(run.exit_code, 0) << run.err;

  // A profile of a cluster says by itself which workers there are.
  const std::string path = job_.path("cluster.yaml");
  ASSERT_EQ(Run({"profile", job_.job(), "--seconds", "0", "-o", path}).exit_code, 0);
  const ProcessResult offline = RunProcess({ProgramPath("penstock"), "plan", job_.job(),
                                            "--profile", path, "--methods", "1f1b", "--json"});
  ASSERT_EQ(offline.exit_code, 0) << offline.err;
  EXPECT_EQ(Json::parse(offline.out)["candidates"][0]["method"], "1f1b");
}

TEST_F(ClusterTest, SubmitWithoutAMethod_ChoosesOneForTheWorkers) {
  // As in a job file: pipeline: {method: auto, stages: auto}.
  const ProcessResult result =
      Run({"submit", job_.job(), "--set", "pipeline={method: auto, stages: auto}", "--set",
           "planning={race_seconds: 60}", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("candidates race for at most 60 s"));
  EXPECT_THAT(result.err, HasSubstr("chosen by a race: loss"));
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["state"], "succeeded");
  EXPECT_THAT(result.err, HasSubstr("planned: " + json["method"].get<std::string>() + ","));
  EXPECT_THAT(result.err,
              HasSubstr("pipeline: {method: " + json["method"].get<std::string>() + ", stages: "));
  const std::string id = json["job_id"];
  const Json planning = RunJson({"status", id})["planning"];
  EXPECT_EQ(planning["candidates"][0]["method"], json["method"]);
  EXPECT_GT(planning["candidates"][0]["race"]["steps"], 0);
  EXPECT_GT(planning["candidates"].size(), 5);
  EXPECT_THAT(Run({"status", id}).out, HasSubstr("chosen by a race"));
  EXPECT_EQ(RunJson({"status", id})["result"]["feedback"], json["feedback"]);
  EXPECT_GT(json["feedback"]["predicted"]["step_seconds"], 0.0);
  EXPECT_THAT(Run({"status", id}).out, HasSubstr("PREDICTED"));
  EXPECT_THAT(Run({"timeline", id}).out, HasSubstr(" ms predicted"));
  EXPECT_EQ(RunJson({"status", id})["plan"]["stages"].size(), json["stages"]);
  // Without workers there is nothing to choose for.
  const ProcessResult reference = RunProcess(
      job_.Train({"--set", "pipeline.method=auto", "--set", "planning={}", "--reference"}));
  EXPECT_EQ(reference.exit_code, 2);
  EXPECT_THAT(reference.err, HasSubstr("train without --reference"));
  // What belongs to one method cannot be said of whichever it will be.
  const ProcessResult more = Run({"submit", job_.job(), "--set", "planning={}", "--set",
                                  "pipeline={method: auto, replicas: [2]}"});
  EXPECT_EQ(more.exit_code, 2);
  EXPECT_THAT(more.err, HasSubstr("pipeline.replicas: belongs to a method"));
}

TEST_F(ClusterTest, Profile_WorkerKilled_FailsNamingItAndTheClusterGoesOn) {
  Process profile(LongProfile());
  ASSERT_TRUE(Eventually([&] {
    const Json list = RunJson({"list"});
    return list.size() == 1 && list[0]["step"] >= 2;  // the links are measured
  }));
  workers_[0]->Signal(SIGKILL);
  const ProcessResult result = profile.Wait(kMinute);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("worker worker-0"));
  const Json after = RunJson({"profile", job_.job(), "--seconds", "0", "--workers", "1"});
  EXPECT_EQ(after["workers"][0]["worker"], "worker-1");
}

TEST_F(ClusterTest, Profile_Interrupted_IsCancelledAndAJobBehindItRuns) {
  Process profile(LongProfile());
  ASSERT_TRUE(Eventually([&] {
    const Json list = RunJson({"list"});
    return list.size() == 1 && list[0]["step"] >= 2;
  }));
  const std::string behind = RunJson({"submit", job_.job(), "--no-wait"})["job_id"];
  EXPECT_EQ(RunJson({"status", behind})["state"], "queued");
  profile.Signal(SIGINT);
  const ProcessResult result = profile.Wait(kMinute);
  EXPECT_EQ(result.exit_code, 130);
  EXPECT_THAT(result.err, HasSubstr("nothing was written"));
  ASSERT_TRUE(Eventually(
      [&] {
        return RunJson({"status", behind})["state"] == "succeeded";
      },
      kMinute));
}

TEST_F(ClusterTest, Profile_WhatCannotBeMeasured_SaysWhy) {
  ProcessResult result = Run({"profile", job_.job(), "--set", "training.threads=2"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("training.threads is 2, but this worker has 1"));
  result = Run({"profile", job_.job(), "--seconds", "1000"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("profile.seconds: is 1000; expected 0 to 300"));
  result = Run({"profile", job_.job(), "--samples", "4,2"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("profile.samples: has 2 where 5"));
  result = Run({"profile", job_.job(), "--device", "cuda:7"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--device"));
  EXPECT_EQ(RunProcess({ProgramPath("penstock"), "profile", job_.job(), "--fresh"}).exit_code, 2)
      << "without a coordinator";
}

TEST_F(ClusterTest, Submit_DataThatDiffersOnTheWorkers_Fails) {
  JobDirectory other;
  other.Write("input.txt", "another text, of the same name, that is long enough for the job; " +
                               std::string(5000, 'x'));
  const ProcessResult result = Run({"submit", other.job()});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr("input.txt"));
}

}  // namespace
}  // namespace penstock
