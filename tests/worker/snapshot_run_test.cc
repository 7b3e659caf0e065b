// Runs that keep snapshots in the memory of workers, and runs that begin from them.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "checkpoint/layout.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"
#include "worker/snapshot_peers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

// The workers' memories, and calls between them that tests can make fail.
class Memories {
 public:
  explicit Memories(int workers, int64_t bytes_max = 1 << 24) {
    for (int i = 0; i < workers; ++i) {
      const std::string name = absl::StrCat("worker-", i);
      peers_[name] = std::make_unique<Peers>(*this, bytes_max);
    }
  }

  SnapshotPeers* of(int worker) { return peers_.at(absl::StrCat("worker-", worker)).get(); }
  // The process of this worker is gone, and another has its name.
  void Lose(int worker) { of(worker)->memory().Forget("job"); }

  absl::Status send_error;   // of all copies
  absl::Status fetch_error;  // likewise
  Mutex mutex;
  int64_t fetched ABSL_GUARDED_BY(mutex) = 0;  // files

 private:
  struct Peers : SnapshotPeers {
    Peers(Memories& all, int64_t bytes_max) : all_(all), memory_(bytes_max) {}
    SnapshotMemory& memory() override { return memory_; }
    absl::Status Send(const v1::SnapshotHolder& peer, const std::string& path,
                      absl::FunctionRef<absl::Status()>) override {
      if (!all_.send_error.ok()) return all_.send_error;
      const std::string content = *memory_.Read(path, 1 << 24);
      return all_.peers_.at(peer.worker())->memory_.WriteDurably(path, {content});
    }
    absl::StatusOr<std::string> Fetch(const v1::SnapshotHolder& peer, const std::string& path,
                                      int64_t size_bytes,
                                      absl::FunctionRef<absl::Status()>) override {
      if (!all_.fetch_error.ok()) return all_.fetch_error;
      MutexLock lock(all_.mutex);
      ++all_.fetched;
      return all_.peers_.at(peer.worker())->memory_.Read(path, size_bytes);
    }
    Memories& all_;
    SnapshotMemory memory_;
  };

  std::map<std::string, std::unique_ptr<Peers>> peers_;
};

class SnapshotRun : public ::testing::Test {
 protected:
  SnapshotRun() { AddTestText(files_); }

  // 6 steps, without a checkpoint directory.
  static v1::JobSpec Job(const std::string& method) {
    v1::JobSpec spec = SmallJob(method);
    spec.mutable_training()->set_steps(6);
    return spec;
  }
  static v1::JobSpec Every(v1::JobSpec spec, int64_t steps) {
    spec.mutable_recovery()->set_snapshot_every_steps(steps);
    return spec;
  }
  static v1::JobSpec Validated(v1::JobSpec spec, int64_t every_steps) {
    spec.mutable_validation()->set_every_steps(every_steps);
    spec.mutable_validation()->set_batches(1);
    return spec;
  }

  ClusterOptions With(const v1::JobSpec& spec, int stages, Memories& memories) {
    ClusterOptions options{.spec = spec, .layers = EvenSplit(kLayers, stages)};
    options.snapshots = [&memories](int worker) { return memories.of(worker); };
    return options;
  }

  // Trains, and returns what the coordinator knows of the snapshot of `step`, with all that tell of a copy.
  v1::PeerSnapshot Train(const ClusterOptions& options, int64_t step, Trained& trained) {
    TestCluster cluster(options, files_);
    EXPECT_THAT(cluster.prepared(), IsOk());
    cluster.Start();
    for (const absl::Status& status : cluster.Join()) EXPECT_THAT(status, IsOk());
    trained = {cluster.Steps(), cluster.Validations(), cluster.WeightsSha256(), {}};
    v1::PeerSnapshot snapshot;
    snapshot.set_directory(SnapshotDirectory("job", 1, step));
    Manifest manifest = cluster.ManifestOf(step, [step](const v1::RunEvent& event) {
      const v1::LayersSaved& kept = event.layers_kept().layers();
      return event.has_layers_kept() && kept.step() == step ? &kept : nullptr;
    });
    snapshot.set_manifest(SerializeManifest(manifest));
    for (int worker = 0; worker < cluster.size(); ++worker) {
      for (const v1::RunEvent& event : cluster.events(worker)) {
        const v1::LayersKept& kept = event.layers_kept();
        if (!event.has_layers_kept() || kept.layers().step() != step) continue;
        v1::SnapshotPart& part = *snapshot.add_parts();
        part.add_holders()->set_worker(absl::StrCat("worker-", worker));
        if (kept.has_copy()) *part.add_holders() = kept.copy();
        for (const v1::LayerDigest& layer : kept.layers().layers()) part.add_layers(layer.layer());
      }
    }
    return snapshot;
  }

