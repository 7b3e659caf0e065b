// Paths that somebody else names: none may lead out of the directories that are meant.
#include "base/confined_files.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/files.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;
using ::testing::_;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSizeMax = 1 << 20;
constexpr char kSecret[] = "secret";

//   outside/secret.txt         must never be read or changed
//   outside/root/in.txt        and dir/, and links in and out
//   outside/root2/secret.txt   whose path begins with the root's letters
class ConfinedFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    outside_ = ::testing::TempDir() + "penstock-confined-XXXXXX";
    ASSERT_NE(mkdtemp(outside_.data()), nullptr);
    root_ = outside_ + "/root";
    fs::create_directories(root_ + "/dir");
    fs::create_directories(outside_ + "/root2");
    for (const char* path : {"/secret.txt", "/root2/secret.txt"}) {
      ASSERT_THAT(RealFiles().WriteDurably(outside_ + path, {kSecret}), IsOk());
    }
    ASSERT_THAT(RealFiles().WriteDurably(root_ + "/in.txt", {"in"}), IsOk());
    fs::create_symlink("in.txt", root_ + "/link");
    fs::create_symlink("../in.txt", root_ + "/dir/link");
    fs::create_symlink("../secret.txt", root_ + "/out");
    fs::create_symlink(outside_ + "/secret.txt", root_ + "/out-absolute");
    fs::create_symlink("..", root_ + "/up");
    fs::create_symlink("out", root_ + "/out-twice");
    fs::create_symlink("/proc/self/root", root_ + "/magic");
    auto files = ConfinedFiles::Open({root_});
    ASSERT_THAT(files, IsOk());
    files_ = *std::move(files);
  }
  void TearDown() override { fs::remove_all(outside_); }

  // Everything there is, but for what lies below the root.
  std::set<std::string> Outside() const {
    std::set<std::string> found;
    for (const char* directory : {"", "/root2"}) {
      for (const fs::directory_entry& entry : fs::directory_iterator(outside_ + directory)) {
        found.insert(entry.path());
      }
    }
    return found;
  }

  std::string outside_;
  std::string root_;
  std::unique_ptr<ConfinedFiles> files_;
};

TEST_F(ConfinedFilesTest, Inside_EverythingWorks) {
  EXPECT_THAT(files_->Read(root_ + "/in.txt", kSizeMax), IsOkAndHolds("in"));
  EXPECT_THAT(files_->Read(root_ + "/dir/../in.txt", kSizeMax), IsOkAndHolds("in"));
  EXPECT_THAT(files_->Read(root_ + "//dir/./link", kSizeMax), IsOkAndHolds("in"));
  ASSERT_THAT(files_->CreateDirectories(root_ + "/a/b/c"), IsOk());
  ASSERT_THAT(files_->WriteDurably(root_ + "/a/b/c/d", {"1", "2"}), IsOk());
  ASSERT_THAT(files_->WriteEndDurably(root_ + "/a/b/c/d", 2, "3"), IsOk());
  ASSERT_THAT(files_->RenameDurably(root_ + "/a/b/c/d", root_ + "/a/e"), IsOk());
  EXPECT_THAT(files_->List(root_ + "/a"), IsOkAndHolds(ElementsAre("b", "e")));
  EXPECT_TRUE(files_->Exists(root_ + "/a/e"));
  ASSERT_THAT(files_->RemoveAll(root_ + "/a"), IsOk());
  EXPECT_FALSE(files_->Exists(root_ + "/a"));
  EXPECT_THAT(files_->RemoveAll(root_ + "/a"), IsOk());
}

