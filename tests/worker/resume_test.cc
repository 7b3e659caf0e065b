// Checkpoints of real runs: saved by some number of stages, loaded by another, and damaged.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "job/resolve.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kSavedStep = 2;

class Resume : public ::testing::Test {
 protected:
  Resume() { AddTestText(files_); }

  // 4 steps with a checkpoint, and so a cut, after 2.
  static v1::JobSpec Job(const std::string& method, bool tied = false) {
    v1::JobSpec spec = SmallJob(method);
    spec.mutable_model()->mutable_gpt()->set_tied_head(tied);
    spec.mutable_training()->set_steps(4);
    spec.mutable_checkpoint()->set_every_steps(kSavedStep);
    spec.mutable_checkpoint()->set_directory(kCheckpointRoot);
    return spec;
  }

  // Trains to the end and commits the checkpoint of kSavedStep. Returns its directory.
  absl::StatusOr<std::string> Save(const v1::JobSpec& spec, int stages,
                                   Trained* trained = nullptr) {
    TestCluster cluster({.spec = spec, .layers = EvenSplit(kLayers, stages)}, files_);
    if (!cluster.prepared().ok()) return cluster.prepared();
    cluster.Start();
    for (const absl::Status& status : cluster.Join()) {
      if (!status.ok()) return status;
    }
    if (trained != nullptr) {
      *trained = {cluster.Steps(), cluster.Validations(), cluster.WeightsSha256(), {}};
    }
    return cluster.CommitCheckpoint(kSavedStep);
  }

  ClusterOptions Continue(const v1::JobSpec& spec, int stages, const std::string& directory) {
    return {.spec = spec,
            .layers = EvenSplit(kLayers, stages),
            .first_step = kSavedStep,
            .checkpoint = directory};
  }

  MemoryFiles files_;
};

TEST_F(Resume, Synchronous_FromAnyNumberOfStagesIntoAny_IsBitEqual) {
  for (const bool tied : {false, true}) {
    const v1::JobSpec spec = Job("1f1b", tied);
    for (const int saved_by : {1, 2, 3, 5}) {
      Trained whole;
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, Save(spec, saved_by, &whole));
      for (const int loaded_by : {1, 2, 3, 5}) {
        SCOPED_TRACE(absl::StrCat("tied ", tied, ", ", saved_by, " -> ", loaded_by));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained resumed,
                                      TrainCluster(Continue(spec, loaded_by, directory), files_));
        ASSERT_EQ(resumed.steps.size(), 2u);
        EXPECT_EQ(resumed.steps[0].loss, whole.steps[2].loss);
        EXPECT_EQ(resumed.steps[1].loss, whole.steps[3].loss);
        EXPECT_EQ(resumed.steps[1].learning_rate, whole.steps[3].learning_rate);
        EXPECT_EQ(resumed.weights_sha256, whole.weights_sha256);
      }
      ASSERT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
    }
  }
}

// Some of its workers update nothing, and so write nothing; a synchronous method can go on from it
// on any stages.
TEST_F(Resume, RoundPipe_OnAnyWorkers_AndAsAnotherMethod_IsBitEqual) {
  const auto on = [](int stages, int workers) {
    v1::JobSpec spec = Job("roundpipe");
    spec.mutable_training()->set_microbatches(12);
    spec.mutable_training()->set_batch(12);
    spec.mutable_pipeline()->set_stages(stages);
    spec.mutable_pipeline()->set_workers(workers);
    return spec;
  };
  for (const auto& [saved_stages, saved_workers] : {std::pair{2, 3}, {3, 2}, {4, 6}, {5, 4}}) {
    Trained whole;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory,
                                  Save(on(saved_stages, saved_workers), saved_stages, &whole));
    for (const auto& [stages, workers] : {std::pair{1, 1}, {3, 4}, {5, 3}}) {
      SCOPED_TRACE(
          absl::StrCat(saved_stages, " on ", saved_workers, " -> ", stages, " on ", workers));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          const Trained resumed,
          TrainCluster(Continue(on(stages, workers), stages, directory), files_));
      ASSERT_EQ(resumed.steps.size(), 2u);
      EXPECT_EQ(resumed.steps[1].loss, whole.steps[3].loss);
      EXPECT_EQ(resumed.weights_sha256, whole.weights_sha256);
    }
    v1::JobSpec other = on(3, 3);
    other.mutable_pipeline()->set_method("1f1b");
    other.mutable_pipeline()->clear_workers();
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained resumed,
                                  TrainCluster(Continue(other, 3, directory), files_));
    EXPECT_EQ(resumed.weights_sha256, whole.weights_sha256);
    ASSERT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
  }
}