  ClusterOptions From(const v1::PeerSnapshot& snapshot, int64_t step, ClusterOptions options) {
    options.first_step = step;
    options.edit_request = [snapshot](v1::PrepareRunRequest& request) {
      request.set_epoch(2);
      *request.mutable_snapshot() = snapshot;
    };
    return options;
  }

  MemoryFiles files_;
};

TEST_F(SnapshotRun, EveryStep_ChangesNothingThatIsTrained) {
  for (const char* method : {"1f1b", "gpipe", "zb-h1", "zb-v"}) {
    SCOPED_TRACE(method);
    const v1::JobSpec plain = Job(method);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained expected,
        TrainCluster({.spec = plain, .layers = EvenSplit(kLayers, 2)}, files_));
    for (const int64_t every : {1, 2, 5}) {
      const v1::JobSpec spec = Every(plain, every);
      Memories memories(2);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained trained,
                                    TrainCluster(With(spec, 2, memories), files_));
      ExpectSameTraining(trained, expected);
    }
  }
}

TEST_F(SnapshotRun, AfterALoss_BeginsFromTheCopiesOfPeersOnAnyNumberOfStages) {
  const v1::JobSpec spec = Every(Job("1f1b"), 2);
  for (const int lost : {0, 1, 2}) {
    Memories memories(3);
    Trained whole;
    const v1::PeerSnapshot snapshot = Train(With(spec, 3, memories), 4, whole);
    ASSERT_EQ(snapshot.parts_size(), 3);
    for (const v1::SnapshotPart& part : snapshot.parts()) ASSERT_EQ(part.holders_size(), 2);
    memories.Lose(lost);
    for (const int stages : {2, 3}) {
      SCOPED_TRACE(absl::StrCat("without ", lost, ", ", stages, " stages"));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          const Trained resumed,
          TrainCluster(From(snapshot, 4, With(spec, stages, memories)), files_));
      ASSERT_EQ(resumed.steps.size(), 2u);
      EXPECT_EQ(resumed.steps[0].loss, whole.steps[4].loss);
      EXPECT_EQ(resumed.steps[1].loss, whole.steps[5].loss);
      EXPECT_EQ(resumed.weights_sha256, whole.weights_sha256);
    }
    MutexLock lock(memories.mutex);
    EXPECT_GT(memories.fetched, 0);
  }
}

TEST_F(SnapshotRun, WithLateGradients_TheyAreAtCutsAndTheRunIsAsOneWithTheseCuts) {
  for (const char* method : {"pipedream", "pipedream-2bw", "paci"}) {
    SCOPED_TRACE(method);
    // Every step asks for more than these methods can give without other training.
    const v1::JobSpec spec = Every(Validated(Job(method), 3), 1);
    Memories memories(2);
    Trained whole;
    const v1::PeerSnapshot snapshot = Train(With(spec, 2, memories), 3, whole);
    ASSERT_EQ(snapshot.parts_size(), 2);
    EXPECT_THAT(memories.of(0)->memory().Jobs(), ::testing::ElementsAre("job"));
    memories.Lose(1);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained resumed,
                                  TrainCluster(From(snapshot, 3, With(spec, 2, memories)), files_));
    EXPECT_EQ(resumed.weights_sha256, whole.weights_sha256);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained plain,
        TrainCluster({.spec = Validated(Job(method), 3), .layers = EvenSplit(kLayers, 2)}, files_));
    EXPECT_EQ(whole.weights_sha256, plain.weights_sha256);
  }
}

