// What recording the passes of a stage is worth: how many different keys (compute/pass_graphs.h) the pool and
// a schedule make in a steady state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "compute/pass_graph_table.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/late_device.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr int kSteps = 24;

// What the workers of a run counted together.
struct Tally {
  bool give_up = false;  // the device, at once
  Mutex mutex;
  int64_t passes ABSL_GUARDED_BY(mutex) = 0;
  int64_t replayed ABSL_GUARDED_BY(mutex) = 0;
  size_t keys_max ABSL_GUARDED_BY(mutex) = 0;  // of one pass of one node
};

// Keeps what a device would, and queues every pass.
class CountingGraphs : public PassGraphs {
 public:
  explicit CountingGraphs(Tally& tally) : tally_(tally) {}
  ~CountingGraphs() override {
    MutexLock lock(tally_.mutex);
    tally_.passes += stats_.passes;
    tally_.replayed += stats_.replayed;
    for (const auto& [pass, keys] : keys_) tally_.keys_max = std::max(tally_.keys_max, keys.size());
  }

  void SetSample(int64_t) override {}
  absl::Status Run(const Key& key, absl::FunctionRef<absl::Status()> queue) override {
    ++stats_.passes;
    keys_[{key.node, static_cast<int>(key.pass)}].insert(key.arguments);
    bool seen_before = false;
    auto& entry = table_.Find(key, seen_before);
    if (entry.recording) {
      ++stats_.replayed;
    } else if (seen_before) {
      entry.recording = true;
      ++stats_.recorded;
    }
    return queue();
  }
  Stats stats() const override {
    Stats stats = stats_;
    stats.kept = table_.recordings();
    if (tally_.give_up) stats.given_up = "no capture today";
    return stats;
  }

 private:
  Tally& tally_;
  Stats stats_;
  PassGraphTable<bool> table_;
  std::map<std::pair<int, int>, std::set<decltype(PassGraphs::Key::arguments)>> keys_;
};

class RecordingDevice : public LateDevice {
 public:
  RecordingDevice(uint64_t seed, Tally& tally) : LateDevice(seed), tally_(tally) {}
  std::unique_ptr<PassGraphs> MakePassGraphs() override {
    return std::make_unique<CountingGraphs>(tally_);
  }
  // What arrives lies in memory of its own, as on a GPU (compute/cuda/copies.h).
  absl::StatusOr<Tensor> ToDevice(const Tensor& host) override {
    Tensor tensor = landings_.AcquireTensor(host.dtype, host.shape);
    std::memcpy(tensor.data<void>(), host.data<void>(), host.size_bytes());
    return tensor;
  }

 private:
  Tally& tally_;
  BufferPool landings_{HostMemory()};
};

class GraphsTest : public ::testing::Test {
 protected:
  GraphsTest() { AddTestText(files_); }

  v1::JobSpec Job(const std::string& method, int microbatches) {
    v1::JobSpec spec = SmallJob(method);
    v1::TrainingSpec& training = *spec.mutable_training();
    training.set_steps(kSteps);
    training.set_batch(2 * microbatches);
    training.set_microbatches(microbatches);
    training.set_cuda_graphs("on");
    return spec;
  }

  // On devices that count into `tally`.
  std::vector<v1::StageReport> Train(const v1::JobSpec& spec, int stages, Tally& tally) {
    TestCluster cluster(
        {.spec = spec,
         .layers = EvenSplit(kLayers, stages),
         .on_notice =
             [this](int, const std::string& text) {
               MutexLock lock(mutex_);
               notices_.push_back(text);
             },
         .make_backend = [this,
                          &tally] { return std::make_unique<RecordingDevice>(++devices_, tally); }},
        files_);
    EXPECT_THAT(cluster.prepared(), IsOk());
    cluster.Start();
    for (const absl::Status& status : cluster.Join()) EXPECT_THAT(status, IsOk());
    return cluster.Reports();
  }