TEST_F(Resume, PipeDream_SameStages_EqualsTheUninterruptedRun) {
  const v1::JobSpec spec = Job("pipedream");
  for (const int stages : {1, 2, 3, 5}) {
    Trained whole;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, Save(spec, stages, &whole));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained resumed,
                                  TrainCluster(Continue(spec, stages, directory), files_));
    EXPECT_EQ(resumed.weights_sha256, whole.weights_sha256) << stages << " stages";
    ASSERT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
  }
}

// What is drawn goes on where it was, and so do the numbers that bias corrections and rounding
// count by, which are other ones on every stage.
TEST_F(Resume, Rpd_SameStages_EqualsTheUninterruptedRun) {
  for (const int64_t synchronous_steps : {0, 1}) {
    v1::JobSpec spec = Job("rpd");
    spec.mutable_pipeline()->set_synchronous_steps(synchronous_steps);
    spec.mutable_training()->set_precision("bf16");
    spec.mutable_training()->set_rounding("stochastic");
    for (const int stages : {1, 2, 4, 5}) {
      SCOPED_TRACE(absl::StrCat(stages, " stages, synchronous steps ", synchronous_steps));
      Trained whole;
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, Save(spec, stages, &whole));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained resumed,
                                    TrainCluster(Continue(spec, stages, directory), files_));
      EXPECT_EQ(resumed.weights_sha256, whole.weights_sha256);
      ASSERT_EQ(resumed.steps.size(), 2u);
      EXPECT_EQ(resumed.steps[1].loss, whole.steps[3].loss);
      ASSERT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
    }
  }
}

// At a cut all replicas hold the same weights and optimizer state, which are stored once.
TEST_F(Resume, LocalSgd_FromAnyNumberOfStagesIntoAny_IsBitEqual) {
  for (const bool tied : {false, true}) {
    v1::JobSpec spec = Job("local-sgd", tied);
    spec.mutable_pipeline()->add_replicas(2);
    for (const int saved_by : {1, 3}) {
      Trained whole;
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, Save(spec, saved_by, &whole));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Manifest manifest, VerifyCheckpoint(files_, directory));
      EXPECT_EQ(manifest.files.size(), 2u * kLayers);
      EXPECT_EQ(manifest.updates, kSavedStep * 2);
      for (const int loaded_by : {1, 2, 5}) {
        SCOPED_TRACE(absl::StrCat("tied ", tied, ", ", saved_by, " -> ", loaded_by));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained resumed,
                                      TrainCluster(Continue(spec, loaded_by, directory), files_));
        ASSERT_EQ(resumed.steps.size(), 2u);
        EXPECT_EQ(resumed.steps[0].loss, whole.steps[2].loss);
        EXPECT_EQ(resumed.steps[1].loss, whole.steps[3].loss);
        EXPECT_EQ(resumed.weights_sha256, whole.weights_sha256);
      }
      ASSERT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
    }
  }
}

// All that updates remember is in the checkpoint: a run that goes on has the bits of one that never stopped.
TEST_F(Resume, WithEveryStalenessRuleAndMovedWeights_EqualsTheUninterruptedRun) {
  std::vector<v1::JobSpec> specs;
  for (const StalenessCase& rule : StalenessCases()) {
    rule.apply(specs.emplace_back(Job(rule.method)));
  }
  for (const char* method : {"pipemare", "spectrain", "xpipe", "nesterov-no-stash"}) {
    specs.push_back(Job(method));
  }
  for (v1::JobSpec& spec : specs) {
    spec.mutable_training()->set_steps(6);
    for (const int stages : {1, 2, 4}) {
      if (!CheckStages(*ResolveJob(spec), stages).ok()) continue;
      SCOPED_TRACE(absl::StrCat(spec.training().ShortDebugString(), ", ", stages, " stages"));
      Trained whole;
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, Save(spec, stages, &whole));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained resumed,
                                    TrainCluster(Continue(spec, stages, directory), files_));
      EXPECT_EQ(resumed.weights_sha256, whole.weights_sha256);
      // Into another partition it loads; the method reads other versions there.
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          Trained elsewhere, TrainCluster(Continue(spec, 3 - stages % 2, directory), files_));
      EXPECT_EQ(elsewhere.steps.size(), 4u);
      ASSERT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
    }
  }
}

