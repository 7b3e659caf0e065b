#include "base/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <vector>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

// Is told of every fsync of this program, before it happens; returns 0, or the errno that it fails with. Null: nobody is.
std::function<int(const struct stat&)> on_sync;

int Sync(int fd, long call) {
  struct stat info;
  if (on_sync != nullptr && fstat(fd, &info) == 0) {
    if (const int error = on_sync(info); error != 0) {
      errno = error;
      return -1;
    }
  }
  return static_cast<int>(syscall(call, fd));
}

}  // namespace
}  // namespace penstock

// In the place of those of the C library: what is synced cannot be seen in any other way, unless the power fails.
extern "C" int fsync(int fd) { return penstock::Sync(fd, SYS_fsync); }
extern "C" int fdatasync(int fd) { return penstock::Sync(fd, SYS_fdatasync); }

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kFileBytesMax = 1 << 20;

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    directory_ = JoinPath(::testing::TempDir(), std::string("penstock-") + test->name());
    ASSERT_THAT(files_.RemoveAll(directory_), IsOk());
    ASSERT_THAT(files_.CreateDirectories(directory_), IsOk());
  }
  void TearDown() override {
    on_sync = nullptr;
    EXPECT_THAT(files_.RemoveAll(directory_), IsOk());
  }

  std::string Path(absl::string_view name) const { return JoinPath(directory_, name); }

  // Counts the syncs of `path` that happen when `done` is true already.
  void CountSyncs(const std::string& path, std::function<bool(const struct stat&)> done) {
    on_sync = [this, path, done = std::move(done)](const struct stat& synced) {
      struct stat info;
      const bool is_it = stat(path.c_str(), &info) == 0 && info.st_dev == synced.st_dev &&
                         info.st_ino == synced.st_ino;
      syncs_ += is_it && done(synced) ? 1 : 0;
      return 0;
    };
  }
  void FailSyncs() {
    on_sync = [](const struct stat&) { return EIO; };
  }

  int syncs_ = 0;
  Files& files_ = RealFiles();
  std::string directory_;
};

TEST(RealFiles, PipeInTheFilesPlace_IsAnErrorAndNobodyWaits) {
  const std::string path = ::testing::TempDir() + "pipe-" + std::to_string(getpid());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_FALSE(RealFiles().WriteDurably(path, {"text"}).ok());
  // Also with somebody who reads it.
  const int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  EXPECT_FALSE(RealFiles().WriteDurably(path, {"text"}).ok());
  close(reader);
  unlink(path.c_str());
}

TEST_F(FilesTest, WriteDurably_PiecesComeBackAsOneFile) {
  const std::string large(100'000, 'x');
  ASSERT_THAT(files_.WriteDurably(Path("a"), {"one ", "", large, " two"}), IsOk());
  EXPECT_THAT(files_.Read(Path("a"), kFileBytesMax), IsOkAndHolds("one " + large + " two"));
  ASSERT_THAT(files_.WriteDurably(Path("a"), {"short"}), IsOk());
  EXPECT_THAT(files_.Read(Path("a"), kFileBytesMax), IsOkAndHolds("short"));
}

TEST_F(FilesTest, WriteInParts_AsksForOnePieceAfterTheOther) {
  std::string piece;
  int pieces = 0;
  const auto next = [&]() -> absl::StatusOr<absl::string_view> {
    ++pieces;
    piece = std::string(pieces <= 3 ? 2 : 0, static_cast<char>('a' + pieces));
    return absl::string_view(piece);
  };
  ASSERT_THAT(files_.WriteInParts(Path("parts"), next), IsOk());
  EXPECT_THAT(files_.Read(Path("parts"), 100), IsOkAndHolds("bbccdd"));
  EXPECT_EQ(pieces, 4);
}

TEST_F(FilesTest, WriteInParts_PieceThatFails_LeavesNoFile) {
  int pieces = 0;
  const auto next = [&]() -> absl::StatusOr<absl::string_view> {
    if (pieces++ == 1) return absl::DataLossError("damaged");
    return absl::string_view("whole");
  };
  EXPECT_THAT(files_.WriteInParts(Path("parts"), next),
              StatusIs(absl::StatusCode::kDataLoss, "damaged"));
  EXPECT_FALSE(files_.Exists(Path("parts")));
}

TEST_F(FilesTest, WriteEndDurably_PartsBecomeTheFileAndWhatWasBehindGoes) {
  ASSERT_THAT(files_.WriteDurably(Path("a"), {"an older one"}), IsOk());
  ASSERT_THAT(files_.WriteEndDurably(Path("a"), 0, "one"), IsOk());
  ASSERT_THAT(files_.WriteEndDurably(Path("a"), 3, "two"), IsOk());
  EXPECT_THAT(files_.Read(Path("a"), kFileBytesMax), IsOkAndHolds("onetwo"));
  ASSERT_THAT(files_.WriteEndDurably(Path("a"), 2, "!"), IsOk());
  EXPECT_THAT(files_.Read(Path("a"), kFileBytesMax), IsOkAndHolds("on!"));
  ASSERT_THAT(files_.WriteEndDurably(Path("empty"), 0, ""), IsOk());
  EXPECT_THAT(files_.Read(Path("empty"), kFileBytesMax), IsOkAndHolds(""));
}

TEST_F(FilesTest, WriteEndDurably_WhatCannotFollow_ChangesNothing) {
  ASSERT_THAT(files_.WriteDurably(Path("a"), {"abc"}), IsOk());
  EXPECT_THAT(files_.WriteEndDurably(Path("a"), 4, "x"),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("ends at byte 3")));
  EXPECT_THAT(files_.WriteEndDurably(Path("none"), 1, "x"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(Path("none"))));
  ASSERT_EQ(symlink("a", Path("link").c_str()), 0);
  EXPECT_FALSE(files_.WriteEndDurably(Path("link"), 0, "x").ok()) << "it may lead anywhere";
  EXPECT_THAT(files_.Read(Path("a"), kFileBytesMax), IsOkAndHolds("abc"));
}

