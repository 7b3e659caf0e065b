// penstock data put, and jobs that train on what was put: a coordinator and three workers without a common disk, and links that
// are cut.
//
// With PENSTOCK_PUT_MEBIBYTES=1024 the file has that size, and the figures are printed.
#include <gmock/gmock.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>

#include "base/sha256.h"
#include "tests/services/cli/cluster_fixture.h"
#include "tests/services/transport/tcp_proxy.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMebibyte = 1 << 20;
constexpr std::chrono::seconds kLong(1800);

int64_t FileBytes() {
  const char* const mebibytes = std::getenv("PENSTOCK_PUT_MEBIBYTES");
  return (mebibytes == nullptr ? 5 : std::atoi(mebibytes)) * kMebibyte + 12'345;
}

class DataPutTest : public ClusterFixture {
 protected:
  void SetUp() override {
    MakeCertificates();
    coordinator_flags_ = {"--data-directory", job_.path("store")};
    StartCoordinator("127.0.0.1:0");
    for (int i = 0; i < 3; ++i) StartWorker({"--data-cache", CacheOf(i)});
    ASSERT_TRUE(Eventually([&] { return RunJson({"workers"}).size() == 3; })) << address_;
    WriteBig();
  }

  std::string CacheOf(int worker) const { return job_.path("cache-" + std::to_string(worker)); }

  // Bytes that no compression and no repetition helps with, and their digest.
  void WriteBig() {
    std::mt19937_64 random(7);
    Sha256 sha256;
    std::ofstream file(job_.path("big.txt"), std::ios::binary);
    std::vector<uint64_t> block(kMebibyte / sizeof(uint64_t));
    for (int64_t left = FileBytes(); left > 0; left -= kMebibyte) {
      for (uint64_t& word : block) word = random();
      const auto* const bytes = reinterpret_cast<const char*>(block.data());
      const int64_t size = std::min(left, kMebibyte);
      file.write(bytes, size);
      sha256.Update(bytes, static_cast<size_t>(size));
    }
    digest_ = sha256.HexDigest();
  }

  static std::string DigestOf(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    Sha256 sha256;
    std::vector<char> block(kMebibyte);
    while (file.read(block.data(), kMebibyte), file.gcount() > 0) {
      sha256.Update(block.data(), static_cast<size_t>(file.gcount()));
    }
    return sha256.HexDigest();
  }

  // `penstock data put` through another address.
  std::vector<std::string> PutThrough(const std::string& address,
                                      std::vector<std::string> more = {}) const {
    std::vector<std::string> command = {ProgramPath("penstock"),
                                        "data",
                                        "put",
                                        job_.path("big.txt"),
                                        "--coordinator",
                                        address,
                                        "--certificates",
                                        certificates("client"),
                                        "--json"};
    command.insert(command.end(), more.begin(), more.end());
    return command;
  }

  int port() const { return std::stoi(address_.substr(address_.rfind(':') + 1)); }

  std::string digest_;  // of big.txt
};