TEST_F(Resume, LocalSgd_WithOtherReplicasOrMethods_Trains) {
  v1::JobSpec spec = Job("local-sgd");
  spec.mutable_pipeline()->add_replicas(2);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, Save(spec, 2));
  spec.mutable_pipeline()->set_replicas(0, 4);
  for (const v1::JobSpec& other : {spec, Job("1f1b"), Job("pipedream")}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained resumed,
                                  TrainCluster(Continue(other, 3, directory), files_));
    EXPECT_EQ(resumed.steps.size(), 2u);
  }
}

// What updates remember is no part of what must match: one method goes on from another's checkpoint.
TEST_F(Resume, FromAMethodWithMovedWeights_IntoOneWithoutAndBack) {
  v1::JobSpec feeding = Job("pipedream-2bw");
  feeding.mutable_training()->mutable_staleness()->set_error_feedback(true);
  for (const auto& [from, into] :
       {std::pair(Job("spectrain"), Job("pipedream")), std::pair(Job("pipedream"), Job("pipemare")),
        std::pair(feeding, Job("xpipe"))}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, Save(from, 2));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained resumed,
                                  TrainCluster(Continue(into, 3, directory), files_));
    EXPECT_EQ(resumed.steps.size(), 2u);
    ASSERT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
  }
}

TEST_F(Resume, AfterTheLastStep_EndsAtOnceWithTheSameWeights) {
  for (const char* method : {"1f1b", "pipedream"}) {
    v1::JobSpec spec = Job(method);
    spec.mutable_training()->set_steps(kSavedStep);
    Trained whole;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, Save(spec, 2, &whole));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained resumed,
                                  TrainCluster(Continue(spec, 3, directory), files_));
    EXPECT_THAT(resumed.steps, ::testing::IsEmpty());
    EXPECT_EQ(resumed.weights_sha256, whole.weights_sha256);
    ASSERT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
  }
}

TEST_F(Resume, Files_OfAnyNumberOfStages_AreTheSame) {
  const v1::JobSpec spec = Job("1f1b", /*tied=*/true);
  std::vector<CheckpointFile> first;
  std::string weights;
  for (const int stages : {1, 2, 3, 5}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, Save(spec, stages));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Manifest manifest, VerifyCheckpoint(files_, directory));
    if (first.empty()) {
      first = manifest.files;
      weights = manifest.weights_sha256;
    }
    EXPECT_EQ(manifest.files, first) << stages << " stages";
    EXPECT_EQ(manifest.weights_sha256, weights);
    ASSERT_THAT(files_.RemoveAll(kCheckpointRoot), IsOk());
  }
  EXPECT_EQ(first.size(), 2u * kLayers);
}

TEST_F(Resume, TiedWeight_IsStoredOnceWithTheEmbedding) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, Save(Job("1f1b", true), 2));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Manifest manifest, VerifyCheckpoint(files_, directory));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(LayerState embedding, LoadLayer(files_, directory, manifest, 0));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(LayerState head,
                                LoadLayer(files_, directory, manifest, kLayers - 1));
  EXPECT_EQ(embedding.weights[0].name, "wte.weight");
  EXPECT_EQ(embedding.optimizer_state.size(), 4u);  // two of each of two parameters
  EXPECT_TRUE(head.weights.empty());
  EXPECT_TRUE(head.optimizer_state.empty());
}

// Every kind of damage to every file is found before training starts, and names the file.
TEST_F(Resume, AnyFileDamaged_IsRefusedByName) {
  const v1::JobSpec spec = Job("1f1b");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, Save(spec, 2));
  int damaged = 0;
  for (const std::string& path : files_.Paths()) {
    if (!absl::StartsWith(path, directory + "/")) continue;
    for (int kind = 0; kind < 3; ++kind) {
      const std::string good = files_.Content(path);
      if (kind == 0) files_.Content(path).resize(good.size() - 1);
      if (kind == 1) files_.Content(path)[good.size() / 2] ^= 4;
      if (kind == 2) files_.Content(path).clear();
      // Trailing white space of the manifest says nothing.
      if (kind == 0 && absl::EndsWith(path, ".json")) files_.Content(path).resize(good.size() - 3);
      TestCluster cluster(Continue(spec, 2, directory), files_);
      EXPECT_THAT(cluster.prepared(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path)))
          << "damage " << kind;
      files_.Content(path) = good;
      ++damaged;
    }
  }
  EXPECT_EQ(damaged, 3 * (2 * kLayers + 1));
  EXPECT_THAT(TrainCluster(Continue(spec, 2, directory), files_), IsOk());
}