TEST_F(FilesTest, WriteEndDurably_SyncFails_ThePartHasNotCome) {
  ASSERT_THAT(files_.WriteEndDurably(Path("a"), 0, "one"), IsOk());
  FailSyncs();
  EXPECT_THAT(files_.WriteEndDurably(Path("a"), 3, "two"),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("cannot sync")));
  EXPECT_THAT(files_.Read(Path("a"), kFileBytesMax), IsOkAndHolds("one"));
}

TEST_F(FilesTest, WriteDurably_NoDirectory_NamesThePath) {
  EXPECT_THAT(files_.WriteDurably(Path("none/a"), {"x"}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(Path("none/a"))));
}

// The next four hold each call to what it promises to have made durable when it returns.
TEST_F(FilesTest, WriteDurably_SyncsTheWholeFile) {
  CountSyncs(Path("a"), [](const struct stat& file) { return file.st_size == 9; });
  ASSERT_THAT(files_.WriteDurably(Path("a"), {"1234", "56789"}), IsOk());
  EXPECT_EQ(syncs_, 1);
}

TEST_F(FilesTest, RenameDurably_SyncsTheParentAfterTheRename) {
  ASSERT_THAT(files_.CreateDirectories(Path("b")), IsOk());
  ASSERT_THAT(files_.WriteDurably(Path("a"), {"x"}), IsOk());
  CountSyncs(Path("b"), [&](const struct stat&) { return files_.Exists(Path("b/a")); });
  ASSERT_THAT(files_.RenameDurably(Path("a"), Path("b/a")), IsOk());
  EXPECT_EQ(syncs_, 1);
}

TEST_F(FilesTest, CreateDirectories_SyncsTheParentOfEach) {
  for (const auto& [parent, child] : {std::pair("", "a"), {"a", "a/b"}, {"a/b", "a/b/c"}}) {
    ASSERT_THAT(files_.RemoveAll(Path("a")), IsOk());
    syncs_ = 0;
    const std::string made = Path(child);
    CountSyncs(Path(parent), [&](const struct stat&) { return files_.Exists(made); });
    ASSERT_THAT(files_.CreateDirectories(Path("a/b/c")), IsOk());
    EXPECT_EQ(syncs_, 1) << "of the parent of " << child;
  }
}

TEST_F(FilesTest, SyncDirectory_SyncsIt) {
  CountSyncs(directory_, [](const struct stat&) { return true; });
  ASSERT_THAT(files_.SyncDirectory(directory_), IsOk());
  EXPECT_EQ(syncs_, 1);
}

TEST_F(FilesTest, SyncFails_IsTheErrorOfEachCall) {
  const auto failed = [](const std::string& path) {
    return StatusIs(absl::StatusCode::kInternal,
                    AllOf(HasSubstr("cannot sync"), HasSubstr(path), HasSubstr("Input/output")));
  };
  ASSERT_THAT(files_.WriteDurably(Path("old"), {"x"}), IsOk());
  FailSyncs();
  EXPECT_THAT(files_.WriteDurably(Path("a"), {"x"}), failed(Path("a")));
  EXPECT_FALSE(files_.Exists(Path("a"))) << "nobody may take it for whole";
  EXPECT_THAT(files_.RenameDurably(Path("old"), Path("new")), failed(directory_));
  EXPECT_THAT(files_.CreateDirectories(Path("b")), failed(directory_));
  EXPECT_THAT(files_.SyncDirectory(directory_), failed(directory_));
}

