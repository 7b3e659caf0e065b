// Files of checkpoints that a worker sends to a coordinator and reads from it, over links and with coordinators that fail.
#include "services/worker/remote_checkpoints.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/rpc/data_part.h"
#include "services/worker/part_transfer.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const char* const kLayerFile = "/root/step-000000000007.tmp-job-1/layer-000-any.safetensors";
constexpr int64_t kPart = rpc_limits::kDataPartBytesMax;
constexpr int64_t kBytesMax = 64 << 20;

std::string Content(int64_t bytes) {
  std::string content(static_cast<size_t>(bytes), '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 + i / 251);
  return content;
}

class RemoteCheckpointsTest : public ::testing::Test {
 protected:
  // What happens to a call.
  enum class Fate { kDone, kLostBefore, kAnswerLost, kDamaged, kSlow, kNearlySlow };

  Fate NextFate() {
    ++calls_;
    if (fates_.empty()) return otherwise_;
    const Fate fate = fates_.front();
    fates_.pop_front();
    return fate;
  }

  // Errors: what the fate says of a call that is not done.
  static absl::Status BeforeIt(Fate fate) {
    if (fate == Fate::kLostBefore) return absl::UnavailableError("coordinator x: link cut");
    if (fate == Fate::kSlow) return absl::DeadlineExceededError("coordinator x: no answer");
    if (fate == Fate::kNearlySlow) absl::SleepFor(kPartCallTimeout / 4);
    return absl::OkStatus();
  }

  absl::StatusOr<v1::WritePartResponse> Write(v1::WritePartRequest request) {
    const Fate fate = NextFate();
    if (absl::Status status = BeforeIt(fate); !status.ok()) return status;
    if (fate == Fate::kDamaged) request.mutable_bytes()->back() ^= 1;
    if (absl::Status status = CheckPart(request); !status.ok()) return status;
    sizes_.push_back(static_cast<int64_t>(request.bytes().size()));
    std::string& file = files_[request.path()];
    if (request.offset() == 0) file.clear();
    if (request.offset() == static_cast<int64_t>(file.size())) file += request.bytes();
    if (after_write_) after_write_(file);
    if (fate == Fate::kAnswerLost) return absl::UnavailableError("coordinator x: answer lost");
    v1::WritePartResponse response;
    response.set_held_bytes(static_cast<int64_t>(file.size()));
    return response;
  }

  absl::StatusOr<v1::ReadPartResponse> Read(const v1::ReadPartRequest& request) {
    const Fate fate = NextFate();
    if (absl::Status status = BeforeIt(fate); !status.ok()) return status;
    parts_seen_.push_back(remote_.parts());
    const auto file = files_.find(request.path());
    if (file == files_.end()) return absl::NotFoundError("cannot open it: it is not there");
    v1::ReadPartResponse response;
    response.set_size_bytes(static_cast<int64_t>(file->second.size()));
    SetPart(file->second.substr(static_cast<size_t>(request.offset()),
                                static_cast<size_t>(request.bytes_max())),
            response);
    if (fate == Fate::kDamaged) response.mutable_bytes()->back() ^= 1;
    return response;
  }

  std::unique_ptr<FileStore> Files() {
    return remote_.ForRun([this] { return stop_; });
  }

  std::map<std::string, std::string> files_;  // at the coordinator
  std::deque<Fate> fates_;                    // of the next calls
  Fate otherwise_ = Fate::kDone;
  std::function<void(std::string& file)> after_write_;
  int calls_ = 0;
  std::vector<int64_t> sizes_;       // of parts that came
  std::vector<int64_t> parts_seen_;  // at each part that was read
  absl::Status stop_;
  RemoteCheckpoints remote_{{.write = [this](const v1::WritePartRequest& request,
                                             absl::Duration) { return Write(request); },
                             .read = [this](const v1::ReadPartRequest& request,
                                            absl::Duration) { return Read(request); }},
                            absl::Milliseconds(300)};
};

TEST_F(RemoteCheckpointsTest, FilesOfAnySize_ArriveAndAreReadAgain) {
  for (const int64_t bytes :
       {int64_t{0}, int64_t{1}, kPart - 1, kPart, kPart + 1, 3 * kPart + 17}) {
    SCOPED_TRACE(bytes);
    const std::string content = Content(bytes);
    const absl::string_view text = content;
    const size_t cut = content.size() / 3;
    ASSERT_THAT(Files()->CreateDirectories("/root"), IsOk());
    ASSERT_THAT(Files()->WriteDurably(kLayerFile, {text.substr(0, cut), "", text.substr(cut)}),
                IsOk());
    EXPECT_EQ(files_[kLayerFile], content);
    EXPECT_THAT(Files()->Read(kLayerFile, kBytesMax), IsOkAndHolds(content));
  }
}

TEST_F(RemoteCheckpointsTest, LostCallsLostAnswersAndDamagedParts_AreMadeGood) {
  const std::string content = Content(4 * kPart);
  fates_ = {Fate::kAnswerLost, Fate::kDone,       Fate::kLostBefore, Fate::kDamaged,   Fate::kDone,
            Fate::kDamaged,    Fate::kAnswerLost, Fate::kDone,       Fate::kAnswerLost};
  ASSERT_THAT(Files()->WriteDurably(kLayerFile, {content}), IsOk());
  EXPECT_EQ(files_[kLayerFile], content);
  fates_ = {Fate::kLostBefore, Fate::kDone, Fate::kDamaged, Fate::kDone, Fate::kLostBefore};
  EXPECT_THAT(Files()->Read(kLayerFile, kBytesMax), IsOkAndHolds(content));
}

TEST_F(RemoteCheckpointsTest, CoordinatorThatLostTheEndWithItsMachine_GetsItAgain) {
  const std::string content = Content(4 * kPart);
  int writes = 0;
  after_write_ = [&](std::string& file) {
    if (++writes == 3) file.resize(static_cast<size_t>(kPart) + 5);
  };
  ASSERT_THAT(Files()->WriteDurably(kLayerFile, {content}), IsOk());
  EXPECT_EQ(files_[kLayerFile], content);
}

TEST_F(RemoteCheckpointsTest, CoordinatorThatLosesItAgainAndAgain_IsGivenUp) {
  after_write_ = [](std::string& file) { file.clear(); };
  EXPECT_THAT(Files()->WriteDurably(kLayerFile, {Content(2 * kPart)}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(kLayerFile), HasSubstr("lost again and again"))));
}

