#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "checkpoint/layout.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kRoot[] = "/checkpoints";
constexpr int32_t kLayers = 2;

LayerState StateOf(int32_t layer, int64_t step) {
  const auto value = static_cast<float>(100 * step + layer);
  return {layer,
          absl::StrCat("layer", layer),
          {{"w", {2}, {value, value + 0.5f}}},
          {{"w.exp_avg", {2}, {-value, 1}}}};
}

constexpr char kTag[] = "job/1";

CommitOptions Options(int32_t keep = 2) {
  return {.root = kRoot, .tag = kTag, .layers = kLayers, .keep = keep};
}

absl::StatusOr<Manifest> Stage(Files& files, int64_t step, const std::string& root = kRoot,
                               const std::string& tag = kTag) {
  Manifest manifest = {.job_id = "job", .step = step, .updates = step};
  for (int32_t layer = 0; layer < kLayers; ++layer) {
    auto written = WriteLayer(files, StagingPath(root, step, tag), StateOf(layer, step));
    if (!written.ok()) return written.status();
    for (CheckpointFile& file : *written) manifest.files.push_back(std::move(file));
  }
  return manifest;
}

absl::StatusOr<std::string> Save(Files& files, int64_t step, int32_t keep = 2) {
  const absl::StatusOr<Manifest> manifest = Stage(files, step);
  if (!manifest.ok()) return manifest.status();
  const absl::StatusOr<CommittedCheckpoint> committed =
      CommitCheckpoint(files, Options(keep), *manifest);
  if (!committed.ok()) return committed.status();
  return committed->directory;
}

void ExpectHolds(Files& files, const FoundCheckpoint& found, int64_t step) {
  EXPECT_EQ(found.manifest.step, step);
  for (int32_t layer = 0; layer < kLayers; ++layer) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(LayerState state,
                                  LoadLayer(files, found.directory, found.manifest, layer));
    EXPECT_EQ(state.weights[0].values, StateOf(layer, step).weights[0].values);
    EXPECT_EQ(state.optimizer_state[0].values, StateOf(layer, step).optimizer_state[0].values);
  }
}

TEST(Checkpoint, Commit_ThenFind_GivesBackEveryLayer) {
  MemoryFiles files;
  EXPECT_THAT(Save(files, 100), IsOkAndHolds(std::string("/checkpoints/step-000000000100")));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(FoundCheckpoint found, FindLatestCheckpoint(files, kRoot));
  EXPECT_TRUE(found.passed_over.empty());
  ExpectHolds(files, found, 100);
}

TEST(Checkpoint, Commit_OnTheRealDisk_LeavesOnlyTheCheckpoint) {
  const std::string root =
      absl::StrCat(std::filesystem::temp_directory_path().string(), "/penstock-", getpid());
  Files& files = RealFiles();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Manifest manifest, Stage(files, 5, root));
  CommitOptions options = Options();
  options.root = root;
  ASSERT_THAT(CommitCheckpoint(files, options, manifest), IsOk());
  EXPECT_THAT(files.List(root), IsOkAndHolds(ElementsAre("step-000000000005")));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(FoundCheckpoint found, FindLatestCheckpoint(files, root));
  ExpectHolds(files, found, 5);
  ASSERT_THAT(files.RemoveAll(root), IsOk());
}

TEST(Checkpoint, Commit_PartThatCameLate_IsNotPublished) {
  MemoryFiles files;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Manifest manifest, Stage(files, 1));
  const std::string part = absl::StrCat("/", manifest.files[0].name, ".part");
  ASSERT_THAT(files.WriteDurably(StagingPath(kRoot, 1, kTag) + part, {"late"}), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CommittedCheckpoint committed,
                                CommitCheckpoint(files, Options(), manifest));
  EXPECT_FALSE(files.Exists(committed.directory + part));
  EXPECT_TRUE(files.Exists(JoinPath(committed.directory, manifest.files[0].name)));
}