TEST_F(ConfinedFilesTest, EveryOperation_RefusesAPathOutside) {
  const auto refused = StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("leads out"));
  const std::set<std::string> before = Outside();
  for (const std::string& directory : {outside_, outside_ + "/root2", root_ + "/..", root_ + "/up",
                                       root_ + "/dir/../..", std::string("/"), root_ + "/magic"}) {
    const std::string secret = directory + "/secret.txt";
    EXPECT_THAT(files_->Read(secret, kSizeMax), Not(IsOk())) << directory;
    EXPECT_THAT(files_->WriteDurably(secret, {"x"}), Not(IsOk())) << directory;
    EXPECT_THAT(files_->WriteDurably(directory + "/fresh", {"x"}), Not(IsOk())) << directory;
    EXPECT_THAT(files_->WriteEndDurably(secret, 0, "x"), Not(IsOk())) << directory;
    EXPECT_THAT(files_->WriteEndDurably(directory + "/fresh", 0, "x"), Not(IsOk())) << directory;
    EXPECT_THAT(files_->RenameDurably(root_ + "/in.txt", directory + "/fresh"), Not(IsOk()));
    EXPECT_THAT(files_->RenameDurably(secret, root_ + "/stolen"), Not(IsOk())) << directory;
    EXPECT_THAT(files_->CreateDirectories(directory + "/fresh/deep"), Not(IsOk())) << directory;
    EXPECT_THAT(files_->SyncDirectory(directory), Not(IsOk())) << directory;
    EXPECT_THAT(files_->List(directory), Not(IsOk())) << directory;
    EXPECT_THAT(files_->RemoveAll(secret), Not(IsOk())) << directory;
    EXPECT_FALSE(files_->Exists(secret)) << directory;
  }
  EXPECT_THAT(files_->Read(outside_ + "/secret.txt", kSizeMax), refused);
  EXPECT_THAT(files_->Read(root_ + "/out", kSizeMax), refused);
  EXPECT_THAT(files_->RemoveAll(root_), refused);
  EXPECT_EQ(Outside(), before);
  EXPECT_THAT(RealFiles().Read(outside_ + "/secret.txt", kSizeMax), IsOkAndHolds(kSecret));
}

TEST_F(ConfinedFilesTest, FileOfItsOwn_IsMadeInsideAndNotThroughALink) {
  EXPECT_THAT(files_->OpenOwn(root_ + "/lock").status(), IsOk());
  EXPECT_TRUE(fs::exists(root_ + "/lock"));
  for (const char* path : {"/link", "/out", "/out-absolute", "/out-twice"}) {
    EXPECT_FALSE(files_->OpenOwn(root_ + path).ok()) << path;
  }
  EXPECT_THAT(files_->OpenOwn(root_ + "/up/lock").status(),
              StatusIs(absl::StatusCode::kPermissionDenied, _));
  EXPECT_THAT(files_->OpenOwn(root_ + "/dir").status(), Not(IsOk()));
  EXPECT_FALSE(fs::exists(outside_ + "/lock"));
}

TEST_F(ConfinedFilesTest, WithoutRoots_NothingOpensAndTheErrorNamesTheFlags) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto none, ConfinedFiles::Open({}));
  EXPECT_THAT(none->Read(root_ + "/in.txt", 100),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("--data-root")));
  EXPECT_THAT(none->CreateDirectories("made"),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("--checkpoint-root")));
}

TEST_F(ConfinedFilesTest, RemoveAll_RemovesALinkAndNotWhatItLeadsTo) {
  ASSERT_THAT(files_->RemoveAll(root_ + "/up"), IsOk());
  fs::create_symlink("../..", root_ + "/dir/up");
  ASSERT_THAT(files_->RemoveAll(root_ + "/dir"), IsOk());
  EXPECT_THAT(RealFiles().Read(outside_ + "/secret.txt", kSizeMax), IsOkAndHolds(kSecret));
}

