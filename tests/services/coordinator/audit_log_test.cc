#include "services/coordinator/audit_log.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_split.h"
#include "base/files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_directory.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::AllOf;
using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'900'000'000);

const AuditEntry kCancel = {"cancel", "a-1", std::nullopt};

// Hears what becomes of an entry.
std::future<absl::Status> Start(AuditLog& log, const AuditEntry& entry, const CallInfo& call = {}) {
  auto heard = std::make_shared<std::promise<absl::Status>>();
  log.Record(entry, call, kNow, [heard](const absl::Status& status) { heard->set_value(status); });
  return heard->get_future();
}

absl::Status Record(AuditLog& log, const AuditEntry& entry, const CallInfo& call = {}) {
  return Start(log, entry, call).get();
}

// A disk that takes nothing until it is opened.
class HangingDisk {
 public:
  std::function<int(int)> Sync() {
    return [this](int file) {
      ++syncs_;
      if (syncs_ == 1) reached_.set_value();
      open_.wait();
      return fsync(file);
    };
  }
  void AwaitFirstSync() {
    EXPECT_EQ(reached_.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  }
  void Open() { gate_.set_value(); }
  int syncs() const { return syncs_; }

 private:
  std::promise<void> gate_;
  const std::shared_future<void> open_ = gate_.get_future().share();
  std::promise<void> reached_;
  std::atomic<int> syncs_ = 0;
};

class AuditLogTest : public ::testing::Test {
 protected:
  // Lines of the file; null for one that is no JSON.
  std::vector<nlohmann::json> Lines() const {
    std::vector<nlohmann::json> lines;
    const std::string text = *RealFiles().Read(path_, 1 << 20);
    for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      const auto parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      lines.push_back(parsed.is_discarded() ? nlohmann::json() : parsed);
    }
    return lines;
  }

  const TestDirectory own_;
  const std::string path_ = own_.path() / "audit.jsonl";
};

TEST_F(AuditLogTest, LineThatWasTorn_CostsNoOther) {
  ASSERT_THAT(RealFiles().WriteDurably(path_, {"{\"time\":\"20"}), IsOk());
  AuditLog log({.path = path_});
  EXPECT_THAT(Record(log, {"cancel", "a-1", absl::OkStatus()}), IsOk());
  EXPECT_THAT(Record(log, {"cancel", "a-2", std::nullopt}), IsOk());
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(lines[0].is_null());
  EXPECT_EQ(lines[1]["job_id"], "a-1");
  EXPECT_EQ(lines[1]["outcome"], "OK");
  EXPECT_EQ(lines[2]["outcome"], "requested");
}

TEST_F(AuditLogTest, FieldsOfAnySize_MakeAShortLine) {
  AuditLog log({.path = path_});
  const std::string large(1 << 20, '\n');
  EXPECT_THAT(Record(log, {"cancel", large, absl::NotFoundError(large)}, {.peer = large}), IsOk());
  EXPECT_LT(std::filesystem::file_size(path_), 10 * AuditLog::kFieldBytesMax) << "not megabytes";
  EXPECT_EQ(Lines().size(), 1u);
}

TEST_F(AuditLogTest, FileThatWasMovedAway_IsMadeAnew) {
  AuditLog log({.path = path_});
  ASSERT_THAT(Record(log, {"submit", "a-1", absl::OkStatus()}), IsOk());
  std::filesystem::rename(path_, path_ + ".1");
  ASSERT_THAT(Record(log, {"submit", "a-2", absl::OkStatus()}), IsOk());
  std::filesystem::remove(path_ + ".1");
  ASSERT_EQ(Lines().size(), 1u);
  EXPECT_EQ(Lines()[0]["job_id"], "a-2");
}

TEST_F(AuditLogTest, FullDisk_IsAnError) {
  AuditLog log({.path = "/dev/full"});
  EXPECT_THAT(log.Check(), IsOk());
  EXPECT_THAT(Record(log, {"submit", "", std::nullopt}),
              StatusIs(absl::StatusCode::kResourceExhausted, _));
}