TEST(Checkpoint, Commit_Again_ChangesNothing) {
  MemoryFiles files;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Manifest manifest, Stage(files, 1));
  ASSERT_THAT(CommitCheckpoint(files, Options(), manifest), IsOk());
  const int64_t changes = files.changes();
  EXPECT_THAT(CommitCheckpoint(files, Options(), manifest), IsOk());
  EXPECT_EQ(files.changes(), changes);
}

TEST(Checkpoint, Commit_OverADamagedOneOfTheSameStep_ReplacesIt) {
  MemoryFiles files;
  ASSERT_THAT(Save(files, 1), IsOk());
  files.Content("/checkpoints/step-000000000001/MANIFEST.json") = "gone";
  ASSERT_THAT(Save(files, 1), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(FoundCheckpoint found, FindLatestCheckpoint(files, kRoot));
  ExpectHolds(files, found, 1);
}

TEST(Checkpoint, Commit_LayerMissingOrTwice_IsRefused) {
  MemoryFiles files;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Manifest manifest, Stage(files, 1));
  Manifest missing = manifest;
  missing.files.erase(missing.files.begin() + 2);
  EXPECT_THAT(
      CommitCheckpoint(files, Options(), missing),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("layer 1 has 0 weights files")));
  Manifest twice = manifest;
  twice.files.push_back(twice.files[1]);
  EXPECT_THAT(
      CommitCheckpoint(files, Options(), twice),
      StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("layer 0 has 2 optimizer files")));
}

TEST(Checkpoint, Commit_StagedFileDiffersFromItsReport_IsRefusedAndNothingPublished) {
  MemoryFiles files;
  ASSERT_THAT(Save(files, 1), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Manifest manifest, Stage(files, 2));
  files.Content(JoinPath(StagingPath(kRoot, 2, "job/1"), manifest.files[0].name)).back() ^= 1;
  EXPECT_THAT(CommitCheckpoint(files, Options(), manifest),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(manifest.files[0].name)));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(FoundCheckpoint found, FindLatestCheckpoint(files, kRoot));
  EXPECT_EQ(found.manifest.step, 1);
}

TEST(Checkpoint, Commit_Several_KeepsTheNewestAndNeverFewerThanTwo) {
  MemoryFiles files;
  for (int64_t step = 1; step <= 5; ++step) ASSERT_THAT(Save(files, step, 3), IsOk());
  EXPECT_THAT(files.List(kRoot), IsOkAndHolds(ElementsAre("step-000000000003", "step-000000000004",
                                                          "step-000000000005")));
  ASSERT_THAT(Save(files, 6, 0), IsOk());
  EXPECT_THAT(files.List(kRoot),
              IsOkAndHolds(ElementsAre("step-000000000005", "step-000000000006")));
}

// Of equal losses the older one stays; a checkpoint without a loss is never among the best.
TEST(Checkpoint, Commit_KeepsTheBestBesideTheNewest) {
  MemoryFiles files;
  const std::vector<std::optional<double>> losses = {3.0, 1.0, std::nullopt, 2.0, 1.0, 5.0, 4.0};
  std::vector<std::vector<std::string>> kept;
  for (size_t i = 0; i < losses.size(); ++i) {
    const auto step = static_cast<int64_t>(i + 1);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(Manifest manifest, Stage(files, step));
    manifest.validation_loss = losses[i];
    CommitOptions options = Options(2);
    options.keep_best = 2;
    ASSERT_THAT(CommitCheckpoint(files, options, manifest), IsOk());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(kept.emplace_back(), files.List(kRoot));
  }
  EXPECT_THAT(kept[3], ElementsAre("step-000000000002", "step-000000000003", "step-000000000004"));
  EXPECT_THAT(kept[5], ElementsAre("step-000000000002", "step-000000000005", "step-000000000006"));
  EXPECT_THAT(kept[6], ElementsAre("step-000000000002", "step-000000000005", "step-000000000006",
                                   "step-000000000007"));
}

TEST(Checkpoint, Commit_BelowOthersOfAnEarlierLife_NeverRemovesItself) {
  MemoryFiles files;
  for (int64_t step : {30, 40}) ASSERT_THAT(Save(files, step), IsOk());
  ASSERT_THAT(Save(files, 10), IsOk());
  EXPECT_THAT(files.List(kRoot), IsOkAndHolds(ElementsAre("step-000000000010", "step-000000000030",
                                                          "step-000000000040")));
}