TEST_F(FilesTest, OpenRandomAccess_PartsAreTheFiles) {
  ASSERT_THAT(files_.WriteDurably(Path("a"), {"0123456789"}), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto file, files_.OpenRandomAccess(Path("a")));
  EXPECT_EQ(file->size_bytes(), 10);
  std::string part(4, ' ');
  const auto bytes = absl::MakeSpan(reinterpret_cast<std::byte*>(part.data()), part.size());
  ASSERT_THAT(file->Read(3, bytes), IsOk());
  EXPECT_EQ(part, "3456");
  EXPECT_THAT(file->Read(7, bytes),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("ends at byte 10")));
  ASSERT_THAT(files_.RemoveAll(Path("a")), IsOk());
  EXPECT_THAT(file->Read(6, bytes), IsOk());
  EXPECT_EQ(part, "6789");
}

TEST_F(FilesTest, OpenRandomAccess_NoFile_SaysWhy) {
  EXPECT_THAT(files_.OpenRandomAccess(Path("none")).status(),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(Path("none"))));
  EXPECT_THAT(files_.OpenRandomAccess(directory_).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is a directory")));
}

TEST_F(FilesTest, Read_TooLarge_SaysHowMuch) {
  ASSERT_THAT(files_.WriteDurably(Path("a"), {"12345"}), IsOk());
  EXPECT_THAT(files_.Read(Path("a"), 4),
              StatusIs(absl::StatusCode::kOutOfRange,
                       AllOf(HasSubstr("5 bytes"), HasSubstr("limit of 4"))));
  EXPECT_THAT(files_.Read(Path("a"), 5), IsOkAndHolds("12345"));
}

TEST_F(FilesTest, Read_MissingFileOrDirectory_Fails) {
  EXPECT_THAT(files_.Read(Path("none"), kFileBytesMax),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(Path("none"))));
  EXPECT_THAT(files_.Read(directory_, kFileBytesMax),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("directory")));
}

TEST_F(FilesTest, Read_NamedPipe_IsRefusedAtOnce) {
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(files_.Read(Path("pipe"), kFileBytesMax),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr(Path("pipe")), HasSubstr("pipe or device"))));
}

TEST_F(FilesTest, WriteDurably_NoDescriptorLeft_OldFileStays) {
  ASSERT_THAT(files_.WriteDurably(Path("a"), {"old"}), IsOk());
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const absl::Status status = files_.WriteDurably(Path("a"), {"new"});
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr(Path("a"))));
  EXPECT_THAT(files_.Read(Path("a"), kFileBytesMax), IsOkAndHolds("old"));
}

TEST_F(FilesTest, CreateDirectories_ManyLevels_AndAFileInTheWay) {
  EXPECT_THAT(files_.CreateDirectories(Path("a/b/c/")), IsOk());
  EXPECT_THAT(files_.CreateDirectories(Path("a/b")), IsOk());
  EXPECT_THAT(files_.List(Path("a/b")), IsOkAndHolds(ElementsAre("c")));
  ASSERT_THAT(files_.WriteDurably(Path("a/file"), {"x"}), IsOk());
  EXPECT_THAT(files_.CreateDirectories(Path("a/file/d")),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(Path("a/file"))));
}

TEST_F(FilesTest, RenameDurably_ReplacesAFileButNotADirectory) {
  ASSERT_THAT(files_.WriteDurably(Path("new"), {"new"}), IsOk());
  ASSERT_THAT(files_.WriteDurably(Path("old"), {"old"}), IsOk());
  ASSERT_THAT(files_.RenameDurably(Path("new"), Path("old")), IsOk());
  EXPECT_FALSE(files_.Exists(Path("new")));
  EXPECT_THAT(files_.Read(Path("old"), kFileBytesMax), IsOkAndHolds("new"));

  ASSERT_THAT(files_.CreateDirectories(Path("directory")), IsOk());
  EXPECT_THAT(files_.RenameDurably(Path("old"), Path("directory")),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("directory")));
}

TEST_F(FilesTest, RenameDurably_DirectoryWithFiles_MovesThem) {
  ASSERT_THAT(files_.CreateDirectories(Path("a/b")), IsOk());
  ASSERT_THAT(files_.WriteDurably(Path("a/b/c"), {"x"}), IsOk());
  ASSERT_THAT(files_.RenameDurably(Path("a"), Path("z")), IsOk());
  EXPECT_THAT(files_.Read(Path("z/b/c"), kFileBytesMax), IsOkAndHolds("x"));
}

TEST_F(FilesTest, List_IsSortedAndRemoveAllForgives) {
  ASSERT_THAT(files_.WriteDurably(Path("b"), {""}), IsOk());
  ASSERT_THAT(files_.WriteDurably(Path("a"), {""}), IsOk());
  ASSERT_THAT(files_.CreateDirectories(Path("c")), IsOk());
  EXPECT_THAT(files_.List(directory_), IsOkAndHolds(ElementsAre("a", "b", "c")));
  EXPECT_THAT(files_.RemoveAll(Path("none")), IsOk());
  EXPECT_THAT(files_.List(Path("none")), StatusIs(absl::StatusCode::kNotFound, HasSubstr("none")));
}

TEST(JoinPath, AbsoluteOrEmptyParts_AreRespected) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(JoinPath("a", "/b"), "/b");
}

}  // namespace
}  // namespace penstock