TEST_F(SnapshotRun, CopyThatFails_IsKeptHereAlone) {
  const v1::JobSpec spec = Every(Job("1f1b"), 2);
  Memories memories(2);
  memories.send_error = absl::UnavailableError("worker-1 does not answer");
  Trained whole;
  std::atomic<int> notices = 0;
  ClusterOptions options = With(spec, 2, memories);
  options.on_notice = [&](int, const std::string& text) {
    EXPECT_THAT(text, HasSubstr("worker-1 does not answer"));
    ++notices;
  };
  const v1::PeerSnapshot snapshot = Train(options, 4, whole);
  EXPECT_EQ(notices, 2) << "one of each worker, not of each snapshot";
  for (const v1::SnapshotPart& part : snapshot.parts()) EXPECT_EQ(part.holders_size(), 1);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained resumed,
                                TrainCluster(From(snapshot, 4, With(spec, 2, memories)), files_));
  EXPECT_EQ(resumed.weights_sha256, whole.weights_sha256);
}

TEST_F(SnapshotRun, WithoutRoom_TrainsOnAndTellsNothing) {
  const v1::JobSpec spec = Every(Job("1f1b"), 2);
  Memories memories(2, /*bytes_max=*/100);
  Trained whole;
  const v1::PeerSnapshot snapshot = Train(With(spec, 2, memories), 4, whole);
  EXPECT_EQ(snapshot.parts_size(), 0);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const Trained expected,
      TrainCluster({.spec = Job("1f1b"), .layers = EvenSplit(kLayers, 2)}, files_));
  EXPECT_EQ(whole.weights_sha256, expected.weights_sha256);
}

TEST_F(SnapshotRun, SnapshotThatNobodyHas_IsTold) {
  const v1::JobSpec spec = Every(Job("1f1b"), 2);
  Memories memories(2);
  Trained whole;
  const v1::PeerSnapshot snapshot = Train(With(spec, 2, memories), 4, whole);
  memories.Lose(0);
  memories.Lose(1);
  {
    TestCluster cluster(From(snapshot, 4, With(spec, 2, memories)), files_);
    EXPECT_THAT(cluster.prepared(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                             HasSubstr("no worker has this part")));
  }
  memories.fetch_error = absl::UnavailableError("nobody is there");
  TestCluster cluster(From(snapshot, 4, With(spec, 2, memories)), files_);
  EXPECT_THAT(cluster.prepared(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("nobody is there")));
}

TEST_F(SnapshotRun, DamagedCopy_IsNeverTrainedWith) {
  const v1::JobSpec spec = Every(Job("1f1b"), 2);
  Memories memories(2);
  Trained whole;
  const v1::PeerSnapshot snapshot = Train(With(spec, 2, memories), 4, whole);
  const Manifest manifest = *ParseManifest(absl::string_view(snapshot.manifest()));
  for (int worker = 0; worker < 2; ++worker) {
    for (const CheckpointFile& file : manifest.files) {
      const std::string path = JoinPath(snapshot.directory(), file.name);
      std::string content = *memories.of(worker)->memory().Read(path, file.size_bytes);
      content[content.size() / 2] ^= 1;
      ASSERT_THAT(memories.of(worker)->memory().WriteDurably(path, {content}), IsOk());
    }
  }
  TestCluster cluster(From(snapshot, 4, With(spec, 2, memories)), files_);
  EXPECT_THAT(cluster.prepared(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("was changed")));
}

TEST_F(SnapshotRun, WithRecoveryOff_KeepsNone) {
  v1::JobSpec spec = Every(Validated(Job("1f1b"), 2), 2);
  spec.mutable_recovery()->set_mode("off");
  Memories memories(2);
  Trained whole;
  EXPECT_EQ(Train(With(spec, 2, memories), 4, whole).parts_size(), 0);
  EXPECT_EQ(memories.of(0)->memory().bytes(), 0);
}

}  // namespace
}  // namespace penstock