TEST(Checkpoint, Commit_OlderOneCannotBeRemoved_SucceedsAndSaysSo) {
  MemoryFiles files;
  for (int64_t step : {1, 2}) ASSERT_THAT(Save(files, step), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(Manifest manifest, Stage(files, 3));
  files.FailRemovals(absl::PermissionDeniedError("not yours"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const CommittedCheckpoint committed,
                                CommitCheckpoint(files, Options(), manifest));
  EXPECT_EQ(committed.directory, "/checkpoints/step-000000000003");
  EXPECT_THAT(committed.note, HasSubstr("not yours"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(FoundCheckpoint found, FindLatestCheckpoint(files, kRoot));
  ExpectHolds(files, found, 3);
}

// What takes the place of an older one of the same step: of an earlier life, so its numbers differ.
absl::StatusOr<CommittedCheckpoint> SaveAgain(Files& files, int64_t step) {
  absl::StatusOr<Manifest> manifest = Stage(files, step);
  if (!manifest.ok()) return manifest.status();
  manifest->job_id = "another";
  return CommitCheckpoint(files, Options(), *manifest);
}

TEST(Checkpoint, CommitOverTheSameStep_ErrorAnywhere_LeavesOneOfTheTwo) {
  for (int64_t change = 0;; ++change) {
    MemoryFiles files;
    for (int64_t step : {1, 2}) ASSERT_THAT(Save(files, step), IsOk());
    files.FailOnce(change, absl::InternalError("input/output error"));
    const bool saved = SaveAgain(files, 2).ok();
    const bool failed = files.failed();
    files.Heal();
    PENSTOCK_ASSERT_OK_AND_ASSIGN(FoundCheckpoint found, FindLatestCheckpoint(files, kRoot));
    ExpectHolds(files, found, 2);
    if (saved) {
      EXPECT_EQ(found.manifest.job_id, "another") << "error at change " << change;
    }
    if (!failed) break;
  }
}

TEST(Checkpoint, CommitOverTheSameStep_RemovalFails_TheNewOneHasTheName) {
  MemoryFiles files;
  for (int64_t step : {1, 2}) ASSERT_THAT(Save(files, step), IsOk());
  files.FailRemovals(absl::PermissionDeniedError("not yours"), StagingPath(kRoot, 2, "removed"));
  EXPECT_THAT(SaveAgain(files, 2), IsOk());
  files.Heal();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(FoundCheckpoint found, FindLatestCheckpoint(files, kRoot));
  EXPECT_EQ(found.manifest.job_id, "another");
  ExpectHolds(files, found, 2);
}

// The process dies at every possible point of a save, with and without a torn write.
TEST(Checkpoint, Commit_CrashAnywhere_LeavesTheOldOrTheNewOne) {
  for (const bool tears_writes : {false, true}) {
    for (int64_t crash = 0;; ++crash) {
      MemoryFiles files;
      ASSERT_THAT(Save(files, 1), IsOk());
      ASSERT_THAT(Save(files, 2), IsOk());
      files.FailFrom(crash, absl::InternalError("crashed"), tears_writes);
      const bool saved = Save(files, 3).ok();
      const bool crashed = files.failed();
      files.Heal();
      PENSTOCK_ASSERT_OK_AND_ASSIGN(FoundCheckpoint found, FindLatestCheckpoint(files, kRoot));
      EXPECT_TRUE(found.passed_over.empty());
      EXPECT_GE(found.manifest.step, saved ? 3 : 2) << "crash at change " << crash;
      ExpectHolds(files, found, found.manifest.step);

      // The next attempt sweeps and succeeds.
      ASSERT_THAT(SweepStaging(files, kRoot), IsOk());
      ASSERT_THAT(Save(files, 3), IsOk());
      EXPECT_THAT(files.List(kRoot),
                  IsOkAndHolds(ElementsAre("step-000000000002", "step-000000000003")));
      if (!crashed) break;
    }
  }
}

// The same where a checkpoint of the step is replaced. Between the two renames neither has the name,
// so the one before must be there.
TEST(Checkpoint, CommitOverTheSameStep_CrashAnywhere_LeavesTheNewestOrTheOneBefore) {
  for (int64_t crash = 0;; ++crash) {
    MemoryFiles files;
    for (int64_t step : {1, 2}) ASSERT_THAT(Save(files, step), IsOk());
    files.FailFrom(crash, absl::InternalError("crashed"));
    const bool saved = SaveAgain(files, 2).ok();
    const bool crashed = files.failed();
    files.Heal();
    PENSTOCK_ASSERT_OK_AND_ASSIGN(FoundCheckpoint found, FindLatestCheckpoint(files, kRoot));
    EXPECT_TRUE(found.passed_over.empty());
    ExpectHolds(files, found, found.manifest.step);
    if (saved) {
      EXPECT_EQ(found.manifest.job_id, "another");
    }

    ASSERT_THAT(SweepStaging(files, kRoot), IsOk());
    ASSERT_THAT(SaveAgain(files, 2), IsOk());
    EXPECT_THAT(files.List(kRoot),
                IsOkAndHolds(ElementsAre("step-000000000001", "step-000000000002")));
    if (!crashed) break;
  }
}

// One call to the disk fails, and the machine loses power when the save has been answered. What was said to be saved is
// there: every name and every byte was made durable first, and no error of that was passed over.
TEST(Checkpoint, Commit_OneErrorAndThenAPowerFailure_WhatWasSaidToBeSavedIsThere) {
  for (int64_t change = 0;; ++change) {
    MemoryFiles files;
    for (int64_t step : {1, 2}) ASSERT_THAT(Save(files, step), IsOk());
    files.FailOnce(change, absl::InternalError("input/output error"));
    const bool saved = Save(files, 3).ok();
    const bool failed = files.failed();
    files.Crash();
    PENSTOCK_ASSERT_OK_AND_ASSIGN(FoundCheckpoint found, FindLatestCheckpoint(files, kRoot));
    EXPECT_TRUE(found.passed_over.empty()) << "error at change " << change;
    EXPECT_EQ(found.manifest.step, saved ? 3 : 2) << "error at change " << change;
    ExpectHolds(files, found, found.manifest.step);
    if (!failed) break;
  }
}

// The power fails at every possible point, so that nothing that was not made durable is left.
TEST(Checkpoint, Commit_PowerFailureAnywhere_LeavesTheOldOrTheNewOne) {
  for (int64_t crash = 0;; ++crash) {
    MemoryFiles files;
    for (int64_t step : {1, 2}) ASSERT_THAT(Save(files, step), IsOk());
    files.FailFrom(crash, absl::InternalError("crashed"));
    const bool saved = Save(files, 3).ok();
    const bool crashed = files.failed();
    files.Heal();
    files.Crash();
    PENSTOCK_ASSERT_OK_AND_ASSIGN(FoundCheckpoint found, FindLatestCheckpoint(files, kRoot));
    EXPECT_TRUE(found.passed_over.empty()) << "crash at change " << crash;
    EXPECT_GE(found.manifest.step, saved ? 3 : 2) << "crash at change " << crash;
    ExpectHolds(files, found, found.manifest.step);
    if (!crashed) break;
  }
}

// As above, but of what was not made durable, some changes are on the disk and others are not, in no order.
TEST(Checkpoint, Commit_PowerFailureAnywhereThatKeepsAnyPart_LeavesTheOldOrTheNewOne) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (int64_t crash = 0;; ++crash) {
      MemoryFiles files;
      for (int64_t step : {1, 2}) ASSERT_THAT(Save(files, step), IsOk());
      files.FailFrom(crash, absl::InternalError("crashed"), /*tears_writes=*/seed % 2 == 0);
      const bool saved = Save(files, 3).ok();
      const bool crashed = files.failed();
      files.Heal();
      RandomStream random(seed, crash);
      files.Crash([&](const std::string&) { return random.Below(2) == 0; });
      SCOPED_TRACE(testing::Message() << "crash at change " << crash << ", seed " << seed);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(FoundCheckpoint found, FindLatestCheckpoint(files, kRoot));
      EXPECT_TRUE(found.passed_over.empty());
      EXPECT_GE(found.manifest.step, saved ? 3 : 2);
      ExpectHolds(files, found, found.manifest.step);
      ASSERT_THAT(SweepStaging(files, kRoot), IsOk());
      ASSERT_THAT(Save(files, 4), IsOk());
      if (!crashed) break;
    }
  }
}

TEST(MemoryFiles, Crash_UndoesWhatDoesNotSurvive) {
  MemoryFiles files;
  ASSERT_THAT(files.CreateDirectories("/d"), IsOk());
  ASSERT_THAT(files.WriteDurably("/d/old", {"1"}), IsOk());
  ASSERT_THAT(files.SyncDirectory("/d"), IsOk());
  ASSERT_THAT(files.WriteDurably("/d/a", {"2"}), IsOk());
  ASSERT_THAT(files.WriteDurably("/d/b", {"3"}), IsOk());
  ASSERT_THAT(files.RemoveAll("/d/old"), IsOk());
  files.Crash([](const std::string& path) { return path == "/d/b"; });
  EXPECT_THAT(files.List("/d"), IsOkAndHolds(ElementsAre("b", "old")));
  files.Crash();
  EXPECT_THAT(files.List("/d"), IsOkAndHolds(ElementsAre("b", "old"))) << "it is on the disk now";
}

TEST(MemoryFiles, Crash_LeavesWhatWasSynced) {
  MemoryFiles files;
  ASSERT_THAT(files.CreateDirectories("/d/e"), IsOk());
  ASSERT_THAT(files.WriteDurably("/d/e/file", {"1"}), IsOk());
  ASSERT_THAT(files.RemoveAll("/d/e"), IsOk());
  ASSERT_THAT(files.SyncDirectory("/d"), IsOk());
  files.Crash();
  EXPECT_THAT(files.List("/d"), IsOkAndHolds(ElementsAre()));
}

// Damages each file of the newest checkpoint in each way.
TEST(Checkpoint, Find_AnyFileDamaged_FallsBackAndNamesIt) {
  MemoryFiles pristine;
  ASSERT_THAT(Save(pristine, 1), IsOk());
  ASSERT_THAT(Save(pristine, 2), IsOk());
  int damaged_files = 0;
  for (const std::string& path : pristine.Paths()) {
    if (!absl::StrContains(path, "step-000000000002/")) continue;
    ++damaged_files;
    for (int kind = 0; kind < 4; ++kind) {
      MemoryFiles files;
      ASSERT_THAT(Save(files, 1), IsOk());
      ASSERT_THAT(Save(files, 2), IsOk());
      std::string& content = files.Content(path);
      if (kind == 0) content.resize(content.size() / 2);
      if (kind == 1) content[content.size() / 2] ^= 0x10;
      if (kind == 2) content += "x";
      if (kind == 3) {
        ASSERT_THAT(files.RemoveAll(path), IsOk());
      }
      if (kind == 2 && absl::EndsWith(path, ".json")) continue;  // covered by Parse tests
      PENSTOCK_ASSERT_OK_AND_ASSIGN(FoundCheckpoint found, FindLatestCheckpoint(files, kRoot));
      ExpectHolds(files, found, 1);
      EXPECT_THAT(found.passed_over, ElementsAre(HasSubstr(path)));
      EXPECT_THAT(VerifyCheckpoint(files, "/checkpoints/step-000000000002"),
                  ::testing::Not(IsOk()));
    }
  }
  EXPECT_EQ(damaged_files, 2 * kLayers + 1);
}

TEST(Checkpoint, Find_FilesOfAnotherStepSwappedIn_IsDetected) {
  MemoryFiles files;
  ASSERT_THAT(Save(files, 1), IsOk());
  ASSERT_THAT(Save(files, 2), IsOk());
  const std::string name = WeightsFileName(0, "layer0");
  files.Content(absl::StrCat("/checkpoints/step-000000000002/", name)) =
      files.Content(absl::StrCat("/checkpoints/step-000000000001/", name));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(FoundCheckpoint found, FindLatestCheckpoint(files, kRoot));
  EXPECT_EQ(found.manifest.step, 1);
}

// It may be good: the job must not go on from an older one, whose successors would replace it.
TEST(Checkpoint, Find_NewestCannotBeRead_IsAnErrorNotAnOlderCheckpoint) {
  const absl::Status errors[] = {absl::ResourceExhaustedError("too many open files"),
                                 absl::PermissionDeniedError("not yours"),
                                 absl::InternalError("input/output error")};
  for (const char* name : {"", "/MANIFEST.json", "/layer-001-layer1.safetensors"}) {
    for (const absl::Status& error : errors) {
      MemoryFiles files;
      for (int64_t step : {1, 2}) ASSERT_THAT(Save(files, step), IsOk());
      files.FailReads(absl::StrCat("/checkpoints/step-000000000002", name), error);
      EXPECT_EQ(FindLatestCheckpoint(files, kRoot).status(), error) << name;
    }
  }
}

TEST(Checkpoint, Find_NewestIsOfALaterFormat_IsAnErrorNotAnOlderCheckpoint) {
  MemoryFiles files;
  for (int64_t step : {1, 2}) ASSERT_THAT(Save(files, step), IsOk());
  files.Content("/checkpoints/step-000000000002/MANIFEST.json") = "{\"format_version\": 2}";
  EXPECT_THAT(FindLatestCheckpoint(files, kRoot),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("format version 2")));
}

TEST(Checkpoint, Find_AllDamaged_SaysWhyForEach) {
  MemoryFiles files;
  ASSERT_THAT(Save(files, 1), IsOk());
  ASSERT_THAT(Save(files, 2), IsOk());
  for (const std::string& path : files.Paths()) files.Content(path).clear();
  EXPECT_THAT(FindLatestCheckpoint(files, kRoot),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr("step-000000000001"), HasSubstr("step-000000000002"))));
}

