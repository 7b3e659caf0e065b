// Stashes that wait on the host: the same weights for less memory.
#include <gmock/gmock.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "compute/offload_store.h"
#include "job/resolve.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/late_device.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"
#include "worker/spill_file.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SpillFileTest : public ::testing::Test {
 protected:
  std::unique_ptr<SpillFile> Make(int64_t bytes_max, bool direct = true) {
    absl::StatusOr<std::unique_ptr<SpillFile>> file = SpillFile::Create(
        {.directory = testing::TempDir(), .bytes_max = bytes_max, .direct = direct}, pool_,
        RealClock());
    EXPECT_THAT(file, IsOk());
    return file.ok() ? *std::move(file) : nullptr;
  }

  std::vector<Buffer> Blocks(const std::vector<int64_t>& sizes, int seed) {
    std::vector<Buffer> blocks;
    for (const int64_t size : sizes) {
      blocks.push_back(pool_.Acquire(size));
      auto* const bytes = static_cast<unsigned char*>(blocks.back().data());
      for (int64_t i = 0; i < blocks.back().size_bytes(); ++i) {
        bytes[i] = static_cast<unsigned char>(i * 7 + seed + static_cast<int64_t>(blocks.size()));
      }
    }
    return blocks;
  }
  static std::vector<std::string> BytesOf(const std::vector<Buffer>& blocks) {
    std::vector<std::string> bytes;
    for (const Buffer& block : blocks) {
      bytes.emplace_back(static_cast<const char*>(block.data()),
                         static_cast<size_t>(block.size_bytes()));
    }
    return bytes;
  }

  BufferPool pool_{HostMemory()};
};

TEST_F(SpillFileTest, StashesOfAnySize_ComeBackAsTheyWent) {
  const std::vector<std::vector<int64_t>> stashes = {
      {64}, {1, 4096, 4095}, {3 << 20, 64, (1 << 20) - 64}, {4097, 8192}, {1 << 20}};
  for (const bool direct : {true, false}) {
    int64_t room = 0;
    for (const std::vector<int64_t>& sizes : stashes) {
      int64_t bytes = 0;
      for (const int64_t size : sizes) bytes += BufferPool::BlockBytes(size);
      room += RoomInFile(bytes);
    }
    const std::unique_ptr<SpillFile> file = Make(room, direct);
    ASSERT_NE(file, nullptr);
    for (int round = 0; round < 3; ++round) {
      std::vector<int64_t> numbers;
      std::vector<std::vector<std::string>> expected;
      for (const std::vector<int64_t>& sizes : stashes) {
        const std::vector<Buffer> blocks = Blocks(sizes, round);
        expected.push_back(BytesOf(blocks));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(numbers.emplace_back(), file->StartOut(blocks));
        // All are on their way at once; the file holds what it is still to write.
      }
      for (const int64_t number : numbers) ASSERT_THAT(file->FinishOut(number), IsOk());
      EXPECT_EQ(pool_.stats().bytes_in_use, 0);
      for (size_t i = numbers.size(); i-- > 0;) ASSERT_THAT(file->StartIn(numbers[i]), IsOk());
      for (size_t i = 0; i < numbers.size(); ++i) {
        std::vector<Buffer> blocks;
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const CopySpan span, file->FinishIn(numbers[i], blocks));
        EXPECT_EQ(BytesOf(blocks), expected[i]);
        EXPECT_GE(span.end_ns, span.start_ns);
        EXPECT_GT(span.start_ns, 0);
      }
    }
  }
}

TEST_F(SpillFileTest, MoreThanWasAnnounced_IsRefusedWithBothNumbers) {
  const std::unique_ptr<SpillFile> file = Make(2 * 4096);
  ASSERT_NE(file, nullptr);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const int64_t first, file->StartOut(Blocks({4096}, 1)));
  ASSERT_THAT(file->StartOut(Blocks({64}, 2)), IsOk());
  EXPECT_THAT(file->StartOut(Blocks({64}, 3)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("room for 8192 bytes"), HasSubstr("needs 4096 more"))));
  // The room of what comes back is free at once.
  ASSERT_THAT(file->FinishOut(first), IsOk());
  ASSERT_THAT(file->StartIn(first), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const int64_t third, file->StartOut(Blocks({64}, 3)));
  std::vector<Buffer> blocks;
  ASSERT_THAT(file->FinishIn(first, blocks), IsOk());
  EXPECT_EQ(BytesOf(blocks), BytesOf(Blocks({4096}, 1)));
  EXPECT_THAT(file->FinishOut(third), IsOk());
}