TEST_F(Resume, CheckpointOfAnotherModel_NamesTheFirstFieldThatDiffers) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, Save(Job("1f1b"), 2));
  v1::JobSpec wider = Job("1f1b");
  wider.mutable_model()->mutable_gpt()->set_width(32);
  TestCluster other_width(Continue(wider, 2, directory), files_);
  EXPECT_THAT(other_width.prepared(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr(directory),
                             HasSubstr("model.width is 16 in the checkpoint and 32 in the job"))));
  v1::JobSpec sgd = Job("1f1b");
  sgd.mutable_training()->mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
  TestCluster other_optimizer(Continue(sgd, 2, directory), files_);
  EXPECT_THAT(other_optimizer.prepared(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("training.optimizer")));
}

TEST_F(Resume, CheckpointMissingOrOfAnotherStep_IsRefused) {
  const v1::JobSpec spec = Job("1f1b");
  TestCluster missing(Continue(spec, 2, "/checkpoints/step-000000000009"), files_);
  EXPECT_THAT(missing.prepared(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("000009")));

  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, Save(spec, 2));
  ClusterOptions options = Continue(spec, 2, directory);
  options.first_step = 3;
  TestCluster other_step(options, files_);
  EXPECT_THAT(other_step.prepared(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is of step 2")));
}

// The first synchronous steps and then another method: the checkpoint does not care.
TEST_F(Resume, WithAnotherMethod_Trains) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string directory, Save(Job("gpipe"), 2));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained resumed,
                                TrainCluster(Continue(Job("pipedream"), 3, directory), files_));
  EXPECT_EQ(resumed.steps.size(), 2u);
}

TEST_F(Resume, DiskFull_IsReportedAndTrainingGoesOn) {
  const v1::JobSpec spec = Job("1f1b");
  // The system's words come in any encoding; an event's text is UTF-8.
  files_.FailFrom(0, absl::ResourceExhaustedError("no space left on \xFF"));
  TestCluster cluster({.spec = spec, .layers = EvenSplit(kLayers, 2)}, files_);
  ASSERT_THAT(cluster.prepared(), IsOk());
  cluster.Start();
  for (const absl::Status& status : cluster.Join()) EXPECT_THAT(status, IsOk());
  EXPECT_EQ(cluster.LastStep(), 4);
  for (int w = 0; w < 2; ++w) {
    int failed = 0;
    for (const v1::RunEvent& event : cluster.events(w)) {
      EXPECT_FALSE(event.has_layers_saved());
      if (!event.has_save_failed()) continue;
      ++failed;
      EXPECT_THAT(event.save_failed().message(), HasSubstr("no space left on \uFFFD"));
      EXPECT_EQ(event.save_failed().code(), 8);
    }
    EXPECT_EQ(failed, 2);  // after steps 2 and 4
  }
}

// A disk that makes every write wait until it is released.
class StuckFiles : public MemoryFiles {
 public:
  absl::Status WriteDurably(const std::string& path,
                            absl::Span<const absl::string_view> pieces) override {
    if (absl::StrContains(path, "/checkpoints/")) {
      MutexLock lock(mutex_);
      while (!released_) changed_.Wait(mutex_);
    }
    return MemoryFiles::WriteDurably(path, pieces);
  }
  void Release() {
    MutexLock lock(mutex_);
    released_ = true;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool released_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST_F(Resume, SlowDisk_TrainingGoesOnUntilTheNextCheckpoint) {
  StuckFiles files;
  AddTestText(files);
  ClusterOptions options = {.spec = Job("1f1b"), .layers = EvenSplit(kLayers, 2)};
  // The disk answers when step 4 is done, which so cannot have waited for the save of step 2.
  options.on_event = [&](int, const v1::RunEvent& event) {
    if (event.has_step_done() && event.step_done().step() == 4) files.Release();
  };
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained trained, TrainCluster(options, files));
  EXPECT_EQ(trained.steps.size(), 4u);
}

// A disk that takes its time for the files of one layer.
class SlowFiles : public MemoryFiles {
 public:
  absl::Status WriteDurably(const std::string& path,
                            absl::Span<const absl::string_view> pieces) override {
    if (absl::StrContains(path, "head"))
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return MemoryFiles::WriteDurably(path, pieces);
  }
};

// At the second checkpoint worker 1 waits for its first, and worker 0 for worker 1.
TEST_F(Resume, SlowDiskOfOneWorker_OthersWaitAsLongAsIt) {
  SlowFiles files;
  AddTestText(files);
  v1::JobSpec spec = Job("1f1b");
  spec.mutable_training()->set_steps(6);
  ClusterOptions options = {.spec = spec, .layers = EvenSplit(kLayers, 2)};
  options.limits.work_timeout = absl::Milliseconds(20);
  options.limits.hold_timeout = absl::Milliseconds(20);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Trained trained, TrainCluster(options, files));
  EXPECT_EQ(trained.steps.size(), 6u);
}