TEST(Checkpoint, Find_NothingThere_IsNotFound) {
  MemoryFiles files;
  EXPECT_THAT(FindLatestCheckpoint(files, kRoot),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(kRoot)));
  ASSERT_THAT(files.CreateDirectories(kRoot), IsOk());
  EXPECT_THAT(FindLatestCheckpoint(files, kRoot),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(kRoot)));
}

TEST(Checkpoint, Find_CopiedDirectory_IsAsGoodAsTheOriginal) {
  MemoryFiles files;
  ASSERT_THAT(Save(files, 1), IsOk());
  ASSERT_THAT(files.RenameDurably("/checkpoints/step-000000000001", "/elsewhere/step-000000000001"),
              IsOk());
  EXPECT_THAT(VerifyCheckpoint(files, "/elsewhere/step-000000000001"), IsOk());
}

TEST(Checkpoint, Load_ChangedAfterItWasFound_IsDetected) {
  MemoryFiles files;
  ASSERT_THAT(Save(files, 1), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(FoundCheckpoint found, FindLatestCheckpoint(files, kRoot));
  const std::string path = JoinPath(found.directory, WeightsFileName(1, "layer1"));
  files.Content(path).back() ^= 1;
  EXPECT_THAT(LoadLayer(files, found.directory, found.manifest, 1),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(path)));
  EXPECT_THAT(LoadLayer(files, found.directory, found.manifest, 7),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("layer 7")));
}

