// DigestStore: what is held after breaks, kills and full disks, and what is refused.
#include "data/digest_store.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/sha256.h"
#include "tests/support/full_disk.h"
#include "tests/support/status_matchers.h"
#include "tests/support/test_directory.h"

namespace penstock {
namespace {

using ::testing::_;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string Bytes(size_t size, char first = 'a') {
  std::string bytes(size, first);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(first + i * 31 % 26);
  return bytes;
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class DigestStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<DigestStore> Open(int64_t bytes_max = 1 << 20, bool removes_unused = false) {
    auto store = DigestStore::Open({.directory = (directory_.path() / "store").string(),
                                    .bytes_max = bytes_max,
                                    .removes_unused = removes_unused});
    EXPECT_THAT(store.status(), IsOk());
    return store.ok() ? *std::move(store) : nullptr;
  }
  // Puts all of it.
  static std::string Put(DigestStore& store, const std::string& content) {
    const std::string sha256 = Sha256Hex(content);
    const auto size = static_cast<int64_t>(content.size());
    EXPECT_THAT(store.Append(sha256, size, 0, content), IsOkAndHolds(size));
    EXPECT_THAT(store.Finish(sha256), IsOk());
    return sha256;
  }

  TestDirectory directory_;
};

TEST_F(DigestStoreTest, PartsInOrder_AreTheFile) {
  const auto store = Open();
  const std::string content = Bytes(1000);
  const std::string sha256 = Sha256Hex(content);
  EXPECT_EQ(store->Find(sha256)->held_bytes, 0);
  EXPECT_THAT(store->Append(sha256, 1000, 0, content.substr(0, 300)), IsOkAndHolds(300));
  EXPECT_THAT(store->Append(sha256, 1000, 0, content.substr(0, 300)), IsOkAndHolds(300)) << "again";
  EXPECT_THAT(store->Append(sha256, 1000, 700, content.substr(700)), IsOkAndHolds(300)) << "a gap";
  EXPECT_THAT(store->Hold(sha256).status(), StatusIs(absl::StatusCode::kNotFound, _));
  EXPECT_THAT(store->Finish(sha256),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("300 of 1000 bytes")));
  EXPECT_THAT(store->Append(sha256, 1000, 300, content.substr(300)), IsOkAndHolds(1000));
  EXPECT_THAT(store->Finish(sha256), IsOk());
  EXPECT_THAT(store->Finish(sha256), IsOk()) << "again";
  EXPECT_TRUE(store->Find(sha256)->whole);
  EXPECT_EQ(ReadAll(store->Hold(sha256)->path), content);
  const auto part = store->Read(sha256, 990, 100);
  EXPECT_EQ(part->bytes, content.substr(990));
  EXPECT_EQ(part->size_bytes, 1000);
  EXPECT_THAT(store->Read(sha256, 1000, 1).status(), StatusIs(absl::StatusCode::kOutOfRange, _));
}

TEST_F(DigestStoreTest, AnotherProcess_GoesOnWhereTheDiskEnds) {
  const std::string content = Bytes(1000);
  const std::string sha256 = Sha256Hex(content);
  {
    const auto store = Open();
    ASSERT_THAT(store->Append(sha256, 1000, 0, content.substr(0, 300)), IsOk());
    EXPECT_THAT(DigestStore::Open({.directory = store->directory()}).status(),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("in use")));
  }
  // Killed in the middle of a part.
  std::ofstream(directory_.path() / "store" / (sha256 + ".1000.part"), std::ios::app)
      << content.substr(300, 11);
  {
    const auto store = Open();
    const auto file = store->Find(sha256);
    EXPECT_EQ(file->held_bytes, 311);
    EXPECT_EQ(file->size_bytes, 1000);
    ASSERT_THAT(store->Append(sha256, 1000, 311, content.substr(311)), IsOkAndHolds(1000));
    ASSERT_THAT(store->Finish(sha256), IsOk());
  }
  EXPECT_TRUE(Open()->Find(sha256)->whole);
}

TEST_F(DigestStoreTest, AnotherContent_IsRefusedAndRemoved) {
  const auto store = Open();
  const std::string sha256 = Sha256Hex("what it should be");
  ASSERT_THAT(store->Append(sha256, 5, 0, "wrong"), IsOkAndHolds(5));
  EXPECT_THAT(store->Finish(sha256),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(Sha256Hex("wrong"))));
  EXPECT_EQ(store->Find(sha256)->held_bytes, 0);
  EXPECT_THAT(store->List("", 10), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(directory_.path() / "store" / (sha256 + ".5.part")));
}