TEST_F(RemoteCheckpointsTest, CoordinatorThatStaysAway_IsWaitedForAndThenGivenUp) {
  otherwise_ = Fate::kLostBefore;
  const absl::Time begun = absl::Now();
  const auto given_up =
      StatusIs(absl::StatusCode::kUnavailable,
               AllOf(HasSubstr(kLayerFile), HasSubstr("for 300ms"), HasSubstr("link cut")));
  EXPECT_THAT(Files()->WriteDurably(kLayerFile, {"x"}), given_up);
  EXPECT_GE(absl::Now() - begun, absl::Milliseconds(300));
  EXPECT_THAT(Files()->Read(kLayerFile, kBytesMax), given_up);
}

TEST_F(RemoteCheckpointsTest, PartsThatAreAlwaysDamaged_SayNothingAboutTheCheckpoint) {
  files_[kLayerFile] = "whole";
  otherwise_ = Fate::kDamaged;
  EXPECT_THAT(Files()->Read(kLayerFile, kBytesMax),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("came damaged")));
}

TEST_F(RemoteCheckpointsTest, ErrorsThatDoNotPass_AreGivenAtOnce) {
  EXPECT_THAT(Files()->Read(kLayerFile, kBytesMax),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(kLayerFile)));
  files_[kLayerFile] = Content(100);
  EXPECT_THAT(Files()->Read(kLayerFile, 99),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("more than the limit of 99")));
  EXPECT_EQ(calls_, 2);
}

TEST_F(RemoteCheckpointsTest, RunThatIsStopped_WaitsNoLonger) {
  stop_ = absl::AbortedError("stopped: cancelled");
  otherwise_ = Fate::kLostBefore;
  EXPECT_THAT(Files()->WriteDurably(kLayerFile, {"x"}),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("stopped: cancelled")));
  EXPECT_THAT(Files()->Read(kLayerFile, kBytesMax),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("stopped: cancelled")));
  EXPECT_EQ(calls_, 0);
}

TEST_F(RemoteCheckpointsTest, SlowLink_GetsSmallerParts) {
  fates_ = {Fate::kSlow, Fate::kSlow};
  ASSERT_THAT(Files()->WriteDurably(kLayerFile, {Content(kPart)}), IsOk());
  ASSERT_FALSE(sizes_.empty());
  EXPECT_EQ(sizes_.front(), kPart / 4);
}

TEST_F(RemoteCheckpointsTest, LinkThatIsQuickAgain_GetsLargerParts) {
  fates_ = {Fate::kSlow, Fate::kSlow};
  ASSERT_THAT(Files()->WriteDurably(kLayerFile, {Content(8 * kPart)}), IsOk());
  std::vector<int64_t> expected(4, kPart / 4);
  expected.insert(expected.end(), 4, kPart / 2);
  expected.insert(expected.end(), 5, kPart);
  EXPECT_EQ(sizes_, expected);
}

TEST_F(RemoteCheckpointsTest, LinkThatIsNearlyTooSlow_KeepsSmallParts) {
  constexpr int64_t kHalf = kPart / 2;
  fates_ = {Fate::kSlow, Fate::kDone, Fate::kDone, Fate::kDone, Fate::kNearlySlow};
  ASSERT_THAT(Files()->WriteDurably(kLayerFile, {Content(8 * kHalf)}), IsOk());
  EXPECT_EQ(sizes_, std::vector<int64_t>(8, kHalf));
}

TEST_F(RemoteCheckpointsTest, PartsAreCountedOverAllFilesOfARun) {
  const std::unique_ptr<FileStore> run = Files();
  for (int file = 0; file < 3; ++file) {
    const std::string path = absl::StrCat(kLayerFile, file);
    files_[path] = Content(file == 0 ? 2 * kPart : 100);
    ASSERT_THAT(run->Read(path, kBytesMax), IsOk());
  }
  EXPECT_EQ(parts_seen_, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(remote_.parts(), 4);
  ASSERT_THAT(run->WriteDurably(kLayerFile, {"x"}), IsOk());
  EXPECT_EQ(remote_.parts(), 4) << "only what is read counts";
  Files();
  EXPECT_EQ(remote_.parts(), 0) << "the next run has read nothing yet";
}

}  // namespace
}  // namespace penstock
