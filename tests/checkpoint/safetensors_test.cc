#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

std::string File(absl::string_view header, absl::string_view data) {
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> (8 * i));
  return absl::StrCat(length, header, data);
}

std::string Join(const std::vector<absl::string_view>& pieces) {
  std::string file;
  for (absl::string_view piece : pieces) absl::StrAppend(&file, piece);
  return file;
}

std::vector<NamedArray> TwoArrays() {
  return {{"wte.weight", {2, 3}, {1, 2, 3, 4, 5, 6}}, {"ln_f.bias", {2}, {-0.0f, 7}}};
}

std::string TwoArraysFile() {
  const std::vector<NamedArray> arrays = TwoArrays();
  const std::string header = SafetensorsHeader(arrays, {{"format", "pt"}});
  return Join(SafetensorsPieces(header, arrays));
}

// One tensor "a" described by the JSON `tensor`, followed by `data`.
void ExpectRefused(absl::string_view tensor, absl::string_view data, absl::string_view reason) {
  const std::string file = File(absl::StrCat("{\"a\": ", tensor, "}"), data);
  EXPECT_THAT(ParseSafetensors(file),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(std::string(reason))))
      << tensor;
}

TEST(Safetensors, Header_OfTwoArrays_IsTheFormatsText) {
  const std::string header = SafetensorsHeader(TwoArrays(), {{"format", "pt"}});
  EXPECT_EQ(header.substr(8), R"({"__metadata__":{"format":"pt"},)"
                              R"("wte.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                              R"("ln_f.bias":{"dtype":"F32","shape":[2],"data_offsets":[24,32]}})");
  EXPECT_EQ(static_cast<unsigned char>(header[0]), header.size() - 8);
}

TEST(Safetensors, Layout_OfAnOpenFile_IsTheFiles) {
  MemoryFiles files;
  const std::string file = TwoArraysFile();
  ASSERT_THAT(files.WriteDurably("/a", {file}), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto open, files.OpenRandomAccess("/a"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SafetensorsLayout layout, ReadSafetensorsLayout(*open));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SafetensorsView view, ParseSafetensors(file));
  EXPECT_EQ(layout.metadata, view.metadata);
  ASSERT_EQ(layout.tensors.size(), view.tensors.size());
  for (size_t i = 0; i < view.tensors.size(); ++i) {
    const TensorPlace& place = layout.tensors[i];
    EXPECT_EQ(place.type.name, view.tensors[i].name);
    EXPECT_EQ(place.type.shape, view.tensors[i].shape);
    EXPECT_EQ(file.substr(place.offset, place.size_bytes), view.tensors[i].bytes);
  }
}

TEST(Safetensors, Layout_OfAFileThatWasCut_IsRefused) {
  const std::string file = TwoArraysFile();
  for (const size_t size : {size_t{0}, size_t{7}, size_t{40}, file.size() - 1}) {
    MemoryFiles files;
    ASSERT_THAT(files.WriteDurably("/a", {file.substr(0, size)}), IsOk());
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto open, files.OpenRandomAccess("/a"));
    EXPECT_THAT(ReadSafetensorsLayout(*open).status(),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("")))
        << size;
  }
}

TEST(Safetensors, HeaderFor_OtherTypes_SaysTheirBytes) {
  const std::string header =
      SafetensorsHeaderFor({{"image", "U8", {2, 3}}, {"label", "I32", {2}}}, {});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SafetensorsView view,
                                ParseSafetensors(header + std::string(6 + 8, 'x')));
  EXPECT_EQ(view.tensors[0].dtype, "U8");
  EXPECT_EQ(view.tensors[1].bytes.size(), 8u);
}

TEST(Safetensors, Header_OfAnyLength_IsPaddedToEightBytes) {
  for (size_t length = 1; length < 20; ++length) {
    const std::string header = SafetensorsHeader({{std::string(length, 'n'), {1}, {0}}}, {});
    EXPECT_EQ(header.size() % 8, 0u);
    EXPECT_THAT(ParseSafetensors(header + "1234"), IsOk());
  }
}

TEST(Safetensors, Read_WhatWasWritten_IsBitEqual) {
  const auto arrays = ReadSafetensors(TwoArraysFile());
  ASSERT_THAT(arrays, IsOk());
  ASSERT_EQ(arrays->size(), 2u);
  EXPECT_EQ((*arrays)[0].name, "wte.weight");
  EXPECT_EQ((*arrays)[0].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ((*arrays)[0].values, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(std::signbit((*arrays)[1].values[0]));
}

TEST(Safetensors, Parse_MetadataAndScalars_AreKept) {
  const std::string file =
      File(R"({"__metadata__": {"k": "v"}, "s": {"dtype":"I64","shape":[],"data_offsets":[0,8]}})",
           "12345678");
  const auto view = ParseSafetensors(file);
  ASSERT_THAT(view, IsOk());
  EXPECT_EQ(view->metadata.at("k"), "v");
  ASSERT_EQ(view->tensors.size(), 1u);
  EXPECT_TRUE(view->tensors[0].shape.empty());
  EXPECT_EQ(std::string(view->tensors[0].bytes), "12345678");
}

TEST(Safetensors, Parse_NoTensors_IsEmpty) {
  const auto view = ParseSafetensors(File("{}", ""));
  ASSERT_THAT(view, IsOk());
  EXPECT_TRUE(view->tensors.empty());
}

TEST(Safetensors, Read_OtherTypeThanF32_IsRefused) {
  EXPECT_THAT(
      ReadSafetensors(File(R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})", "1234")),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("F16")));
}

TEST(Safetensors, Parse_EveryTruncation_IsRefused) {
  const std::string file = TwoArraysFile();
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_THAT(ParseSafetensors(absl::string_view(file).substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("")))
        << size;
  }
}

// A download that was interrupted ends anywhere: in the header's length, in the header, or in the data.
TEST(Safetensors, Parse_FileThatIsCutShort_SaysToFetchItAgain) {
  const std::string file = TwoArraysFile();
  for (const size_t size : {size_t{5}, size_t{20}, file.size() - 12}) {
    EXPECT_THAT(ParseSafetensors(absl::string_view(file).substr(0, size)),
                StatusIs(absl::StatusCode::kDataLoss,
                         HasSubstr("; the file is cut short, so fetch or copy it again")))
        << size;
  }
  EXPECT_THAT(ParseSafetensors(absl::string_view(file).substr(0, file.size() - 12)),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("tensor ln_f.bias: data_offsets is 24, expected a number from 0 "
                                 "to 20, as that is how many bytes the file has behind its "
                                 "header; the file is cut short")));
}

TEST(Safetensors, Parse_BytesAfterTheEnd_AreRefused) {
  EXPECT_THAT(ParseSafetensors(TwoArraysFile() + "x"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("1 bytes after")));
}

TEST(Safetensors, Parse_HeaderLongerThanTheFile_IsRefused) {
  EXPECT_THAT(ParseSafetensors(std::string(8, '\xff') + "{}"),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("claims")));
}

