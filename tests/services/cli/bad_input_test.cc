// Bad input of every kind: exit code 2, one clear line, nothing left running.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/services/cli/job_directory.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class BadInputTest : public ::testing::Test {
 protected:
  // Runs a command that must be refused, with `expected` in its one line.
  void ExpectRefused(const std::vector<std::string>& arguments, const std::string& expected) {
    const ProcessResult result = RunProcess(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(expected));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(job_.Processes(), IsEmpty());
  }
  void ExpectTrainRefused(const std::vector<std::string>& flags, const std::string& expected) {
    ExpectRefused(job_.Train(flags), expected);
  }
  // Trains with checkpoints, for tests that damage them. Returns the newest one's directory.
  std::string TrainCheckpoint() {
    const ProcessResult result = RunProcess(job_.Train(WithCheckpoints()));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::vector<std::string> checkpoints = job_.Checkpoints();
    if (checkpoints.empty()) {
      ADD_FAILURE() << "no checkpoint was written";
      return job_.checkpoints();
    }
    return job_.checkpoints() + "/" + checkpoints.back();
  }
  std::vector<std::string> WithCheckpoints(const std::vector<std::string>& more = {}) {
    std::vector<std::string> flags = {"--set", "checkpoint.every_steps=6", "--set",
                                      "checkpoint.directory=" + job_.checkpoints()};
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  }

  JobDirectory job_;
};

TEST_F(BadInputTest, Usage_EachMistake_IsNamed) {
  const std::string penstock = ProgramPath("penstock");
  ExpectRefused({penstock, "trian"}, "did you mean train?");
  ExpectRefused({penstock, "train"}, "JOB.yaml");
  ExpectRefused({penstock, "methods", "--jsn"}, "did you mean --json?");
  ExpectRefused({penstock, "health", "here"}, "ADDRESS");
  ExpectRefused({penstock, "simulate", "--method", "gpip"}, "did you mean gpipe?");
  ExpectRefused({penstock, "simulate", "--method", "1f1b", "--stages", "0"}, "--stages");
  ExpectRefused({penstock, "simulate", "--method", "1f1b", "--forward", "1,2"}, "--forward");
  ExpectRefused({penstock, "simulate", "--method", "gpipe", "--microbatches", "1000000000"},
                "a step of 1000000000 microbatches on 4 stages is too long");
  ExpectRefused({penstock, "schedule", "show", "1f1b", "--expand", "--steps", "1000000000"},
                "--expand: ");
  ExpectRefused({penstock, "simulate", "--method", "1f1b", "--forward", "-1"}, "forward");
  ExpectRefused({penstock, "schedule", "search", "--memory", "0"}, "--memory");
  ExpectRefused({penstock, "schedule", "search", "--memory", "4,4"}, "--memory: has 2 numbers");
  ExpectRefused({penstock, "schedule", "search", "--stages-per-worker", "3"}, "not a multiple");
  ExpectRefused({penstock, "list", "--coordinator", "nowhere"}, "HOST:PORT");
  ExpectRefused({penstock, "schedule", "verify", "/no/such/file"}, "neither a method nor a file");
  ExpectRefused({penstock, "compare", "--results", job_.job()}, "job.yaml");
  ExpectRefused({penstock, "logs", "a\xFF"}, "argument 2, \"a\\xff\", is not UTF-8 text");
  ExpectRefused({penstock, "generate", "/no/such/checkpoint"}, "/no/such/checkpoint");
  ExpectRefused({penstock, "export", job_.path(), "-o", job_.path("out")}, job_.path());
}