  MemoryFiles files_;
  std::atomic<uint64_t> devices_ = 0;
  Mutex mutex_;
  std::vector<std::string> notices_ ABSL_GUARDED_BY(mutex_);
};

// Timing decides which blocks come together, within bounds: less than are kept, and most passes find theirs.
TEST_F(GraphsTest, Schedules_KeysAreFewAndMostPassesAreReplayed) {
  for (const char* method : {"1f1b", "gpipe", "pipedream", "zb-h1"}) {
    for (int stages : {1, 2, 4}) {
      for (int microbatches : {4, 8}) {
        SCOPED_TRACE(absl::StrCat(method, ", stages ", stages, ", microbatches ", microbatches));
        Tally tally;
        Train(Job(method, microbatches), stages, tally);
        MutexLock lock(tally.mutex);
        EXPECT_EQ(tally.passes, int64_t{3} * kLayers * microbatches * kSteps);
        EXPECT_LE(tally.keys_max, static_cast<size_t>(PassGraphs::kKeptMax));
        EXPECT_GE(static_cast<double>(tally.replayed) / static_cast<double>(tally.passes), 0.75);
      }
    }
  }
}

// A forward done again is a pass like the first, into other blocks.
TEST_F(GraphsTest, StagesThatRecompute_ReplayMostPassesToo) {
  for (const char* method : {"1f1b", "gpipe", "pipedream"}) {
    for (int stages : {1, 4}) {
      SCOPED_TRACE(absl::StrCat(method, ", stages ", stages));
      v1::JobSpec spec = Job(method, 8);
      spec.mutable_pipeline()->set_recompute("all");
      Tally tally;
      Train(spec, stages, tally);
      MutexLock lock(tally.mutex);
      EXPECT_EQ(tally.passes, int64_t{4} * kLayers * 8 * kSteps);
      EXPECT_LE(tally.keys_max, static_cast<size_t>(PassGraphs::kKeptMax));
      EXPECT_GE(static_cast<double>(tally.replayed) / static_cast<double>(tally.passes), 0.75);
    }
  }
}

// On one worker nothing comes back at a time of its own.
TEST_F(GraphsTest, OneWorker_KeysRepeatFromTheFirstSteps) {
  Tally tally;
  Train(Job("1f1b", 8), /*stages=*/1, tally);
  MutexLock lock(tally.mutex);
  EXPECT_LE(tally.keys_max, 2u);
}

TEST_F(GraphsTest, Report_CountsThePassesOfEachStage) {
  Tally tally;
  const std::vector<v1::StageReport> reports = Train(Job("1f1b", 4), /*stages=*/2, tally);
  int64_t passes = 0;
  for (const v1::StageReport& report : reports) {
    EXPECT_GT(report.graphs().replayed(), 0);
    EXPECT_GT(report.graphs().recorded(), 0);
    EXPECT_GE(report.graphs().recorded(), report.graphs().kept());
    passes += report.graphs().passes();
  }
  EXPECT_EQ(passes, int64_t{3} * kLayers * 4 * kSteps);
}

TEST_F(GraphsTest, DeviceGivesUp_RunGoesOnAndSaysWhyOnce) {
  Tally tally;
  tally.give_up = true;
  Train(Job("1f1b", 4), /*stages=*/2, tally);
  MutexLock lock(mutex_);
  EXPECT_THAT(notices_, SizeIs(2));
  EXPECT_THAT(notices_, Each(HasSubstr("without training.cuda_graphs: no capture today")));
}

TEST_F(GraphsTest, Off_NothingIsAskedOfTheDevice) {
  Tally tally;
  v1::JobSpec spec = Job("1f1b", 4);
  spec.mutable_training()->set_cuda_graphs("off");
  for (const v1::StageReport& report : Train(spec, /*stages=*/2, tally)) {
    EXPECT_EQ(report.graphs().passes(), 0);
  }
  MutexLock lock(tally.mutex);
  EXPECT_EQ(tally.passes, 0);
}

}  // namespace
}  // namespace penstock