TEST_F(AuditLogTest, EntriesThatWait_GoToTheDiskTogether) {
  constexpr int kEntries = 50;
  HangingDisk disk;
  AuditLog log({.path = path_, .timeout = absl::Seconds(20), .sync = disk.Sync()});
  std::vector<std::future<absl::Status>> heard;
  heard.push_back(Start(log, kCancel));
  disk.AwaitFirstSync();
  for (int i = 1; i < kEntries; ++i) heard.push_back(Start(log, kCancel));
  EXPECT_EQ(heard.back().wait_for(std::chrono::milliseconds(50)), std::future_status::timeout)
      << "nobody hears of it before it is on the disk";
  disk.Open();
  for (std::future<absl::Status>& each : heard) EXPECT_THAT(each.get(), IsOk());
  EXPECT_EQ(disk.syncs(), 2);
  EXPECT_EQ(Lines().size(), size_t{kEntries});
}

TEST_F(AuditLogTest, DiskThatHangs_EveryEntryHearsSoInTimeAndTheLogGoesOnLater) {
  HangingDisk disk;
  AuditLog log({.path = path_, .timeout = absl::Milliseconds(50), .sync = disk.Sync()});
  std::future<absl::Status> on_its_way = Start(log, kCancel);
  disk.AwaitFirstSync();
  std::future<absl::Status> waiting = Start(log, kCancel);
  for (std::future<absl::Status>* each : {&on_its_way, &waiting}) {
    ASSERT_EQ(each->wait_for(std::chrono::seconds(20)), std::future_status::ready);
    EXPECT_THAT(each->get(), StatusIs(absl::StatusCode::kDeadlineExceeded,
                                      AllOf(HasSubstr(path_), HasSubstr("50ms"))));
  }
  disk.Open();
  // The disk has to take what is on its way first.
  const absl::Time limit = absl::Now() + absl::Seconds(20);
  while (!Record(log, {"cancel", "later", std::nullopt}).ok() && absl::Now() < limit) {
  }
  EXPECT_EQ(Lines().back()["job_id"], "later");
}

// The disk lives on: the thread that hangs is in it.
TEST_F(AuditLogTest, DiskHangsAtTheEnd_IsNotWaitedForLong) {
  static HangingDisk& disk = *new HangingDisk;
  auto log = std::make_unique<AuditLog>(
      AuditLogOptions{.path = path_, .timeout = absl::Milliseconds(50), .sync = disk.Sync()});
  std::future<absl::Status> on_its_way = Start(*log, kCancel);
  disk.AwaitFirstSync();
  std::future<absl::Status> waiting = Start(*log, kCancel);
  const absl::Time before = absl::Now();
  log.reset();
  EXPECT_LT(absl::Now() - before, absl::Seconds(20));
  for (std::future<absl::Status>* each : {&on_its_way, &waiting}) {
    ASSERT_EQ(each->wait_for(std::chrono::seconds(0)), std::future_status::ready);
    EXPECT_THAT(each->get(), StatusIs(absl::StatusCode::kDeadlineExceeded, _));
  }
  disk.Open();
}

TEST_F(AuditLogTest, MoreEntriesThanMayWait_AreRefusedAtOnce) {
  HangingDisk disk;
  AuditLog log(
      {.path = path_, .timeout = absl::Seconds(20), .entries_max = 2, .sync = disk.Sync()});
  std::vector<std::future<absl::Status>> heard;
  heard.push_back(Start(log, kCancel));
  disk.AwaitFirstSync();
  for (int i = 0; i < 2; ++i) heard.push_back(Start(log, kCancel));
  EXPECT_THAT(Record(log, kCancel),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("2 entries wait")));
  disk.Open();
  for (std::future<absl::Status>& each : heard) EXPECT_THAT(each.get(), IsOk());
}

}  // namespace
}  // namespace penstock