TEST_F(SpillFileTest, WhereNothingCanBeMade_SaysWhereAndWhatToDo) {
  EXPECT_THAT(SpillFile::Create({.directory = "/no/such/place"}, pool_, RealClock()),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("/no/such/place"), HasSubstr("--offload-dir"))));
  // No filesystem has so much.
  EXPECT_THAT(SpillFile::Create({.directory = testing::TempDir(), .bytes_max = int64_t{1} << 62},
                                pool_, RealClock()),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("pipeline.offload")));
}

TEST_F(SpillFileTest, GivenUpInTheMiddle_EndsItsCopies) {
  for (int round = 0; round < 20; ++round) {
    const std::unique_ptr<SpillFile> file = Make(8 << 20);
    ASSERT_NE(file, nullptr);
    ASSERT_THAT(file->StartOut(Blocks({1 << 20}, round)), IsOk());
    ASSERT_THAT(file->StartOut(Blocks({1 << 18}, round)), IsOk());
  }
  EXPECT_EQ(pool_.stats().bytes_in_use, 0);
}

class OffloadTest : public ::testing::Test {
 protected:
  OffloadTest() { AddTestText(files_); }

  static v1::JobSpec With(v1::JobSpec spec, const std::string& offload) {
    spec.mutable_pipeline()->set_offload(offload);
    return spec;
  }
  // So many microbatches that stages have more in flight than stay.
  static v1::JobSpec Job(const Method& method, int workers) {
    v1::JobSpec spec = SmallJob(std::string(method.name));
    spec.mutable_model()->mutable_gpt()->set_dropout(0.2);
    spec.mutable_model()->mutable_gpt()->set_tied_head(method.synchronous);
    const int microbatches = method.steps_in_rounds ? 3 * workers : 6;
    spec.mutable_training()->set_microbatches(microbatches);
    spec.mutable_training()->set_batch(2 * microbatches);
    return spec;
  }

  absl::StatusOr<Trained> Train(const v1::JobSpec& spec, int stages, uint64_t delay_seed = 0) {
    return TrainCluster(
        {.spec = spec, .layers = EvenSplit(kLayers, stages), .delay_seed = delay_seed}, files_);
  }
  absl::StatusOr<Trained> Reference(const v1::JobSpec& spec, int stages) {
    return TrainSerially(spec, EvenSplit(kLayers, stages), {}, files_);
  }

  static int64_t OffloadedBytes(const Trained& trained) {
    int64_t bytes = 0;
    for (const v1::StageReport& report : trained.reports) bytes += report.offloaded_bytes();
    return bytes;
  }

  MemoryFiles files_;
};

TEST_F(OffloadTest, EveryMethod_AllOrSome_IsTheSerialReferenceWithout) {
  int64_t offloaded = 0;
  for (const Method& method : Methods()) {
    if (method.placement == Placement::kRoundTrip) continue;
    for (const int workers : {1, 3, 4}) {
      const int stages = workers * StagesPerWorkerMin(method.placement);
      if (stages > kLayers) continue;
      const v1::JobSpec spec = Job(method, workers);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, Reference(spec, stages));
      for (const std::string offload : {"all:2", "0"}) {
        SCOPED_TRACE(absl::StrCat(std::string(method.name), ", ", stages, " stages, ", offload));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                      Train(With(spec, offload), stages, /*delay_seed=*/stages));
        ExpectSameTraining(cluster, serial);
        offloaded += OffloadedBytes(cluster);
      }
    }
  }
  EXPECT_GT(offloaded, 0);
}

TEST_F(OffloadTest, DeviceWithItsOwnMemory_GivesTheSameBits) {
  for (const char* method : {"gpipe", "1f1b", "zb-h1", "pipedream"}) {
    SCOPED_TRACE(method);
    const v1::JobSpec spec = Job(**FindMethod(absl::string_view(method)), 4);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, Reference(spec, 4));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained cluster,
        TrainCluster({.spec = With(spec, "all:2"),
                      .layers = EvenSplit(kLayers, 4),
                      .make_backend = [] { return std::make_unique<LateDevice>(3); },
                      .offload_directory = ""},
                     files_));
    ExpectSameTraining(cluster, serial);
    EXPECT_GT(OffloadedBytes(cluster), 0);
  }
}