TEST_F(BadInputTest, JobFile_EachMistake_IsNamedWithLineAndColumn) {
  ExpectRefused({ProgramPath("penstock"), "train", job_.path("none.yaml")}, "none.yaml");
  job_.EditJob("steps: 6", "stepz: 6");
  ExpectTrainRefused({}, "job.yaml:7:3: training.stepz: unknown key; did you mean steps?");
  job_.EditJob("stepz: 6", "steps: many");
  ExpectTrainRefused(
      {}, "job.yaml:7:10: training.steps: expected a whole number from 1 to 100000000, got many");
  job_.EditJob("steps: many", "steps: 6");
  job_.EditJob("microbatches: 4", "microbatches: 5");
  ExpectTrainRefused({}, "training.microbatches");
  job_.EditJob("microbatches: 5", "microbatches: 4");
  job_.EditJob("method: 1f1b", "method: 1f2b");
  ExpectTrainRefused({}, "1f2b");
}

TEST_F(BadInputTest, JobFile_ThatIsNone_IsRefusedAtOnce) {
  ASSERT_EQ(mkfifo(job_.path("pipe").c_str(), 0600), 0);
  ExpectRefused({ProgramPath("penstock"), "train", job_.path("pipe")}, "pipe or device");
  ExpectRefused({ProgramPath("penstock"), "train", job_.path()}, "is a directory");
  std::ofstream(job_.path("large.yaml")) << std::string((1 << 20) + 1, '#');
  ExpectRefused({ProgramPath("penstock"), "train", job_.path("large.yaml")}, "more than the limit");
}

TEST_F(BadInputTest, Flags_ThatDoNotFitTheJob_AreNamed) {
  ExpectTrainRefused({"--set", "training.stepz=3"}, "--set training.stepz=3: ");
  ExpectTrainRefused({"--workers", "99"}, "--workers 99: pipeline.stages: is 99");
  ExpectTrainRefused({"--workers", "2", "--set", "pipeline.stages=4"}, "pipeline.stages");
  ExpectTrainRefused({"--method", "local-sgd", "--workers", "3"},
                     "as many as there are replicas; got 4; 3 or 6 would do");
  ExpectTrainRefused({"--method", "local-sgd", "--set", "pipeline.replicas=0"},
                     "pipeline.replicas: is 0");
  ExpectTrainRefused({"--method", "local-sgd", "--set", "pipeline.local_steps=3"},
                     "pipeline.local_steps: is 3, which does not divide training.microbatches (4)");
  ExpectTrainRefused(
      {"--method", "roundpipe", "--set", "pipeline.replicas=2"},
      "pipeline.replicas: is not for roundpipe, which takes every stage round all of "
      "its workers");
  ExpectTrainRefused({"--set", "pipeline.replicas=[3, 1]"},
                     "training.microbatches: is 4, but with pipeline.replicas 3,1 a step needs a "
                     "multiple of 3");
  ExpectTrainRefused({"--workers", "2", "--set", "pipeline.replicas=[2, 1]"},
                     "which takes 3 workers, more than --workers 2; give --workers 3");
  ExpectTrainRefused({"--workers", "3", "--set", "pipeline.replicas=2"},
                     "--workers 3 is not a multiple of pipeline.replicas, 2, the workers of each "
                     "stage; 2 or 4 would do");
  ExpectTrainRefused({"--method", "roundpipe", "--workers", "2", "--set", "pipeline.stages=4"},
                     "pipeline.stages: is 4, which takes 4 workers, more than --workers 2; give "
                     "--workers 4 or --set pipeline.workers=2");
  ExpectTrainRefused({"--method", "roundpipe", "--workers", "2", "--set", "pipeline.stages=3",
                      "--set", "pipeline.workers=4"},
                     "pipeline.workers: is 4, which takes 4 workers, more than --workers 2");
  ExpectTrainRefused({"--set", "pipeline.stages_per_forward=2"},
                     "pipeline.stages_per_forward: is not for ");
  ExpectRefused(
      {ProgramPath("penstock"), "simulate", "--method", "1f1b", "--stages-per-forward", "2"},
      "--stages-per-forward is not for 1f1b");
  ExpectRefused({ProgramPath("penstock"), "simulate", "--method", "1f1b", "--stages", "3",
                 "--replicas", "2,1"},
                "--replicas has 2 numbers, but --stages is 3");
  ExpectTrainRefused(
      {"--method", "roundpipe", "--workers", "3"},
      "training.microbatches: roundpipe: needs fewer microbatches in a step than the 3 "
      "workers, or a multiple of them, so that each has as many in every round; got 4; "
      "3 or 6 would do");
  ExpectTrainRefused(
      {"--method", "roundpipe", "--set", "pipeline.stages=2", "--set", "pipeline.workers=4"},
      "pipeline.stages: roundpipe: 2 stages make 3 slots, the way there and back, "
      "which are not enough to go round 4 workers; 3 stages or 3 workers would do");
  ExpectTrainRefused({"--method", "roundpipe", "--set", "pipeline.workers=4"},
                     "pipeline.workers: needs pipeline.stages");
  ExpectTrainRefused({"--set", "pipeline.stages=2", "--set", "pipeline.workers=2"},
                     "pipeline.workers: is not for 1f1b");
  ExpectTrainRefused({"--method", "roundpipe", "--set", "pipeline.recompute=none"},
                     "pipeline.recompute: is no choice with roundpipe");
  ExpectRefused({ProgramPath("penstock"), "simulate", "--method", "1f1b", "--workers", "4"},
                "--workers is not for 1f1b");
  ExpectTrainRefused({"--method", "roundpipe", "--set", "pipeline.weights=stash"},
                     "roundpipe cannot have the weights \"stash\"");
  ExpectTrainRefused({"--method", "roundpipe", "--set", "pipeline.order=recorded"},
                     "pipeline.order: cannot be recorded with roundpipe");
  ExpectTrainRefused({"--method", "roundpipe", "--set", "pipeline.replicas=2"},
                     "pipeline.replicas: is not for roundpipe");
  ExpectTrainRefused({"--workers", "0"}, "--workers");
  ExpectTrainRefused({"--method", "pipedream", "--set", "model.gpt.tied_head=true"}, "tied");
  ExpectTrainRefused({"--method", "pipedream", "--set", "training.clip={global_norm: 1.0}"},
                     "global_norm");
  ExpectTrainRefused({"--extra-cuts", "3"}, "--reference");
  ExpectTrainRefused({"--reference", "--timeline", job_.path("t")}, "--timeline");
}