// Spellings of ways out that filters of letters have missed elsewhere, three deep.
TEST_F(ConfinedFilesTest, ThousandsOfSpellings_NeverReachTheSecretOrLeaveAnything) {
  const std::vector<std::string> steps = {"..",
                                          ".",
                                          "dir",
                                          "up",
                                          "magic",
                                          "...",
                                          "..;",
                                          "%2e%2e",
                                          "..%2f",
                                          "%252e.",
                                          "..\\",
                                          "\\..",
                                          "~",
                                          "root",
                                          "root2",
                                          "out",
                                          "\xc0\xae\xc0\xae",
                                          "\xe2\x80\xa5",
                                          std::string("..\0", 3),
                                          " ..",
                                          ".. ",
                                          "//..",
                                          ""};
  const std::set<std::string> before = Outside();
  int tried = 0;
  for (const std::string& start : {root_, std::string("root"), std::string(""), outside_}) {
    for (const std::string& a : steps) {
      for (const std::string& b : steps) {
        for (const std::string& c : {std::string(), std::string(".."), std::string("up")}) {
          for (const char* last : {"secret.txt", "root2/secret.txt", "fresh"}) {
            const std::string path = absl::StrJoin({start, a, b, c, std::string(last)}, "/");
            const auto read = files_->Read(path, kSizeMax);
            EXPECT_FALSE(read.ok() && *read == kSecret) << path;
            // Inside it may write; outside nothing may change.
            (void)files_->WriteDurably(path, {"overwritten"});
            ++tried;
          }
        }
      }
    }
  }
  EXPECT_GT(tried, 2000);
  EXPECT_EQ(Outside(), before);
  for (const char* path : {"/secret.txt", "/root2/secret.txt"}) {
    EXPECT_THAT(RealFiles().Read(outside_ + path, kSizeMax), IsOkAndHolds(kSecret));
  }
}

// A directory that turns into a link out of the root and back, while paths through it are opened.
TEST_F(ConfinedFilesTest, LinkThatIsExchangedMeanwhile_NeverLeadsOut) {
  ASSERT_THAT(RealFiles().WriteDurably(root_ + "/dir/secret.txt", {"harmless"}), IsOk());
  const std::string a = root_ + "/dir";
  const std::string b = root_ + "/up";
  std::atomic<bool> done = false;
  std::thread exchanger([&] {
    constexpr unsigned kExchange = 2;  // RENAME_EXCHANGE
    while (!done) syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), kExchange);
  });
  int harmless = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto read = files_->Read(root_ + "/dir/secret.txt", kSizeMax);
    ASSERT_TRUE(!read.ok() || *read == "harmless") << i;
    harmless += read.ok();
    // Either written inside, or refused.
    if (i % 100 == 0) (void)files_->WriteDurably(root_ + "/up/secret.txt", {"harmless"});
  }
  done = true;
  exchanger.join();
  EXPECT_GT(harmless, 0);
  EXPECT_THAT(RealFiles().Read(outside_ + "/secret.txt", kSizeMax), IsOkAndHolds(kSecret));
}

TEST_F(ConfinedFilesTest, RootThatIsNoDirectory_IsRefused) {
  EXPECT_THAT(ConfinedFiles::Open({root_ + "/none"}), StatusIs(absl::StatusCode::kNotFound, _));
  EXPECT_THAT(ConfinedFiles::Open({root_ + "/in.txt"}), StatusIs(absl::StatusCode::kNotFound, _));
}

TEST_F(ConfinedFilesTest, SeveralRoots_AllOpenAndNothingBetweenThem) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto files,
                                ConfinedFiles::Open({root_, outside_ + "/root2/"}));
  EXPECT_THAT(files->Read(root_ + "/in.txt", kSizeMax), IsOkAndHolds("in"));
  EXPECT_THAT(files->Read(outside_ + "/root2/secret.txt", kSizeMax), IsOkAndHolds(kSecret));
  EXPECT_THAT(files->Read(outside_ + "/secret.txt", kSizeMax),
              StatusIs(absl::StatusCode::kPermissionDenied, _));
  EXPECT_THAT(files->RenameDurably(root_ + "/in.txt", outside_ + "/root2/in.txt"), IsOk());
}

}  // namespace
}  // namespace penstock