TEST_F(OffloadTest, Bf16ValidationAndCuts_AreTheSame) {
  for (const char* method : {"1f1b", "pipedream", "gpipe"}) {
    v1::JobSpec spec = Job(**FindMethod(absl::string_view(method)), 4);
    spec.mutable_training()->set_steps(5);
    spec.mutable_training()->set_precision("bf16");
    spec.mutable_validation()->set_every_steps(2);
    spec.mutable_validation()->set_batches(2);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, Reference(spec, 4));
    ASSERT_FALSE(serial.validations.empty());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster, Train(With(spec, "0:2,1:2"), 4, 2));
    ExpectSameTraining(cluster, serial);
  }
}

TEST_F(OffloadTest, ScheduleFileWithMoves_IsTheSerialReference) {
  v1::JobSpec spec = SmallJob(std::string(ListedMethod().name));
  spec.mutable_pipeline()->set_schedule_file("step.csv");
  const std::string second = ",1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n";
  spec.mutable_pipeline()->set_schedule("0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n" + second);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, Reference(spec, 2));
  spec.mutable_pipeline()->set_schedule(
      "0F0,0F1,0F2,0OFFLOAD2,0F3,0EVICT2,0OFFLOAD3,0B0,0EVICT3,0PREFETCH2,0B1,0PREFETCH3,0B2,"
      "0B3\n" +
      second);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster, Train(spec, 2, /*delay_seed=*/5));
  ExpectSameTraining(cluster, serial);
  EXPECT_GT(cluster.reports[0].offloaded_bytes(), 0);
  EXPECT_EQ(cluster.reports[1].offloaded_bytes(), 0);
  EXPECT_THAT(ResolveJob(With(spec, "0")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("says itself which stashes")));
}

TEST_F(OffloadTest, WithoutADirectory_IsRefused) {
  const v1::JobSpec spec = With(Job(**FindMethod(absl::string_view("gpipe")), 1), "all");
  EXPECT_THAT(TrainCluster({.spec = spec, .layers = EvenSplit(kLayers, 1), .offload_directory = ""},
                           files_),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("--offload-dir")));
}

// Large enough that messages in mailboxes, whose number depends on timing, weigh little.
v1::JobSpec LargeJob(const std::string& method) {
  v1::JobSpec spec = SmallJob(method);
  v1::GptSpec& gpt = *spec.mutable_model()->mutable_gpt();
  gpt.set_layers(4);
  gpt.set_width(64);
  gpt.set_heads(2);
  gpt.set_context(32);
  spec.mutable_training()->set_batch(16);
  spec.mutable_training()->set_microbatches(8);
  return spec;
}

TEST_F(OffloadTest, Peak_IsThatOfThePlanAndSmallerThanWithout) {
  for (const std::string method : {"gpipe", "1f1b", "pipedream"}) {
    for (const int stages : {1, 4}) {
      for (const int stashes : {2, 3}) {
        const std::vector<LayerRange> layers = EvenSplit(11, stages);
        PENSTOCK_ASSERT_OK_AND_ASSIGN(
            const Trained plain,
            TrainCluster({.spec = LargeJob(method), .layers = layers}, files_));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(
            const Trained moved,
            TrainCluster(
                {.spec = With(LargeJob(method), absl::StrCat("all:", stashes)), .layers = layers},
                files_));
        ExpectSameTraining(moved, plain);
        for (size_t s = 0; s < plain.reports.size(); ++s) {
          const v1::StageReport& before = plain.reports[s];
          const v1::StageReport& after = moved.reports[s];
          SCOPED_TRACE(testing::Message() << method << ", stage " << s << " of " << stages);
          const auto predicted = static_cast<double>(after.predicted_memory_bytes());
          EXPECT_NEAR(static_cast<double>(after.peak_memory_bytes()) / predicted, 1.0, 0.05)
              << after.peak_memory_bytes() << " measured, " << predicted << " predicted";
          if (stages == 1) {
            EXPECT_EQ(after.peak_memory_bytes(), after.predicted_memory_bytes());
          }
          EXPECT_EQ(after.activations_peak(), before.activations_peak());
          if (before.activations_peak() <= stashes) continue;
          EXPECT_LT(after.peak_memory_bytes(), before.peak_memory_bytes());
          EXPECT_LT(after.predicted_memory_bytes(), before.predicted_memory_bytes());
        }
      }
    }
  }
}

TEST_F(OffloadTest, AfterTheWarmUp_NoBlockIsTakenFromTheSystem) {
  v1::JobSpec spec = With(Job(**FindMethod(absl::string_view("gpipe")), 1), "all:2");
  spec.mutable_training()->set_steps(12);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained trained, Train(spec, 1));
  EXPECT_EQ(trained.reports[0].allocations_steady(), 0);
  EXPECT_GT(trained.reports[0].offloaded_bytes(), 0);
}

}  // namespace
}  // namespace penstock