TEST_F(BadInputTest, RecordedOrder_WhereItCannotBe_IsRefused) {
  const std::string recorded = "pipeline.order=recorded";
  ExpectTrainRefused({"--set", "pipeline.order=dynamic"}, "pipeline.order");
  ExpectTrainRefused({"--set", recorded, "--method", "zb-h1"}, "cannot be recorded with zb-h1");
  ExpectTrainRefused({"--record", job_.path("order.txt")}, "--set pipeline.order=recorded");
  ExpectTrainRefused({"--set", recorded, "--record", job_.path("none/order.txt")},
                     "--record: cannot write");
  ExpectTrainRefused({"--recorded", job_.path("order.txt")}, "--reference");
  ExpectTrainRefused({"--reference", "--set", recorded}, "recorded order: is missing");
  ExpectTrainRefused({"--reference", "--set", recorded, "--recorded", job_.path("none.txt")},
                     "none.txt");
  job_.Write("order.txt", "penstock-order 1\nmethod 1f1b\n");
  ExpectTrainRefused({"--reference", "--set", recorded, "--recorded", job_.path("order.txt")},
                     "order.txt: line 3: expected more lines and then \"end\"");
  job_.Write("order.txt",
             "penstock-order 1\nmethod gpipe\nmicrobatches 4\nstage 0 worker 0 layers 0+1\nend\n");
  ExpectTrainRefused({"--reference", "--set", recorded, "--recorded", job_.path("order.txt")},
                     "is of another job: method gpipe");
  ExpectRefused({ProgramPath("penstock"), "compare", job_.job(), "--methods", "1f1b,gpipe", "--set",
                 recorded, "--set", "validation.every_steps=2", "-o", job_.path("results")},
                "pipeline.order: is recorded");
}