TEST(Checkpoint, Sweep_RemovesOnlyStaging) {
  MemoryFiles files;
  ASSERT_THAT(Save(files, 1), IsOk());
  ASSERT_THAT(Stage(files, 2), IsOk());
  ASSERT_THAT(files.WriteDurably("/checkpoints/notes.txt", {"mine"}), IsOk());
  ASSERT_THAT(SweepStaging(files, kRoot), IsOk());
  EXPECT_THAT(files.List(kRoot), IsOkAndHolds(ElementsAre("notes.txt", "step-000000000001")));
  EXPECT_THAT(SweepStaging(files, "/nowhere"), IsOk());
}

// A user's own folder may look similar.
TEST(Checkpoint, Sweep_NameThatOnlyLooksLikeStaging_Stays) {
  MemoryFiles files;
  for (const char* name : {"step-by-step.tmp-notes", "step-000000000001.tmp-", "my.tmp-job-1"}) {
    ASSERT_THAT(files.CreateDirectories(JoinPath(kRoot, name)), IsOk());
  }
  ASSERT_THAT(SweepStaging(files, kRoot), IsOk());
  EXPECT_THAT(files.List(kRoot), IsOkAndHolds(ElementsAre("my.tmp-job-1", "step-000000000001.tmp-",
                                                          "step-by-step.tmp-notes")));
}