TEST_F(DigestStoreTest, BadInput_ChangesNothing) {
  const auto store = Open();
  const std::string sha256 = Sha256Hex("x");
  for (const std::string& bad :
       {std::string("../../etc/passwd"), std::string(64, 'A'), sha256 + "0", std::string()}) {
    EXPECT_THAT(store->Append(bad, 1, 0, "x").status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("64 digits")));
  }
  const auto bad_argument = StatusIs(absl::StatusCode::kInvalidArgument, _);
  EXPECT_THAT(store->Append(sha256, 0, 0, "").status(), bad_argument);
  EXPECT_THAT(store->Append(sha256, 5, 3, "xyz").status(), bad_argument);
  EXPECT_THAT(store->Append(sha256, 5, -1, "x").status(), bad_argument);
  EXPECT_THAT(store->List("", 10), IsEmpty());
  ASSERT_THAT(store->Append(sha256, 5, 0, "x"), IsOk());
  EXPECT_THAT(store->Append(sha256, 6, 1, "x").status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("5 bytes, not 6")));
}

TEST_F(DigestStoreTest, WithoutRoom_IsRefusedUntilSomethingIsRemoved) {
  const auto store = Open(/*bytes_max=*/100);
  const std::string kept = Put(*store, Bytes(60));
  const std::string other = Bytes(60, 'A');
  EXPECT_THAT(store->Append(Sha256Hex(other), 60, 0, other).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("may have 100 bytes")));
  EXPECT_THAT(store->Remove(kept), IsOkAndHolds(true));
  EXPECT_THAT(store->Remove(kept), IsOkAndHolds(false));
  Put(*store, other);
}

TEST_F(DigestStoreTest, OneThatMakesRoom_RemovesWhatWasUsedLongestAgoAndIsNotInUse) {
  const auto store = Open(/*bytes_max=*/100, /*removes_unused=*/true);
  const std::string first = Put(*store, Bytes(30, 'a'));
  const std::string second = Put(*store, Bytes(30, 'b'));
  const std::string third = Put(*store, Bytes(30, 'c'));
  const auto use = store->Hold(first);
  const std::string fourth = Put(*store, Bytes(40, 'd'));
  EXPECT_TRUE(store->Find(first)->whole);
  EXPECT_FALSE(store->Find(second)->whole);
  EXPECT_TRUE(store->Find(fourth)->whole);
  EXPECT_FALSE(store->Find(third)->whole && store->Find(second)->whole);
  const std::string large = Bytes(80, 'e');
  EXPECT_THAT(store->Append(Sha256Hex(large), 80, 0, large).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, _))
      << "the first is in use";
}

TEST_F(DigestStoreTest, FullDisk_IsNamedAndThePartsBeforeStay) {
  const auto store = Open();
  const std::string content = Bytes(1000);
  const std::string sha256 = Sha256Hex(content);
  ASSERT_THAT(store->Append(sha256, 1000, 0, content.substr(0, 300)), IsOk());
  absl::StatusOr<int64_t> written;
  {
    FullDisk full(/*file_bytes_max=*/500);
    written = store->Append(sha256, 1000, 300, content.substr(300));
  }
  EXPECT_FALSE(written.ok());
  EXPECT_EQ(store->Find(sha256)->held_bytes, 300);
  ASSERT_THAT(store->Append(sha256, 1000, 300, content.substr(300)), IsOkAndHolds(1000));
  EXPECT_THAT(store->Finish(sha256), IsOk());
}

TEST_F(DigestStoreTest, SeveralWritersOfOneFile_MakeItOnce) {
  const auto store = Open();
  const std::string content = Bytes(20'000);
  const std::string sha256 = Sha256Hex(content);
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&] {
      for (int64_t held = 0; held < 20'000;) {
        const auto now_held =
            store->Append(sha256, 20'000, held, content.substr(static_cast<size_t>(held), 100));
        ASSERT_THAT(now_held, IsOk());
        held = *now_held;
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_THAT(store->Finish(sha256), IsOk());
}

TEST_F(DigestStoreTest, List_IsByDigestAndInParts) {
  const auto store = Open();
  for (const char first : {'a', 'b', 'c'}) Put(*store, Bytes(10, first));
  const auto two = store->List("", 2);
  ASSERT_THAT(two, SizeIs(2));
  EXPECT_LT(two[0].sha256, two[1].sha256);
  EXPECT_THAT(store->List(two[1].sha256, 2), SizeIs(1));
}

}  // namespace
}  // namespace penstock
