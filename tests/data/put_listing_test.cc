// What was put to a cluster: paths in jobs, and lists of directories.
#include "data/put_listing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kBadList = absl::StatusCode::kInvalidArgument;

const std::string kPutDigest(64, 'a');

std::string Path(const std::string& behind) { return absl::StrCat("sha256:", kPutDigest, behind); }

TEST(PutPath, FilesAndDirectories_AreToldApart) {
  EXPECT_THAT(ParsePutPath(Path("")), IsOkAndHolds(PutPath{kPutDigest, false, ""}));
  EXPECT_THAT(ParsePutPath(Path("/")), IsOkAndHolds(PutPath{kPutDigest, true, ""}));
  EXPECT_THAT(ParsePutPath(Path("/train")), IsOkAndHolds(PutPath{kPutDigest, true, "train"}));
  EXPECT_THAT(ParsePutPath(Path("/a/b.bin")), IsOkAndHolds(PutPath{kPutDigest, true, "a/b.bin"}));
  EXPECT_THAT(ParsePutPath(Path("/a/")), IsOkAndHolds(PutPath{kPutDigest, true, "a"}));
  for (const char* const behind : {"", "/", "/train", "/a/b.bin"}) {
    EXPECT_EQ(ParsePutPath(Path(behind)).value().ToString(), Path(behind));
  }
}

TEST(PutPath, NamesThatLeadOut_AreRefused) {
  for (const char* const name : {"/..", "/../x", "/a/../b", "/a/..", "/.", "/./a", "//etc/passwd",
                                 "/a//b", "/a\nb", "/\xFF"}) {
    EXPECT_THAT(ParsePutPath(Path(name)), StatusIs(kBadList, HasSubstr("names \""))) << name;
  }
  for (const char* const path : {"sha256:", "sha256:12", "sha256:/", "sha256:../../etc/passwd"}) {
    EXPECT_THAT(ParsePutPath(path), StatusIs(kBadList, HasSubstr("is \""))) << path;
  }
  EXPECT_THAT(CheckNameBelow(std::string(300, 'a')), StatusIs(kBadList, HasSubstr("300 bytes")));
  EXPECT_THAT(CheckNameBelow("..."), IsOk());
  EXPECT_THAT(CheckNameBelow("a..b/.c"), IsOk());
}

PutListing Example() {
  return {.files = {{"a.bin", 3, std::string(64, '1')},
                    {"b.bin", 0, std::string(64, '2')},
                    {"model/config.json", 5, std::string(64, '3')},
                    {"model.txt", 7, std::string(64, '4')}}};
}

TEST(PutListing, TextOfOne_IsReadAsTheSame) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const PutListing read, ParsePutListing(PrintPutListing(Example())));
  // In the order of their names as bytes.
  PutListing sorted = Example();
  std::swap(sorted.files[2], sorted.files[3]);
  EXPECT_EQ(read.files, sorted.files);
}

TEST(PutListing, At_IsAFileADirectoryOrWhatFitsAPattern) {
  const PutListing listing = Example();
  const auto names = [&](const char* name) {
    std::vector<std::string> at;
    for (const PutEntry* entry : listing.At(name)) at.push_back(entry->name);
    return at;
  };
  EXPECT_THAT(names(""), ElementsAre("a.bin", "b.bin", "model/config.json", "model.txt"));
  EXPECT_THAT(names("model"), ElementsAre("model/config.json"));
  EXPECT_THAT(names("model.txt"), ElementsAre("model.txt"));
  EXPECT_THAT(names("*.bin"), ElementsAre("a.bin", "b.bin"));
  EXPECT_THAT(names("*"), ElementsAre("a.bin", "b.bin", "model.txt"));
  EXPECT_THAT(names("model/c*"), ElementsAre("model/config.json"));
  EXPECT_THAT(names("mod"), IsEmpty());
  EXPECT_EQ(NameBelow("model/config.json", "model"), "config.json");
  EXPECT_EQ(NameBelow("model/config.json", ""), "model/config.json");
  EXPECT_EQ(NameBelow("a.bin", "a.bin"), "");
  EXPECT_EQ(NameBelow("a.bin", "*.bin"), "");
}

TEST(PutListing, BadLists_AreRefusedByWhatIsWrong) {
  const auto list = [](const std::string& files) {
    return absl::StrCat(R"({"format": "penstock-directory", "files": [)", files, "]}");
  };
  const auto file = [](const std::string& name) {
    return absl::StrCat(R"({"name": ")", name, R"(", "bytes": 1, "sha256": ")", kPutDigest,
                        R"("})");
  };
  EXPECT_THAT(ParsePutListing(list(file("a"))), IsOk());
  const std::pair<std::string, const char*> bad[] = {
      {"a text", ""},
      {"{}", "is no list of a directory"},
      {R"({"format": "penstock-records", "files": []})", "is no list of a directory"},
      {list(""), "expected a list of 1"},
      {list("3"), "has no name"},
      {list(file("../a")), "\"../a\" leads out"},
      {list(file("/etc/passwd")), "\"/etc/passwd\" leads out"},
      {list(file("a/../../b")), "leads out"},
      {list(file("a") + "," + file("a")), "a is there twice"},
      {list(file("a") + "," + file("a-b") + "," + file("a/b")), "a is a file and the directory"},
      {list(R"({"name": "a", "bytes": -1, "sha256": ""})"), "has no number of bytes"},
      {list(R"({"name": "a", "bytes": 1, "sha256": "12"})"), "has no SHA-256"}};
  for (const auto& [text, what] : bad) {
    EXPECT_THAT(ParsePutListing(text), StatusIs(kBadList, HasSubstr(what))) << text;
  }
}

TEST(PutFiles, Path_IsReadByItsDigest) {
  std::map<std::string, std::string> store;
  const auto put = [&](const std::string& content) {
    store[Sha256Hex(content)] = content;
    return Sha256Hex(content);
  };
  PutListing listing;
  listing.files = {{"config.json", 4, put("{\"\"}")}, {"empty", 0, Sha256Hex("")}};
  const std::string list = put(PrintPutListing(listing));
  PutFiles files([&](const std::string& sha256, int64_t) -> absl::StatusOr<std::string> {
    const auto found = store.find(sha256);
    if (found == store.end()) return absl::NotFoundError(absl::StrCat(sha256, " is not there"));
    return found->second;
  });
  const std::string directory = absl::StrCat("sha256:", list, "/");
  EXPECT_THAT(files.Read(directory + "config.json", 100), IsOkAndHolds("{\"\"}"));
  EXPECT_THAT(files.Read(directory + "empty", 100), IsOkAndHolds(""));
  EXPECT_THAT(files.Read(directory + "config.json", 3),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("expected at most 3")));
  EXPECT_THAT(files.Read(directory + "vocab.json", 100),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("has no vocab.json"), HasSubstr("config.json, empty"))));
  EXPECT_THAT(files.Read(directory + "../x", 100), StatusIs(kBadList, HasSubstr("leads out")));
  EXPECT_THAT(files.Read("/etc/passwd", 100),
              StatusIs(kBadList, HasSubstr("nothing that was put")));
  EXPECT_THAT(files.Read(Path("/a"), 100),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(kPutDigest)));
  store.erase(listing.files[0].sha256);
  EXPECT_THAT(files.Read(directory + "config.json", 100),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/config.json")));
}

}  // namespace
}  // namespace penstock