TEST(Checkpoint, Discard_RemovesOnlyThisAttemptsUpToTheStep) {
  MemoryFiles files;
  const std::string tag = StagingTag("job-1", 12);
  for (int64_t step : {1, 2, 3}) ASSERT_THAT(Stage(files, step, kRoot, tag), IsOk());
  // Another epoch, other jobs, and names that begin alike.
  for (const char* other : {"job-1-11", "job-1-123", "job-11-12", "job-1-12-1", "a-job-1-12"}) {
    ASSERT_THAT(Stage(files, 1, kRoot, other), IsOk());
  }
  ASSERT_THAT(DiscardStaging(files, kRoot, tag, 2), IsOk());
  const auto of_others =
      ElementsAre("step-000000000001.tmp-a-job-1-12", "step-000000000001.tmp-job-1-11",
                  "step-000000000001.tmp-job-1-12-1", "step-000000000001.tmp-job-1-123",
                  "step-000000000001.tmp-job-11-12", "step-000000000003.tmp-job-1-12");
  EXPECT_THAT(files.List(kRoot), IsOkAndHolds(of_others));
  ASSERT_THAT(DiscardStaging(files, kRoot, tag), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<std::string> names, files.List(kRoot));
  EXPECT_EQ(names.size(), 5u);
  EXPECT_THAT(DiscardStaging(files, "/nowhere", tag), IsOk());
}

