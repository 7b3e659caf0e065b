#include "services/coordinator/audit_log.h"

#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_split.h"
#include "base/files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_directory.h"

namespace penstock {
namespace {

using ::testing::_;

const absl::Time kNow = absl::FromUnixSeconds(1'900'000'000);

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
  AuditLog log(path_);
  EXPECT_THAT(log.Record({"cancel", "a-1", absl::OkStatus()}, {}, kNow), IsOk());
  EXPECT_THAT(log.Record({"cancel", "a-2", std::nullopt}, {}, kNow), IsOk());
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(lines[0].is_null());
  EXPECT_EQ(lines[1]["job_id"], "a-1");
  EXPECT_EQ(lines[1]["outcome"], "OK");
  EXPECT_EQ(lines[2]["outcome"], "requested");
}

TEST_F(AuditLogTest, FieldsOfAnySize_MakeAShortLine) {
  AuditLog log(path_);
  const std::string large(1 << 20, '\n');
  EXPECT_THAT(log.Record({"cancel", large, absl::NotFoundError(large)}, {.peer = large}, kNow),
              IsOk());
  EXPECT_LT(std::filesystem::file_size(path_), 10 * AuditLog::kFieldBytesMax) << "not megabytes";
  EXPECT_EQ(Lines().size(), 1u);
}

TEST_F(AuditLogTest, FileThatWasMovedAway_IsMadeAnew) {
  AuditLog log(path_);
  ASSERT_THAT(log.Record({"submit", "a-1", absl::OkStatus()}, {}, kNow), IsOk());
  std::filesystem::rename(path_, path_ + ".1");
  ASSERT_THAT(log.Record({"submit", "a-2", absl::OkStatus()}, {}, kNow), IsOk());
  std::filesystem::remove(path_ + ".1");
  ASSERT_EQ(Lines().size(), 1u);
  EXPECT_EQ(Lines()[0]["job_id"], "a-2");
}

TEST_F(AuditLogTest, FullDisk_IsAnError) {
  AuditLog log("/dev/full");
  EXPECT_THAT(log.Check(), IsOk());
  EXPECT_THAT(log.Record({"submit", "", std::nullopt}, {}, kNow),
              StatusIs(absl::StatusCode::kResourceExhausted, _));
}

}  // namespace
}  // namespace penstock
