// `penstock train` with real processes over loopback: the same weights however the work is split, and
// an end that leaves nothing behind, whatever happens.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/services/cli/job_directory.h"

namespace penstock {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kMinute(60);

Json JsonPrinted(std::vector<std::string> arguments) {
  arguments.push_back("--json");
  const ProcessResult result = RunProcess(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  Json json = Json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(json.is_object()) << result.out;
  return json;
}

std::string Weights(const std::vector<std::string>& arguments) {
  const Json json = JsonPrinted(arguments);
  return json.is_object() ? json["weights_sha256"].get<std::string>() : "";
}

// The lines of metrics.jsonl.
std::vector<Json> StepRecords(const std::string& directory) {
  std::ifstream file(directory + "/metrics.jsonl");
  std::vector<Json> records;
  for (std::string line; std::getline(file, line);) {
    records.push_back(Json::parse(line, nullptr, /*allow_exceptions=*/false));
  }
  return records;
}

bool HasCheckpoint(const JobDirectory& job) {
  for (const std::string& name : job.Checkpoints()) {
    if (name.find(".tmp-") == std::string::npos) return true;
  }
  return false;
}

// A job that goes on until it is stopped, and says by its checkpoints that it is under way.
std::vector<std::string> EndlessTrain(const JobDirectory& job) {
  return job.Train({"--workers", "2", "--steps", "1000000", "--set", "validation.every_steps=0",
                    "--set", "checkpoint.every_steps=200", "--set",
                    "checkpoint.directory=" + job.checkpoints()});
}

// Takes in the orphans that have ended, and says whether there are no others.
bool NoChildren() {
  while (waitpid(-1, nullptr, WNOHANG) > 0) {
  }
  return errno == ECHILD;
}

class TrainTest : public ::testing::Test {
 protected:
  // Orphans of a killed command line come to us, so that we see them end.
  void SetUp() override { prctl(PR_SET_CHILD_SUBREAPER, 1); }
  void TearDown() override {
    EXPECT_TRUE(Eventually([] { return NoChildren(); }));
  }
  JobDirectory job_;
};

TEST_F(TrainTest, SynchronousMethods_AnyNumberOfStages_SameWeightsAsReference) {
  const std::string reference = Weights(job_.Train({"--reference"}));
  EXPECT_THAT(reference, SizeIs(64));
  for (const char* method : {"1f1b", "gpipe"}) {
    for (const char* workers : {"1", "2", "3", "4"}) {
      EXPECT_EQ(Weights(job_.Train({"--method", method, "--workers", workers})), reference)
          << method << " on " << workers << " workers";
    }
  }
}

TEST_F(TrainTest, StageLayers_AreHeldByTheWorkers_SameWeightsAsReferenceAndEvenSplit) {
  const std::string even = Weights(job_.Train({"--workers", "3"}));
  const std::string uneven = "pipeline.stage_layers=[1, 5, 1]";
  EXPECT_EQ(Weights(job_.Train({"--set", uneven, "--reference"})), even);
  const Json run = JsonPrinted(job_.Train({"--set", uneven}));
  EXPECT_EQ(run["weights_sha256"], even);
  ASSERT_THAT(run["per_stage"], SizeIs(3)) << run;
  EXPECT_EQ(run["per_stage"][0]["layers"], 1) << run["per_stage"];
  EXPECT_EQ(run["per_stage"][1]["layers"], 5);
  EXPECT_EQ(run["per_stage"][2]["layers"], 1);
}

// Which weights a pass reads depends on its stage.
TEST_F(TrainTest, StageLayersOfPipedream_SameWeightsAsItsReferenceWithThem) {
  const std::vector<std::string> flags = {"--method", "pipedream", "--set",
                                          "pipeline.stage_layers=[5, 1, 1]"};
  std::vector<std::string> reference = job_.Train(flags);
  reference.push_back("--reference");
  EXPECT_EQ(Weights(job_.Train(flags)), Weights(reference));
}

TEST_F(TrainTest, Pipedream_AnyNumberOfStages_SameWeightsAsItsReference) {
  for (const char* workers : {"1", "2", "4"}) {
    const std::vector<std::string> flags = {"--method", "pipedream", "--workers", workers};
    std::vector<std::string> reference = job_.Train(flags);
    reference.push_back("--reference");
    EXPECT_EQ(Weights(job_.Train(flags)), Weights(reference)) << workers << " workers";
  }
}

TEST_F(TrainTest, Rpd_AnyNumberOfStages_SameWeightsAsItsReference) {
  for (const char* workers : {"1", "2", "4"}) {
    for (const char* delta : {"3", "40"}) {
      const std::vector<std::string> flags = {
          "--method", "rpd",   "--workers",
          workers,    "--set", std::string("pipeline.rpd.delta=") + delta};
      std::vector<std::string> reference = job_.Train(flags);
      reference.push_back("--reference");
      EXPECT_EQ(Weights(job_.Train(flags)), Weights(reference))
          << workers << " workers, delta " << delta;
    }
  }
}

// What was drawn in a run is what was predicted for it.
TEST_F(TrainTest, Rpd_CountsOfARun_AreThoseOfTheSimulator) {
  const Json run =
      JsonPrinted(job_.Train({"--method", "rpd", "--workers", "4", "--set", "training.seed=5", "--set",
                          "validation.every_steps=0", "--timeline", job_.path("run")}));
  const Json simulated =
      JsonPrinted({ProgramPath("penstock"), "simulate", "--method", "rpd", "--stages", "4", "--seed",
               "5", "--microbatches", "4", "--steps", "6"});
  ASSERT_THAT(run["per_stage"], SizeIs(4)) << run;
  for (int stage = 0; stage < 4; ++stage) {
    const Json& measured = run["per_stage"][stage];
    const Json& expected = simulated["per_stage"][stage];
    for (const char* key : {"versions_peak", "activations_peak"}) {
      EXPECT_EQ(measured[key], expected[key]) << key;
    }
    for (const char* key : {"max", "mean"}) {
      EXPECT_EQ(measured["staleness"][key], expected["staleness"][key]) << key;
      EXPECT_EQ(measured["version_drift"][key], 0) << key;
    }
    EXPECT_GE(measured["staleness"]["max"], 3 - stage);
    EXPECT_LE(measured["staleness"]["max"], 14);
  }
  EXPECT_EQ(run["block_delay"]["max"], 14);
  EXPECT_EQ(run["block_delay"], simulated["block_delay"]);
  EXPECT_LE(run["block_delay_measured"]["max"], 14);
}

TEST_F(TrainTest, LocalSgd_AnyNumberOfStages_SameWeightsAsItsReference) {
  for (const char* replicas : {"2", "4"}) {
    const std::vector<std::string> method = {"--method", "local-sgd", "--set",
                                             std::string("pipeline.replicas=") + replicas};
    std::vector<std::string> reference = job_.Train(method);
    reference.push_back("--reference");
    const std::string expected = Weights(reference);
    for (const char* workers : {"1", "2", "4"}) {
      std::vector<std::string> flags = method;
      flags.insert(flags.end(), {"--workers", workers});
      EXPECT_EQ(Weights(job_.Train(flags)), expected)
          << replicas << " replicas on " << workers << " workers";
    }
  }
}

// The job has 4 microbatches in a step.
TEST_F(TrainTest, ReplicasOfStages_OnWorkerProcesses_SameWeightsAsTheirReference) {
  for (const char* method : {"1f1b", "pipedream"}) {
    for (const char* replicas : {"[2, 2]", "[4, 1]", "[1, 2]", "4"}) {
      SCOPED_TRACE(std::string(method) + " " + replicas);
      std::vector<std::string> flags =
          job_.Train({"--method", method, "--set", std::string("pipeline.replicas=") + replicas});
      if (std::string(method) == "pipedream") {
        flags.insert(flags.end(), {"--set", "model.gpt.tied_head=false"});
      }
      if (std::string(replicas) == "4") flags.insert(flags.end(), {"--workers", "4"});
      std::vector<std::string> reference = flags;
      reference.push_back("--reference");
      const Json serial = JsonPrinted(reference);
      const Json cluster = JsonPrinted(flags);
      EXPECT_EQ(cluster["weights_sha256"], serial["weights_sha256"]);
      EXPECT_EQ(cluster["train_loss"], serial["train_loss"]);
    }
  }
}

TEST_F(TrainTest, WithoutAMethod_ChoosesOneForItsWorkers) {
  const ProcessResult result =
      RunProcess(job_.Train({"--set", "pipeline={method: auto, stages: 2}", "--set",
                             "planning={race_seconds: 60}", "--race-until", "1.0", "--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json["stages"], 2);
  EXPECT_EQ(json["state"], "succeeded");
  EXPECT_THAT(result.err, HasSubstr("planned: " + json["method"].get<std::string>() + ","));
  EXPECT_THAT(result.err, HasSubstr("chosen by a race"));
  const ProcessResult named = RunProcess(job_.Train({"--race-until", "1.0"}));
  EXPECT_EQ(named.exit_code, 2);
  EXPECT_THAT(named.err, HasSubstr("the job names its method"));
}

TEST_F(TrainTest, RoundPipe_AnyNumberOfStagesAndWorkers_SameWeightsAsTheReferenceOfOneStage) {
  std::vector<std::string> reference = job_.Train({"--workers", "1"});
  reference.push_back("--reference");
  const Json serial = JsonPrinted(reference);
  const std::string expected = serial["weights_sha256"];
  for (const auto& [stages, workers] : {std::pair{"2", "2"}, {"3", "4"}, {"5", "2"}}) {
    const Json json = JsonPrinted(
        job_.Train({"--method", "roundpipe", "--set", std::string("pipeline.stages=") + stages,
                    "--set", std::string("pipeline.workers=") + workers}));
    EXPECT_EQ(json["weights_sha256"], expected) << stages << " stages on " << workers << " workers";
    EXPECT_EQ(json["stages"], std::stoi(stages));
    EXPECT_EQ(json["block_delay"]["max"], 0);
    for (const char* key : {"steps", "train_loss", "validation_loss"}) {
      EXPECT_EQ(json[key], serial[key]) << key;
    }
  }
}

TEST_F(TrainTest, ScheduleFiles_ShownSearchedOrWrittenByHand_SameWeightsAsTheReference) {
  const std::string expected = Weights(job_.Train({"--reference"}));
  const auto make = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {ProgramPath("penstock"), "schedule"});
    const ProcessResult result = RunProcess(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
  };
  make({"show", "zb-h1", "--stages", "2", "--microbatches", "4", "-o", job_.path("shown.csv")});
  make({"search", "--stages", "2", "--microbatches", "4", "-o", job_.path("searched.txt")});
  job_.Write("by-hand.csv",
             "0F0,0F1,0F2,,0B0,0F3,0B1,,0B2,,0B3\n,1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n");
  std::string pipeline = "method: 1f1b";
  for (const char* file : {"shown.csv", "searched.txt", "by-hand.csv"}) {
    const std::string listed = std::string("schedule_file: ") + file;
    job_.EditJob(pipeline, listed);
    pipeline = listed;
    EXPECT_EQ(Weights(job_.Train()), expected) << file;
  }
  EXPECT_EQ(Weights(job_.Train({"--method", "gpipe", "--workers", "2"})), expected);
}

TEST_F(TrainTest, SearchedOrder_IsFoundAndWritten_SameWeightsAsTheReference) {
  const std::string reference = Weights(job_.Train({"--reference"}));
  EXPECT_EQ(Weights(job_.Train({"--method", "searched", "--workers", "3", "--reference"})),
            reference);
  const std::string file = job_.path("order.csv");
  const ProcessResult run =
      RunProcess(job_.Train({"--method", "searched", "--workers", "3", "--set", "planning={}",
                             "--record", file, "--json"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("schedule_file: \"" + file + "\""));
  const Json json = Json::parse(run.out);
  EXPECT_EQ(json["weights_sha256"], reference);
  EXPECT_EQ(json["method"], "searched");
  EXPECT_EQ(Weights(job_.Train({"--set", "pipeline.method=searched", "--set",
                                "pipeline.schedule_file=order.csv", "--workers", "3"})),
            reference);
}

// The job has 4 microbatches in a step. A measured split would round otherwise with unlike numbers.
TEST_F(TrainTest, SearchedOrderOfReplicas_SameWeightsAsTheReference) {
  for (const bool alike : {true, false}) {
    const auto train = [&](std::vector<std::string> more) {
      more.insert(more.end(), {"--set", "pipeline.stages=2", "--set",
                               alike ? "pipeline.replicas=[2]" : "pipeline.replicas=[2, 1]"});
      return job_.Train(more);
    };
    const std::string reference = Weights(train({"--reference"}));
    EXPECT_EQ(Weights(train({"--method", "searched", "--reference"})), reference);
    std::vector<std::string> records = {"--method", "searched", "--record", job_.path("order.csv")};
    if (alike) records.insert(records.end(), {"--set", "planning={}"});
    EXPECT_EQ(Weights(train(records)), reference);
    EXPECT_EQ(Weights(train({"--method", "searched", "--set", "pipeline.schedule_file=order.csv"})),
              reference);
  }
}

TEST_F(TrainTest, SearchedOrderOfSeveralStagesOnAWorker_SameWeightsAsTheReference) {
  const std::string reference = Weights(job_.Train({"--reference"}));
  const std::vector<std::string> looped = {
      "--method", "searched",          "--set", "pipeline.stages_per_worker=2",
      "--set",    "pipeline.stages=4", "--set", "planning={}"};
  EXPECT_EQ(Weights(job_.Train(looped)), reference);
  std::vector<std::string> serial = looped;
  serial.push_back("--reference");
  EXPECT_EQ(Weights(job_.Train(serial)), reference);
}

TEST_F(TrainTest, StagesThatRecompute_SameWeightsAsWithout) {
  const std::string expected = Weights(job_.Train({"--workers", "2"}));
  for (const char* recompute : {"all", "0"}) {
    const Json json = JsonPrinted(
        job_.Train({"--workers", "2", "--set", std::string("pipeline.recompute=") + recompute}));
    EXPECT_EQ(json["weights_sha256"], expected) << recompute;
    EXPECT_EQ(json["per_stage"][0]["actions"][1]["action"], "SEND_F");
    EXPECT_EQ(json["per_stage"][0]["actions"][3]["action"], "R");
  }
}

TEST_F(TrainTest, LocalSgd_ReportsEveryReplica) {
  const Json json = JsonPrinted(
      job_.Train({"--workers", "2", "--method", "local-sgd", "--timeline", job_.path("steps")}));
  EXPECT_EQ(json["stages"], 2);
  ASSERT_THAT(json["per_stage"], SizeIs(4));
  EXPECT_EQ(json["per_stage"][2]["stage"], 2);
  EXPECT_EQ(json["per_stage"][2]["worker"], json["per_stage"][0]["worker"]);
  EXPECT_EQ(json["per_stage"][2]["layers"], json["per_stage"][0]["layers"]);
  EXPECT_EQ(json["per_stage"][2]["updates"], 2 * 6);
  EXPECT_EQ(json["block_delay"]["max"], 0);
  EXPECT_LT(json["bubble_ratio"], 1.0);
}

TEST_F(TrainTest, Json_IsOneObjectWithTheDocumentedKeysInOrder) {
  const Json json = JsonPrinted(job_.Train({"--workers", "2", "--method", "pipedream"}));
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  EXPECT_EQ(keys, (std::vector<std::string>{"job",
                                            "method",
                                            "stages",
                                            "microbatches",
                                            "steps",
                                            "tokens",
                                            "wall_seconds",
                                            "tokens_per_second",
                                            "train_loss",
                                            "validation_loss",
                                            "weights_sha256",
                                            "bubble_ratio",
                                            "block_delay",
                                            "per_stage",
                                            "job_id",
                                            "state",
                                            "error",
                                            "checkpoint",
                                            "validations",
                                            "extra_cuts",
                                            "recoveries",
                                            "prediction",
                                            "block_delay_measured",
                                            "feedback",
                                            "validation_metrics",
                                            "samples",
                                            "samples_per_second",
                                            "unit",
                                            "attempts",
                                            "growths",
                                            "snapshot_step",
                                            "model_flops_per_second",
                                            "product_flops_per_second",
                                            "mfu"}));
  EXPECT_EQ(json["job"], "tiny");
  EXPECT_EQ(json["method"], "pipedream");
  EXPECT_EQ(json["steps"], 6);
  EXPECT_EQ(json["tokens"], 6 * 16 * 16);
  EXPECT_EQ(json["samples"], 6 * 16);
  EXPECT_EQ(json["unit"], "tokens");
  EXPECT_EQ(json["state"], "succeeded");
  EXPECT_GT(json["model_flops_per_second"], 0);
  EXPECT_GT(json["product_flops_per_second"], json["model_flops_per_second"]);
  EXPECT_GT(json["mfu"], 0);
  EXPECT_GT(json["train_loss"], 0);
  EXPECT_GT(json["validation_loss"], 0);
  EXPECT_THAT(json["validations"], SizeIs(2));
  for (const char* metric : {"accuracy", "top5"}) {
    EXPECT_GT(json["validation_metrics"][metric], 0) << metric;
    EXPECT_EQ(json["validation_metrics"][metric], json["validations"][1][metric]) << metric;
  }
  EXPECT_EQ(json["block_delay"]["max"], 3);  // floor(S^2 - S/2) for S = 2
  EXPECT_EQ(json["block_delay"]["mean"], 1.5);
  ASSERT_THAT(json["per_stage"], SizeIs(2));
  EXPECT_EQ(json["per_stage"][0]["staleness"]["max"], 1);
  EXPECT_EQ(json["per_stage"][1]["staleness"]["max"], 0);
  EXPECT_EQ(json["per_stage"][0]["versions_peak"], 2);
  EXPECT_EQ(json["per_stage"][0]["layers"].get<int>() + json["per_stage"][1]["layers"].get<int>(),
            7);
}

TEST_F(TrainTest, WithoutJson_PrintsASummaryAndNoProgressBar) {
  const ProcessResult result = RunProcess(job_.Train({"--workers", "2"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("tiny: 1f1b on 2 stages, 6 steps"));
  EXPECT_THAT(result.out, HasSubstr("STAGE  WORKER"));
  EXPECT_THAT(result.err, Not(HasSubstr("\r")));
}

TEST_F(TrainTest, Timeline_WritesPictureAndTrace) {
  const ProcessResult result =
      RunProcess(job_.Train({"--workers", "2", "--timeline", job_.path("steps")}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_GT(std::filesystem::file_size(job_.path("steps.svg")), 1000u);
  EXPECT_GT(std::filesystem::file_size(job_.path("steps.trace.json")), 1000u);
}

TEST_F(TrainTest, MeasuredBlockDelay_IsInTheResult) {
  const std::vector<std::string> flags = {"--workers", "2"};
  EXPECT_EQ(JsonPrinted(job_.Train(flags))["block_delay_measured"], (Json{{"max", 0}, {"mean", 0.0}}));
  std::vector<std::string> asynchronous = flags;
  asynchronous.insert(asynchronous.end(), {"--method", "pipedream"});
  // How large it is depends on the moment's timing and on how well two clocks agree, on a busy machine worse than
  // a microbatch is long; what is counted is tested on timelines that are known (block_delay_meter_test).
  Json measured = {{"max", 0}, {"mean", 0.0}};
  for (int attempt = 0; attempt < 3 && measured["max"] == 0; ++attempt) {
    measured = JsonPrinted(job_.Train(asynchronous))["block_delay_measured"];
  }
  EXPECT_GE(measured["max"], 1);
  EXPECT_GT(measured["mean"], 0.0);
}

TEST_F(TrainTest, Timeline_ThatCannotBeWrittenInTheEnd_DoesNotCostTheResult) {
  std::filesystem::create_symlink("/dev/full", job_.path("steps.svg"));
  const ProcessResult result =
      RunProcess(job_.Train({"--workers", "2", "--timeline", job_.path("steps"), "--json"}));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(Json::parse(result.out, nullptr, /*allow_exceptions=*/false)["state"], "succeeded");
  EXPECT_THAT(result.err, HasSubstr("cannot write " + job_.path("steps.svg")));
}

// Nobody would start the worker again: its cluster ends with it.
TEST_F(TrainTest, WorkerKilled_FailsWithinSecondsWithItsName) {
  std::vector<std::string> arguments = EndlessTrain(job_);
  arguments.push_back("--json");
  Process train(arguments);
  ASSERT_TRUE(Eventually([&] { return HasCheckpoint(job_); }, kMinute)) << train.err();
  const std::vector<pid_t> workers = FindProcesses("penstock-worker --coordinator");
  pid_t victim = 0;
  for (const pid_t pid : job_.Processes()) {
    if (std::count(workers.begin(), workers.end(), pid) > 0) victim = pid;
  }
  ASSERT_NE(victim, 0);
  kill(victim, SIGKILL);
  const ProcessResult result = train.Wait(std::chrono::seconds(10));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(Json::parse(result.out)["state"], "failed");
  EXPECT_THAT(result.err, HasSubstr("worker-"));
  EXPECT_THAT(job_.Processes(), IsEmpty());
}

TEST_F(TrainTest, KilledAtRandomMoments_LeavesNothing_AndResumesToTheSameWeights) {
  constexpr int kKills = 20;
  const auto train = [&](const std::string& directory) {
    return job_.Train({"--workers", "2", "--steps", "200", "--set", "checkpoint.every_steps=40",
                       "--set", "validation.every_steps=0", "--resume", "latest", "--set",
                       "checkpoint.directory=" + directory});
  };
  const auto start = std::chrono::steady_clock::now();
  const std::string undisturbed = Weights(train(job_.path("undisturbed")));
  const std::chrono::duration<double> length = std::chrono::steady_clock::now() - start;
  const unsigned int seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> moment(0, length.count());
  for (int i = 0; i < kKills; ++i) {
    std::filesystem::remove_all(job_.checkpoints());
    Process killed(train(job_.checkpoints()));
    std::this_thread::sleep_for(std::chrono::duration<double>(moment(random)));
    killed.Signal(SIGKILL);
    killed.Wait(kMinute);
    ASSERT_TRUE(Eventually([&] { return job_.Processes().empty(); })) << "run " << i;
    ASSERT_TRUE(Eventually([] { return NoChildren(); })) << "the supervisor has not ended";
    for (const std::string& name : job_.Checkpoints()) ASSERT_THAT(name, Not(HasSubstr(".tmp-")));
    ASSERT_EQ(Weights(train(job_.checkpoints())), undisturbed) << "run " << i;
    const std::vector<Json> records = StepRecords(job_.checkpoints());
    for (size_t at = 1; at < records.size(); ++at) {
      ASSERT_LT(records[at - 1]["step"], records[at]["step"]) << "run " << i;
    }
  }
}

TEST_F(TrainTest, Interrupted_DrainsSavesAndReports) {
  std::vector<std::string> arguments = EndlessTrain(job_);
  arguments.push_back("--json");
  Process train(arguments);
  ASSERT_TRUE(Eventually([&] { return HasCheckpoint(job_); }, kMinute)) << train.err();
  train.Signal(SIGINT);
  const ProcessResult result = train.Wait(std::chrono::seconds(20));
  EXPECT_EQ(result.exit_code, 130) << result.err;
  const Json json = Json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(json.is_object()) << result.out;
  EXPECT_EQ(json["state"], "cancelled");
  ASSERT_THAT(json["extra_cuts"], SizeIs(1));
  EXPECT_EQ(json["extra_cuts"][0], json["steps"]);
  EXPECT_THAT(json["checkpoint"].get<std::string>(), HasSubstr(job_.checkpoints()));
  EXPECT_THAT(job_.Processes(), IsEmpty());
}

TEST_F(TrainTest, Interrupted_ThenResumed_EqualsTheReferenceWithThatCut) {
  for (const std::string method : {"pipedream", "rpd"}) {
    SCOPED_TRACE(method);
    const JobDirectory directory;
    const std::vector<std::string> arguments = directory.Train(
        {"--method", method, "--workers", "2", "--steps", "600", "--set",
         "validation.every_steps=0", "--set", "checkpoint.every_steps=200", "--set",
         "checkpoint.directory=" + directory.checkpoints(), "--resume", "latest", "--json"});
    Process train(arguments);
    ASSERT_TRUE(Eventually([&] { return HasCheckpoint(directory); }, kMinute)) << train.err();
    train.Signal(SIGINT);
    const ProcessResult drained = train.Wait(std::chrono::seconds(20));
    const Json cuts = Json::parse(drained.out)["extra_cuts"];
    ASSERT_THAT(cuts, SizeIs(1)) << drained.err;
    const std::string resumed = Weights(arguments);
    std::vector<std::string> reference = arguments;
    reference.insert(reference.end(), {"--reference", "--extra-cuts", cuts[0].dump()});
    EXPECT_EQ(resumed, Weights(reference)) << "drained after step " << cuts;
  }
}

TEST_F(TrainTest, RecordedOrder_IsReplayedByTheReference) {
  job_.Write("device.yaml",
             "model: {forward_ms: 6, backward_input_ms: 6, backward_weight_ms: 6}\njitter: 0.9\n");
  for (const char* method : {"1f1b", "pipedream", "paci"}) {
    const std::vector<std::string> flags = {"--method", method,  "--workers",
                                            "3",        "--set", "pipeline.order=recorded"};
    std::vector<std::string> train = job_.Train(flags);
    train.insert(train.end(),
                 {"--record", job_.path("order.txt"), "--emulate", job_.path("device.yaml")});
    std::vector<std::string> reference = job_.Train(flags);
    reference.insert(reference.end(), {"--reference", "--recorded", job_.path("order.txt")});
    const Json recorded = JsonPrinted(train);
    const Json replayed = JsonPrinted(reference);
    EXPECT_EQ(recorded["weights_sha256"], replayed["weights_sha256"]) << method;
    EXPECT_EQ(recorded["validations"], replayed["validations"]) << method;
    EXPECT_TRUE(recorded["block_delay"].is_null());
    EXPECT_TRUE(recorded["prediction"].is_null());
  }
}

TEST_F(TrainTest, RecordedOrder_InterruptedThenResumed_IsReplayedFromBothFiles) {
  const std::vector<std::string> arguments =
      job_.Train({"--method", "pipedream", "--workers", "2", "--steps", "600", "--set",
                  "pipeline.order=recorded", "--set", "validation.every_steps=0", "--set",
                  "checkpoint.every_steps=200", "--set",
                  "checkpoint.directory=" + job_.checkpoints(), "--resume", "latest", "--json"});
  std::vector<std::string> first = arguments;
  first.insert(first.end(), {"--record", job_.path("first.txt")});
  Process train(first);
  ASSERT_TRUE(Eventually([&] { return HasCheckpoint(job_); }, kMinute)) << train.err();
  train.Signal(SIGINT);
  const ProcessResult drained = train.Wait(std::chrono::seconds(20));
  const Json cuts = Json::parse(drained.out)["extra_cuts"];
  ASSERT_THAT(cuts, SizeIs(1)) << drained.err;
  std::vector<std::string> second = arguments;
  second.insert(second.end(), {"--record", job_.path("second.txt")});
  const std::string resumed = Weights(second);
  std::vector<std::string> reference = arguments;
  reference.insert(reference.end(), {"--reference", "--extra-cuts", cuts[0].dump(), "--recorded",
                                     job_.path("first.txt") + "," + job_.path("second.txt")});
  EXPECT_EQ(resumed, Weights(reference)) << "drained after step " << cuts;
}

TEST_F(TrainTest, CheckpointDirectoryAlone_KeepsTheModelOfTheEnd) {
  const std::string kept =
      Weights(job_.Train({"--set", "checkpoint.directory=" + job_.checkpoints()}));
  ASSERT_THAT(job_.Checkpoints(), SizeIs(1));
  EXPECT_EQ(JsonPrinted({ProgramPath("penstock"), "export", job_.checkpoints(), "-o",
                     job_.path("model")})["weights_sha256"],
            kept);
  const std::vector<Json> records = StepRecords(job_.checkpoints());
  ASSERT_THAT(records, SizeIs(6));
  for (size_t at = 0; at < records.size(); ++at) {
    EXPECT_EQ(records[at]["step"], at + 1);
    EXPECT_GT(records[at]["loss"], 0);
    EXPECT_GT(records[at]["learning_rate"], 0);
    EXPECT_EQ(records[at]["validation_loss"].is_number(), at % 3 == 2);
    EXPECT_EQ(records[at]["tokens_per_second"].is_number(), at > 0);
    EXPECT_EQ(records[at]["attempt"], 1);
  }
}

TEST_F(TrainTest, LossThatIsNotFinite_FailsWithStepAndStage_AndKeepsTheLastCheckpoint) {
  const std::vector<std::string> checkpoints = {"--set", "checkpoint.every_steps=2", "--set",
                                                "checkpoint.directory=" + job_.checkpoints()};
  const std::string good = Weights(job_.Train(checkpoints));
  ASSERT_THAT(job_.Checkpoints(), Not(IsEmpty()));
  const std::string newest = job_.Checkpoints().back();
  std::vector<std::string> diverging = job_.Train(checkpoints);
  diverging.insert(diverging.end(), {"--json", "--resume", "latest", "--steps", "20", "--set",
                                     "training.optimizer.adamw.learning_rate=1e30", "--set",
                                     "validation.every_steps=0"});
  const ProcessResult result = RunProcess(diverging);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("step 7"));
  EXPECT_THAT(result.err, HasSubstr("stage "));
  EXPECT_EQ(Json::parse(result.out)["state"], "failed");
  EXPECT_THAT(job_.Checkpoints(), Contains(newest));
  EXPECT_EQ(JsonPrinted({ProgramPath("penstock"), "export", job_.checkpoints() + "/" + newest, "-o",
                     job_.path("model")})["weights_sha256"],
            good);
}

TEST_F(TrainTest, InterruptedTwice_StopsAtOnce) {
  Process train(EndlessTrain(job_));
  ASSERT_TRUE(Eventually([&] { return HasCheckpoint(job_); }, kMinute)) << train.err();
  train.Signal(SIGINT);
  train.Signal(SIGTERM);
  const ProcessResult result = train.Wait(std::chrono::seconds(10));
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_TRUE(Eventually([&] { return job_.Processes().empty(); }));
}

TEST(Train, Metrics_InterruptedWait_EndsAtOnce) {
  const JobDirectory job;
  Process train(job.Train({"--workers", "1", "--metrics", "127.0.0.1:0", "--json"}));
  ASSERT_TRUE(Eventually([&] { return Json::accept(train.out()); }, kMinute)) << train.err();
  train.Signal(SIGINT);
  EXPECT_EQ(train.Wait(std::chrono::seconds(10)).exit_code, 0) << "the job itself is done";
  EXPECT_THAT(job.Processes(), IsEmpty());
}

}  // namespace
}  // namespace penstock