TEST(Checkpoint, Discard_OneStays_TheOthersGoAndTheErrorIsTold) {
  MemoryFiles files;
  for (int64_t step : {1, 2}) ASSERT_THAT(Stage(files, step), IsOk());
  files.FailRemovals(absl::PermissionDeniedError("not yours"), StagingPath(kRoot, 1, kTag));
  EXPECT_THAT(DiscardStaging(files, kRoot, kTag),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("not yours")));
  EXPECT_THAT(files.List(kRoot), IsOkAndHolds(ElementsAre("step-000000000001.tmp-job-1")));
}

TEST(Checkpoint, SweepOfOneJob_LeavesThoseOfOtherJobs) {
  MemoryFiles files;
  for (const char* tag : {"job-1-11", "job-1-12", "job-11-12", "job-1-2-12", "removed"}) {
    ASSERT_THAT(Stage(files, 1, kRoot, tag), IsOk());
  }
  ASSERT_THAT(SweepStagingOf(files, kRoot, "job-1"), IsOk());
  EXPECT_THAT(files.List(kRoot), IsOkAndHolds(ElementsAre("step-000000000001.tmp-job-1-2-12",
                                                          "step-000000000001.tmp-job-11-12",
                                                          "step-000000000001.tmp-removed")));
}

// What an attempt staged for cuts that failed goes with its next checkpoint at the latest.
TEST(Checkpoint, Commit_RemovesWhatTheAttemptStagedForEarlierSteps) {
  MemoryFiles files;
  for (int64_t step : {1, 2, 4}) ASSERT_THAT(Stage(files, step), IsOk());
  ASSERT_THAT(Stage(files, 1, kRoot, "other-1-5"), IsOk());
  ASSERT_THAT(Save(files, 3), IsOk());
  EXPECT_THAT(files.List(kRoot),
              IsOkAndHolds(ElementsAre("step-000000000001.tmp-other-1-5", "step-000000000003",
                                       "step-000000000004.tmp-job-1")));
}