TEST_F(BadInputTest, Timeline_ThatCannotBeWritten_IsNamedBeforeAnythingRuns) {
  const std::string missing = job_.path("none/steps");
  ExpectTrainRefused({"--timeline", missing}, "--timeline: cannot write " + missing + ".svg");
  ExpectTrainRefused({"--timeline", job_.job() + "/steps"}, "job.yaml/steps.svg");
  std::filesystem::create_directory(job_.path("steps.svg"));
  ExpectTrainRefused({"--timeline", job_.path("steps")}, "steps.svg: Is a directory");
}

TEST_F(BadInputTest, Text_MissingEmptyOrTooShort_IsNamed) {
  ExpectTrainRefused({"--data", job_.path("none.txt")}, "none.txt does not exist");
  ExpectTrainRefused({"--data", job_.path()}, "is not a file");
  job_.Write("empty.txt", "");
  ExpectTrainRefused({"--data", job_.path("empty.txt")}, "empty.txt is empty");
  job_.Write("short.txt", "too short");
  ExpectTrainRefused({"--data", job_.path("short.txt")}, "short.txt");
}

TEST_F(BadInputTest, Text_OfAnotherDigest_IsNamed) {
  const std::vector<std::string> pinned = {"--set", "data.text.sha256=" + std::string(64, 'a')};
  ExpectTrainRefused(pinned, "data.text.sha256: " + job_.path("input.txt"));
  std::vector<std::string> submit = {ProgramPath("penstock"), "submit", job_.job()};
  submit.insert(submit.end(), pinned.begin(), pinned.end());
  ExpectRefused(submit, "data.text.sha256: " + job_.path("input.txt"));
}

TEST_F(BadInputTest, Submit_WhatThisMachineKnowsBetter_IsRefusedWithoutACoordinator) {
  const std::string penstock = ProgramPath("penstock");
  ExpectRefused({penstock, "submit", job_.job(), "--data", "none.txt"},
                "--data none.txt: is not there; a relative path starts from this directory");
  ExpectRefused({penstock, "submit", job_.job(), "--resume", "none/step-1"},
                "--resume none/step-1: is not there");
  job_.Write("input.txt", "too short");
  ExpectRefused({penstock, "submit", job_.job()}, job_.path("input.txt") + " is too short");
}

TEST_F(BadInputTest, Submit_RelativeCheckpointPath_IsNamed) {
  const std::string penstock = ProgramPath("penstock");
  ExpectRefused({penstock, "submit", job_.job(), "--set", "checkpoint.directory=kept"},
                "checkpoint.directory: kept is relative");
  ExpectRefused({penstock, "submit", job_.job(), "--set", "checkpoint.resume=kept/step-1"},
                "checkpoint.resume: kept/step-1 is relative");
  ExpectRefused({penstock, "submit", job_.job(), "--set", "step_records.directory=kept"},
                "step_records.directory: kept is relative");
}

TEST_F(BadInputTest, Checkpoints_OfAnEarlierJob_AreNotWrittenAmong) {
  TrainCheckpoint();
  ExpectTrainRefused(WithCheckpoints(), "checkpoint.directory: " + job_.checkpoints());
  std::vector<std::string> reference = job_.Train(WithCheckpoints({"--reference"}));
  EXPECT_EQ(RunProcess(reference).exit_code, 0) << "the reference writes none";
}

TEST_F(BadInputTest, Resume_CheckpointBeyondTheLastStep_IsNamedWithBothSteps) {
  const std::string directory = TrainCheckpoint();
  for (const std::string& resume : {std::string("latest"), directory}) {
    ExpectTrainRefused(WithCheckpoints({"--resume", resume, "--steps", "5"}),
                       directory + " is at step 6, beyond training.steps (5)");
  }
}

TEST_F(BadInputTest, Resume_MissingCheckpoint_IsNamed) {
  ExpectTrainRefused({"--resume", job_.path("none")}, job_.path("none"));
}