TEST_F(DataPutTest, OverALinkThatIsCutTwice_NoByteIsSentTwiceBeyondOnePartAndWorkersTrainOnIt) {
  TcpProxy link(port());
  link.CutEvery(FileBytes() / 3, /*times=*/2);
  const auto begin = std::chrono::steady_clock::now();
  const ProcessResult put = Process(PutThrough(link.address())).Wait(kLong);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  ASSERT_EQ(put.exit_code, 0) << put.err;
  EXPECT_EQ(link.cuts_left(), 0);
  const Json report = Json::parse(put.out)[0];
  EXPECT_EQ(report["path"], "sha256:" + digest_);
  EXPECT_EQ(report["bytes"], FileBytes());
  EXPECT_GE(report["breaks"], 2);
  EXPECT_LE(report["bytes_sent_again"], 2 * kMebibyte) << "one part for each cut";
  EXPECT_EQ(report["bytes_sent"].get<int64_t>() - report["bytes_sent_again"].get<int64_t>(),
            FileBytes());
  EXPECT_EQ(DigestOf(job_.path("store/" + digest_)), digest_);
  std::cout << "put " << FileBytes() << " bytes in " << seconds.count() << " s, sent again "
            << report["bytes_sent_again"] << ", breaks " << report["breaks"] << "\n";

  const ProcessResult again = Process(PutThrough(address_)).Wait(kLong);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(Json::parse(again.out)[0]["bytes_sent"], 0);

  // The same job with the file on a disk that all have gives the same weights.
  const std::vector<std::string> submit = {"submit", job_.job(), "--set", "pipeline.stages=3",
                                           "--json"};
  job_.EditJob("path: input.txt", "path: big.txt");
  Process local(Reaching(submit));
  const ProcessResult expected = local.Wait(kLong);
  ASSERT_EQ(expected.exit_code, 0) << expected.err;
  job_.EditJob("path: big.txt", "path: sha256:" + digest_);
  const auto fetch_begin = std::chrono::steady_clock::now();
  Process fetching(Reaching(submit));
  const ProcessResult trained = fetching.Wait(kLong);
  const std::chrono::duration<double> job_seconds = std::chrono::steady_clock::now() - fetch_begin;
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(Json::parse(trained.out)["weights_sha256"],
            Json::parse(expected.out)["weights_sha256"]);
  int holders = 0;
  for (int i = 0; i < 3; ++i) {
    const std::string cached = CacheOf(i) + "/" + digest_;
    if (!std::filesystem::exists(cached)) continue;
    ++holders;
    EXPECT_EQ(DigestOf(cached), digest_);
  }
  EXPECT_EQ(holders, 2) << "the stage in the middle reads neither inputs nor targets";
  std::cout << "the job that fetched it on " << holders << " workers took " << job_seconds.count()
            << " s\n";
}

TEST_F(DataPutTest, KilledClientAndKilledCoordinator_GoOnWhereTheDiskEnds) {
  TcpProxy link(port());
  link.CutEvery(FileBytes() / 2,
                /*times=*/1'000'000);  // never comes to the end of the file at once
  {
    Process client(PutThrough(link.address()));
    ASSERT_TRUE(Eventually([&] {
      const Json files = RunJson({"data", "list"});
      return !files.empty() && files[0]["bytes_held"] > 0;
    }));
    client.Signal(SIGKILL);
    client.Wait(kMinute);
  }
  coordinator_->Signal(SIGKILL);
  coordinator_->Wait(kMinute);
  StartCoordinator(address_);
  const ProcessResult put = Process(PutThrough(address_)).Wait(kLong);
  ASSERT_EQ(put.exit_code, 0) << put.err;
  const Json report = Json::parse(put.out)[0];
  EXPECT_GT(report["bytes_held_before"], 0);
  EXPECT_EQ(report["bytes_sent"].get<int64_t>() + report["bytes_held_before"].get<int64_t>(),
            FileBytes());
  EXPECT_EQ(DigestOf(job_.path("store/" + digest_)), digest_);
}

TEST_F(DataPutTest, WrongDigest_IsRefusedAndNothingStays) {
  const ProcessResult put =
      Process(PutThrough(address_, {"--sha256", std::string(64, '0')})).Wait(kLong);
  EXPECT_EQ(put.exit_code, 2) << put.err;
  EXPECT_THAT(put.err, HasSubstr("has the SHA-256 " + digest_));
  EXPECT_TRUE(RunJson({"data", "list"}).empty());
}

TEST_F(DataPutTest, FileThatIsNotThere_FailsTheJobWithWhatToDo) {
  job_.EditJob("path: input.txt", "path: sha256:" + std::string(64, '1'));
  const ProcessResult submitted =
      Run({"submit", job_.job(), "--set", "pipeline.stages=3", "--json"});
  EXPECT_NE(submitted.exit_code, 0);
  EXPECT_THAT(submitted.out + submitted.err, HasSubstr("put the file again"));
}

}  // namespace
}  // namespace penstock