// The disk has room for the checkpoints and little more, and is full for four cuts. Were what they staged left there, it
// would take the room of all later ones.
TEST(Checkpoint, DiskFullForAWhile_LaterCutsAreSavedOnceFailedOnesAreDiscarded) {
  MemoryFiles files;
  ASSERT_THAT(Save(files, 1), IsOk());
  const int64_t checkpoint_bytes = files.UsedBytes();
  const int64_t enough = 3 * checkpoint_bytes + checkpoint_bytes / 4;
  int failed = 0;
  int saved = 0;
  for (int64_t step = 2; step <= 17; ++step) {
    const bool is_full = step >= 4 && step < 8;
    files.SetCapacity(is_full ? files.UsedBytes() + checkpoint_bytes / 2 : enough);
    const absl::StatusOr<std::string> commit = Save(files, step);
    if (is_full) {
      ++failed;
      EXPECT_THAT(commit.status(), StatusIs(absl::StatusCode::kResourceExhausted,
                                            HasSubstr("No space left on device")));
      ASSERT_THAT(DiscardStaging(files, kRoot, kTag, step), IsOk());
    } else {
      EXPECT_THAT(commit, IsOk());
      saved += commit.ok() ? 1 : 0;
    }
  }
  EXPECT_EQ(failed, 4);
  EXPECT_EQ(saved, 12);
  EXPECT_THAT(files.List(kRoot),
              IsOkAndHolds(ElementsAre("step-000000000016", "step-000000000017")));
}

TEST(CheckpointLayout, StagingName_ParsesBack) {
  const auto parsed = ParseStagingDirectoryName(StagingDirectoryName(7, StagingTag("a_b-1", 9)));
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->step, 7);
  EXPECT_EQ(parsed->tag, "a-b-1-9");
  EXPECT_TRUE(IsTagOfJob(parsed->tag, "a_b-1"));
  EXPECT_FALSE(IsTagOfJob(parsed->tag, "a_b"));
  EXPECT_FALSE(IsTagOfJob(parsed->tag, "a_b-1-9"));
  for (const char* other : {"step-000000000007", "step-7.tmp-a", "step-000000000007.tmp-a/b"}) {
    EXPECT_FALSE(ParseStagingDirectoryName(other).has_value()) << other;
  }
}

TEST(CheckpointLayout, StagedFile_IsRightInAStagingDirectoryAndInNoCheckpoint) {
  for (const char* staged : {"/a/step-000000000007.tmp-j-1/layer-000-any.safetensors",
                             "step-000000000007.tmp-j-1/tokenizer.json"}) {
    EXPECT_TRUE(IsStagedFilePath(staged)) << staged;
  }
  for (const char* other :
       {"", "/", "name", "/a/step-000000000007/name", "/a/step-000000000007.tmp-j-1",
        "/a/step-000000000007.tmp-j-1/", "/a/step-000000000007.tmp-j-1/.",
        "/a/step-000000000007.tmp-j-1/..", "/a/step-000000000007.tmp-j-1/deep/name",
        "/a/step-000000000007.tmp-j-1//name", "/a/step-000000000007.tmp-j-1/../name",
        "/a/step-000000000007.tmp-j-1/../step-000000000007/name",
        "/a/step-000000000007/step-000000000008.tmp-j-1/name"}) {
    EXPECT_FALSE(IsStagedFilePath(other)) << other;
  }
}

TEST(CheckpointLayout, StepDirectoryName_ParsesBack) {
  for (int64_t step : {int64_t{0}, int64_t{7}, int64_t{123'456'789'012'345}}) {
    EXPECT_EQ(ParseStepDirectoryName(StepDirectoryName(step)), step);
  }
  for (const char* other : {"step-1", "step-00000000000x", "step-000000000001.tmp-a", "latest"}) {
    EXPECT_EQ(ParseStepDirectoryName(other), std::nullopt) << other;
  }
}

TEST(CheckpointLayout, StagingName_TagFromOutside_StaysOneName) {
  EXPECT_EQ(StagingDirectoryName(1, "../a b"), "step-000000000001.tmp----a-b");
}

}  // namespace
}  // namespace penstock