TEST(Safetensors, Parse_HeaderOverTheLimit_IsRefused) {
  std::string file(size_t{17} << 20, ' ');
  const uint64_t length = file.size() - 8;
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i));
  EXPECT_THAT(ParseSafetensors(file), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("limit")));
}

TEST(Safetensors, Parse_GapOrOverlap_IsRefused) {
  const auto two = [](const char* first, const char* second) {
    return File(absl::StrCat(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)", first,
                             R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)", second, "}}"),
                "12345");
  };
  EXPECT_THAT(ParseSafetensors(two("[0,2]", "[3,5]")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("gap")));
  EXPECT_THAT(ParseSafetensors(two("[0,2]", "[1,3]")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("overlaps")));
  EXPECT_THAT(ParseSafetensors(two("[0,2]", "[0,2]")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("overlaps")));
  EXPECT_THAT(ParseSafetensors(two("[1,3]", "[3,5]")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("gap")));
}

TEST(Safetensors, Parse_ShapeThatOverflows_IsRefused) {
  ExpectRefused(R"({"dtype":"F32","shape":[4194305,4194305,211106198978564],"data_offsets":[0,4]})",
                "1234", "too large to count");
}

TEST(Safetensors, Parse_BadTensor_SaysWhy) {
  ExpectRefused(R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})", "", "no elements");
  ExpectRefused(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})", "1234", "needs 8");
  ExpectRefused(R"({"dtype":"F32","shape":[1],"data_offsets":[0,8]})", "1234", "data_offsets is 8");
  ExpectRefused(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})", "1234",
                "a begin and an end");
  ExpectRefused(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})", "1234", "a begin and an end");
  ExpectRefused(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})", "1234", "shape is -1");
  ExpectRefused(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})", "1234", "shape is 1.0");
  ExpectRefused(R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})", "1234", "not a list");
  ExpectRefused(R"({"dtype":"F8","shape":[4],"data_offsets":[0,4]})", "1234", "unknown dtype");
  ExpectRefused(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]})", "1234",
                "at most 8");
  ExpectRefused(R"({"dtype":"F32","shape":[1]})", "1234", "exactly the keys");
  ExpectRefused(R"({"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1})", "1234",
                "exactly the keys");
  ExpectRefused(R"(7)", "", "exactly the keys");
  ExpectRefused(R"({"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]})", "1234",
                "twice");
}

TEST(Safetensors, Parse_NameTwiceOrStrange_IsRefused) {
  const std::string tensor = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_THAT(ParseSafetensors(File(absl::StrCat("{\"a\":", tensor, ",\"a\":", tensor, "}"), "1")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("twice")));
  EXPECT_THAT(ParseSafetensors(File(absl::StrCat("{\"a b\":", tensor, "}"), "1")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("characters")));
  EXPECT_THAT(
      ParseSafetensors(File(absl::StrCat("{\"", std::string(513, 'a'), "\":", tensor, "}"), "1")),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("513")));
}

TEST(Safetensors, Parse_BadMetadata_IsRefused) {
  EXPECT_THAT(ParseSafetensors(File(R"({"__metadata__": {"k": 1}})", "")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("__metadata__.k")));
  EXPECT_THAT(ParseSafetensors(File(R"({"__metadata__": []})", "")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("not an object")));
  const std::string large(100'000, 'x');
  EXPECT_THAT(
      ParseSafetensors(File(absl::StrCat("{\"__metadata__\": {\"k\": \"", large, "\"}}"), "")),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("65536")));
}

TEST(Safetensors, Parse_RandomDamage_NeverCrashesOrReadsOutside) {
  const std::string good = TwoArraysFile();
  RandomStream random(/*seed=*/1, /*purpose=*/0);
  for (int round = 0; round < 20'000; ++round) {
    std::string file = good;
    const uint64_t edits = 1 + random.Below(4);
    for (uint64_t i = 0; i < edits; ++i) {
      file[random.Below(file.size())] = static_cast<char>(random.Below(256));
    }
    if (random.Below(4) == 0) file.resize(random.Below(file.size()));
    const auto view = ParseSafetensors(file);
    if (!view.ok()) continue;
    for (const TensorView& tensor : view->tensors) {
      EXPECT_GE(tensor.bytes.data(), file.data());
      EXPECT_LE(tensor.bytes.data() + tensor.bytes.size(), file.data() + file.size());
    }
  }
}

}  // namespace
}  // namespace penstock
