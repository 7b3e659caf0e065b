#include "data/record_index.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

const std::string kDigest(64, 'a');

std::string IndexWith(const std::string& tensors, const std::string& shards) {
  return absl::StrCat(R"({"format": "penstock-records", "tensors": )", tensors, R"(, "shards": )",
                      shards, "}");
}
const char kTensors[] = R"({"image": {"dtype": "U8", "shape": [2, 3, 1]},
                            "label": {"dtype": "I32", "shape": []}})";
std::string Shards(const std::string& file = "a.safetensors", const std::string& records = "5") {
  return absl::StrCat(R"([{"file": ")", file, R"(", "records": )", records, R"(, "sha256": ")",
                      kDigest, R"("}])");
}

TEST(RecordIndex, Printed_ReadsBack) {
  const RecordIndex index = {
      .tensors = {{"image", "U8", {2, 3, 1}}, {"label", "I32", {}}},
      .shards = {{"a.safetensors", 5, kDigest}, {"b.safetensors", 7, std::string(64, 'b')}}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const RecordIndex read, ParseRecordIndex(PrintRecordIndex(index)));
  EXPECT_EQ(read.shards, index.shards);
  ASSERT_EQ(read.tensors.size(), 2u);
  EXPECT_EQ(read.tensors[0].shape, (std::vector<int64_t>{2, 3, 1}));
  EXPECT_EQ(read.records(), 12);
  EXPECT_EQ(RecordBytes(read.tensors[0]), 6);
  EXPECT_EQ(RecordBytes(read.tensors[1]), 4);
}

TEST(RecordIndex, SequencesAndFiles_ReadBack) {
  const RecordIndex index = {.sequences = {{"source", "I32"}, {"target", "I32"}},
                             .shards = {{"a.safetensors", 5, kDigest}},
                             .files = {{"pairs.json", kDigest}}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const RecordIndex read, ParseRecordIndex(PrintRecordIndex(index)));
  EXPECT_EQ(read.sequences, index.sequences);
  EXPECT_EQ(read.shards, index.shards);
  EXPECT_EQ(read.files, index.files);
  EXPECT_TRUE(read.tensors.empty());
}

TEST(RecordIndex, WhatIsWrongOfSequencesAndFiles_IsNamed) {
  const auto with = [](const std::string& more) {
    std::string text = IndexWith(kTensors, Shards());
    return text.insert(1, more + ", ");
  };
  const std::pair<std::string, const char*> cases[] = {
      {R"("sequences": [])", "sequences: expected at most 64 by name"},
      {R"("sequences": {"a": 1})", "sequences.a.dtype: is null"},
      {R"("sequences": {"a": {"dtype": "I33"}})", "sequences.a.dtype: is \"I33\""},
      {R"("sequences": {"label": {"dtype": "I32"}})", "sequences.label: needs the names label"},
      {R"("sequences": {"a": {"dtype": "I32"}, "a.offsets": {"dtype": "I32"}})",
       "sequences.a.offsets: needs the names"},
      {R"("files": {})", "files: expected a list"},
      {R"("files": [{"file": "../a", "sha256": ""}])", "files[0].file: is \"../a\""},
      {R"("files": [{"file": "a", "sha256": "12"}])", "files[0].sha256"}};
  for (const auto& [more, reason] : cases) {
    EXPECT_THAT(ParseRecordIndex(with(more)).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(reason)))
        << more;
  }
  EXPECT_THAT(
      ParseRecordIndex(with(absl::StrCat(R"("files": [{"file": "a.safetensors", "sha256": ")",
                                         kDigest, R"("}])")))
          .status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a.safetensors twice")));
}

TEST(RecordIndex, OtherKeys_AreLeftAlone) {
  std::string text = IndexWith(kTensors, Shards());
  text.insert(1, R"("made_by": "a script", )");
  EXPECT_THAT(ParseRecordIndex(text), IsOk());
}

TEST(RecordIndex, WhatIsWrong_IsNamed) {
  const std::pair<std::string, const char*> cases[] = {
      {"{", "not JSON"},
      {"[]", "format"},
      {R"({"format": "other"})", "format"},
      {IndexWith("{}", Shards()), "tensors: expected at least one tensor or sequence"},
      {IndexWith("[]", Shards()), "tensors"},
      {IndexWith(R"({"a": 1})", Shards()), "tensors.a"},
      {IndexWith(R"({"a": {"dtype": "U4", "shape": []}})", Shards()), "tensors.a.dtype: is \"U4\""},
      {IndexWith(R"({"a": {"dtype": "U8"}})", Shards()), "tensors.a.shape"},
      {IndexWith(R"({"a": {"dtype": "U8", "shape": [0]}})", Shards()), "tensors.a.shape: is 0"},
      {IndexWith(R"({"a": {"dtype": "U8", "shape": [-1]}})", Shards()), "tensors.a.shape: is -1"},
      {IndexWith(R"({"a": {"dtype": "U8", "shape": [1000000, 1000000]}})", Shards()),
       "makes a record"},
      {IndexWith(R"({"a": {"dtype": "U8", "shape": [1,1,1,1,1,1,1,1]}})", Shards()), "at most 7"},
      {IndexWith(kTensors, "[]"), "shards: expected a list of 1 to 4096"},
      {IndexWith(kTensors, "[1]"), "shards[0]"},
      {IndexWith(kTensors, Shards("../secret")), "shards[0].file: is \"../secret\""},
      {IndexWith(kTensors, Shards("..")), "shards[0].file"},
      {IndexWith(kTensors, Shards("")), "shards[0].file"},
      {IndexWith(kTensors, Shards("a", "0")), "shards[0].records: is 0"},
      {IndexWith(kTensors, Shards("a", "1.5")), "shards[0].records: is 1.5"},
      {IndexWith(kTensors, R"([{"file": "a", "records": 1, "sha256": "12"}])"), "shards[0].sha256"},
  };
  for (const auto& [text, reason] : cases) {
    EXPECT_THAT(ParseRecordIndex(text).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(reason)))
        << text;
  }
}

TEST(RecordIndex, OneFileTwice_IsRefused) {
  const std::string shard = Shards().substr(1, Shards().size() - 2);
  EXPECT_THAT(
      ParseRecordIndex(IndexWith(kTensors, absl::StrCat("[", shard, ",", shard, "]"))).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("twice")));
}

}  // namespace
}  // namespace penstock