TEST_F(Resume, StuckDisk_IsNoReasonToIgnoreAStop) {
  StuckFiles files;
  AddTestText(files);
  TestCluster* cluster = nullptr;
  ClusterOptions options = {.spec = Job("1f1b"), .layers = EvenSplit(kLayers, 1)};
  options.limits.checkpoint_timeout = absl::Seconds(20);
  options.on_event = [&](int, const v1::RunEvent& event) {
    if (event.has_run_failed()) files.Release();
    if (!event.has_cut_reached() || event.cut_reached().step() != 4) return;
    cluster->run(0).Stop("the user cancelled");
  };
  TestCluster made(options, files);
  cluster = &made;
  ASSERT_THAT(made.prepared(), IsOk());
  made.Start();
  EXPECT_THAT(made.Join()[0],
              StatusIs(absl::StatusCode::kAborted, HasSubstr("the user cancelled")));
  // The save that was in flight says nothing after the last event.
  EXPECT_TRUE(made.events(0).back().has_run_failed());
}

// The last update of a job spoils the weights, which no loss shows any more.
TEST_F(Resume, WeightsNotFinite_AreNotSaved) {
  v1::JobSpec spec = Job("1f1b");
  spec.mutable_training()->mutable_learning_rate()->set_warmup_steps(0);
  spec.mutable_training()->mutable_learning_rate()->set_decay("constant");
  spec.mutable_training()->mutable_optimizer()->mutable_sgd()->set_learning_rate(1e38);
  spec.mutable_training()->mutable_optimizer()->mutable_sgd()->set_weight_decay(1e38);
  spec.mutable_training()->set_steps(1);
  spec.mutable_checkpoint()->set_every_steps(1);
  TestCluster cluster({.spec = spec, .layers = EvenSplit(kLayers, 2)}, files_);
  ASSERT_THAT(cluster.prepared(), IsOk());
  cluster.Start();
  for (const absl::Status& status : cluster.Join()) EXPECT_THAT(status, IsOk());
  const std::vector<std::string> first_layers = {"layer embedding: ", "layer h.1.attention: "};
  for (int w = 0; w < 2; ++w) {
    int failed = 0;
    for (const v1::RunEvent& event : cluster.events(w)) {
      EXPECT_FALSE(event.has_layers_saved());
      if (!event.has_save_failed()) continue;
      ++failed;
      EXPECT_EQ(event.save_failed().code(),
                static_cast<int>(absl::StatusCode::kFailedPrecondition));
      EXPECT_THAT(event.save_failed().message(), HasSubstr(first_layers[w]));
    }
    EXPECT_EQ(failed, 1);
  }
  EXPECT_FALSE(files_.Exists(kCheckpointRoot));
}

TEST_F(Resume, StuckDisk_EndsTheRunAtItsTimeout) {
  StuckFiles files;
  AddTestText(files);
  ClusterOptions options = {.spec = Job("1f1b"), .layers = EvenSplit(kLayers, 1)};
  options.limits.checkpoint_timeout = absl::Milliseconds(50);
  options.on_event = [&](int, const v1::RunEvent& event) {
    if (event.has_run_failed()) files.Release();
  };
  TestCluster cluster(options, files);
  ASSERT_THAT(cluster.prepared(), IsOk());
  cluster.Start();
  EXPECT_THAT(cluster.Join()[0],
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("checkpoint")));
}

}  // namespace
}  // namespace penstock