TEST_F(BadInputTest, Resume_TruncatedFile_IsNamed) {
  const std::string directory = TrainCheckpoint();
  const std::string file = directory + "/layer-001-h.0.attention.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  ExpectTrainRefused({"--resume", directory}, "layer-001-h.0.attention.safetensors");
  ExpectRefused({ProgramPath("penstock"), "generate", directory},
                "layer-001-h.0.attention.safetensors");
  ExpectRefused({ProgramPath("penstock"), "export", directory, "-o", job_.path("out")},
                "layer-001-h.0.attention.safetensors");
  EXPECT_FALSE(std::filesystem::exists(job_.path("out")));
}

TEST_F(BadInputTest, Resume_TamperedFile_IsNamed) {
  const std::string directory = TrainCheckpoint();
  std::fstream file(directory + "/layer-000-embedding.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-3, std::ios::end);
  file.put('\x5a');
  file.close();
  ExpectTrainRefused({"--resume", directory}, "layer-000-embedding.safetensors");
}

TEST_F(BadInputTest, Resume_TamperedManifest_IsNamed) {
  const std::string directory = TrainCheckpoint();
  std::fstream file(directory + "/MANIFEST.json", std::ios::in | std::ios::out);
  std::string text(std::istreambuf_iterator<char>(file), {});
  const size_t at = text.find("\"step\"");
  ASSERT_NE(at, std::string::npos);
  file.clear();
  file.seekp(static_cast<std::streamoff>(text.find('6', at)));
  file.put('7');
  file.close();
  ExpectTrainRefused({"--resume", directory}, "MANIFEST.json");
}

TEST_F(BadInputTest, Resume_CheckpointOfAnotherModel_SaysWhatDiffers) {
  TrainCheckpoint();
  ExpectTrainRefused(WithCheckpoints({"--resume", "latest", "--set", "model.gpt.width=64"}),
                     "model.width");
  ExpectTrainRefused(WithCheckpoints({"--resume", "latest", "--set", "training.seed=2"}),
                     "training.seed");
}

TEST_F(BadInputTest, Schedule_ThatBreaksARule_IsRefused) {
  job_.Write(
      "bad.csv",
      "0F0,0SEND_F0,0RECV_B0,0I0,0W0,0UPDATE,FLUSH\n1RECV_F0,1I0,1F0,1W0,1SEND_B0,1UPDATE,FLUSH\n");
  const ProcessResult result =
      RunProcess({ProgramPath("penstock"), "schedule", "verify", job_.path("bad.csv")});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("1I0"));
}

TEST_F(BadInputTest, ScheduleFile_OfAJob_IsNamedWithItsPlace) {
  job_.EditJob("method: 1f1b", "schedule_file: step.csv");
  ExpectTrainRefused({}, "job.yaml:15:3: pipeline.schedule_file: ");
  job_.Write("step.csv", "0F0,0F1\n1F0,1F1,1B0,1B1\n");
  const ProcessResult result = RunProcess(job_.Train());  // with the grid below the first line
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("job.yaml:15:3: pipeline.schedule_file: worker 0: 0UPDATE"));
  EXPECT_THAT(result.err, HasSubstr("-->  0UPDATE"));
}

TEST_F(BadInputTest, Health_OfNobody_FailsWithTheAddress) {
  const ProcessResult result = RunProcess({ProgramPath("penstock"), "health", "127.0.0.1:1"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("127.0.0.1:1"));
  EXPECT_EQ(result.out, "");
}

TEST_F(BadInputTest, Coordinator_NotThere_SaysAddressAndWhatToDo) {
  const ProcessResult result =
      RunProcess({ProgramPath("penstock"), "list", "--coordinator", "127.0.0.1:1", "--insecure"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("127.0.0.1:1"));
  EXPECT_THAT(result.err, HasSubstr("penstock-coordinator"));
}

}  // namespace
}  // namespace penstock
