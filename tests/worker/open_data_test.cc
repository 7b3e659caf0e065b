#include "worker/open_data.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "data/record_writer.h"
#include "job/defaults.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_directory.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"
#include "worker/reference.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// As many records of tokens and targets as a model of `context` reads.
void WriteTokenRecords(Files& files, const std::string& directory, int64_t records,
                       int64_t context) {
  auto writer = RecordWriter::Create(
      files, directory, {{"targets", "I32", {context}}, {"tokens", "I32", {context}}}, 1 << 10);
  ASSERT_THAT(writer, IsOk());
  for (int64_t record = 0; record < records; ++record) {
    const std::vector<int32_t> tokens(context, static_cast<int32_t>(record % 200));
    const auto bytes = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(tokens.data()),
                                           context * sizeof(int32_t));
    ASSERT_THAT((*writer)->Add({bytes, bytes}), IsOk());
  }
  ASSERT_THAT((*writer)->Finish(), IsOk());
}

v1::JobSpec RecordsJob(const std::string& path) {
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_data()->mutable_records()->set_path(path);
  FillDefaults(spec);
  return spec;
}

absl::StatusOr<std::unique_ptr<DataSource>> Open(Files& files, const v1::JobSpec& spec) {
  const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
  EXPECT_THAT(job, IsOk());
  return OpenData(files, spec, *job, "/data", RunLimits());
}

TEST(OpenData, EveryKind_FillsTheModelsPorts) {
  MemoryFiles files;
  ASSERT_THAT(files.WriteDurably(kTextPath, {TestText()}), IsOk());
  WriteTokenRecords(files, "/data/records", 50, 8);
  v1::JobSpec synthetic = SmallJob("1f1b");
  synthetic.mutable_data()->mutable_synthetic();
  for (const v1::JobSpec& spec : {SmallJob("1f1b"), RecordsJob("records"), synthetic}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto data, Open(files, spec));
    for (const int port : {0, 1}) {
      std::vector<int32_t> tokens(3 * 8, -1);
      ASSERT_THAT(data->Read(Split::kTraining, 5, port,
                             absl::MakeSpan(reinterpret_cast<std::byte*>(tokens.data()),
                                            tokens.size() * sizeof(int32_t))),
                  IsOk());
      for (const int32_t token : tokens) EXPECT_TRUE(token >= 0 && token < 256);
    }
  }
}

TEST(OpenData, Reference_TrainsOnRecords) {
  MemoryFiles files;
  WriteTokenRecords(files, "/data/records", 50, 8);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto backend, MakeCpuBackend(1));
  const auto train = [&](const v1::JobSpec& spec) {
    return TrainReference({.spec = spec, .stages = {{0, kLayers}}, .data_root = "/data"}, files,
                          *backend);
  };
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ReferenceResult shuffled, train(RecordsJob("records")));
  v1::JobSpec stored = RecordsJob("/data/records");
  stored.mutable_data()->mutable_records()->set_order("sequential");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ReferenceResult sequential, train(stored));
  EXPECT_NE(shuffled.weights_sha256, sequential.weights_sha256);
}

TEST(OpenData, ClusterOnRecords_TrainsAsTheReference) {
  MemoryFiles files;
  WriteTokenRecords(files, "/data/records", 70, 8);
  for (const char* method : {"1f1b", "pipedream"}) {
    v1::JobSpec spec = RecordsJob("/data/records");
    spec.mutable_pipeline()->set_method(method);
    spec.mutable_training()->set_steps(20);  // more than two epochs
    spec.mutable_validation()->set_every_steps(10);
    spec.mutable_validation()->set_batches(4);
    spec.mutable_data()->mutable_records()->set_validation_fraction(0.5);
    const std::vector<LayerRange> layers = EvenSplit(kLayers, 3);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec, layers, {}, files));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                  TrainCluster({.spec = spec, .layers = layers}, files));
    ExpectSameTraining(cluster, serial);
    EXPECT_EQ(cluster.validations.size(), 2u);
  }
}

TEST(OpenData, AnotherIndex_IsRefused) {
  MemoryFiles files;
  WriteTokenRecords(files, "/data/records", 50, 8);
  v1::JobSpec spec = RecordsJob("records");
  spec.mutable_data()->mutable_records()->set_sha256(std::string(64, 'a'));
  EXPECT_THAT(Open(files, spec).status(),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("/data/records/index.json")));
}

class CheckJobDataTest : public ::testing::Test {
 protected:
  absl::Status Check(v1::JobSpec& spec) {
    const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
    EXPECT_THAT(job, IsOk());
    return CheckJobData(RealFiles(), Root(), *job, spec);
  }

  std::string Root() const { return directory_.path().string(); }
  std::string Path(const char* name) const { return (directory_.path() / name).string(); }

  TestDirectory directory_;
};

TEST_F(CheckJobDataTest, Records_GetTheDigestsOfBothDirectories) {
  WriteTokenRecords(RealFiles(), Path("train"), 50, 8);
  WriteTokenRecords(RealFiles(), Path("test"), 20, 8);
  v1::JobSpec spec = RecordsJob("train");
  spec.mutable_data()->mutable_records()->set_validation("test");
  spec.mutable_data()->mutable_records()->set_validation_fraction(0.0);
  EXPECT_TRUE(JobDataIsHere(Root(), spec));
  ASSERT_THAT(Check(spec), IsOk());
  EXPECT_EQ(spec.data().records().sha256().size(), 64u);
  EXPECT_EQ(spec.data().records().validation_sha256().size(), 64u);
  ASSERT_THAT(Check(spec), IsOk());

  std::ofstream(Path("test/index.json"), std::ios::app) << " ";
  EXPECT_THAT(Check(spec),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("data.records.validation_sha256: ")));
}

TEST_F(CheckJobDataTest, RecordsThatAreNotThere_AreNamedWithTheirKey) {
  v1::JobSpec spec = RecordsJob("train");
  EXPECT_FALSE(JobDataIsHere(Root(), spec));
  EXPECT_THAT(Check(spec),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("data.records.path: "), HasSubstr("train does not exist"),
                             HasSubstr("--data DIR"))));
  std::filesystem::create_directory(Path("train"));
  EXPECT_THAT(Check(spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                    HasSubstr("train is no directory of records")));
}

TEST_F(CheckJobDataTest, ChangedShard_IsFound) {
  WriteTokenRecords(RealFiles(), Path("train"), 50, 8);
  const std::string shard = Path("train/00000.safetensors");
  std::fstream(shard, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end)
      << 'x';
  v1::JobSpec spec = RecordsJob("train");
  EXPECT_THAT(Check(spec), StatusIs(absl::StatusCode::kDataLoss,
                                    AllOf(HasSubstr("data.records: "), HasSubstr(shard))));
}

TEST_F(CheckJobDataTest, Interrupted_Ends) {
  WriteTokenRecords(RealFiles(), Path("train"), 50, 8);
  v1::JobSpec spec = RecordsJob("train");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  EXPECT_THAT(CheckJobData(RealFiles(), Root(), job, spec, [] { return true; }),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("interrupted while train")));
}

TEST_F(CheckJobDataTest, Synthetic_NeedsNothing) {
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_data()->mutable_synthetic();
  EXPECT_TRUE(JobDataIsHere(Root(), spec));
  EXPECT_THAT(Check(spec), IsOk());
}

}  // namespace
}  // namespace penstock
