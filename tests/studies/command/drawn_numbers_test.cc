#include "studies/command/drawn_numbers.h"

#include <gmock/gmock.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file with these words for its header after the metadata, and these numbers.
std::string FileOf(const std::string& metadata, const std::string& tensors,
                   const std::vector<double>& numbers) {
  const std::string header = absl::StrCat("{\"__metadata__\":{", metadata, "},", tensors, "}");
  const uint64_t size = header.size();
  std::string file(reinterpret_cast<const char*>(&size), sizeof(size));
  absl::StrAppend(&file, header);
  file.append(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(double));
  return file;
}

std::string TensorText(const std::string& name, const std::string& shape, int64_t first,
                       int64_t end, const std::string& dtype = "F64") {
  return absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":[", shape,
                      "],\"data_offsets\":[", 8 * first, ",", 8 * end, "]}");
}

TEST(DrawnNumbersTest, WholeFile_IsRead) {
  const std::string tensors =
      absl::StrCat(TensorText("features", "2,3", 0, 6), ",", TensorText("targets", "2", 6, 8), ",",
                   TensorText("noise.4", "1", 8, 9), ",", TensorText("noise.2", "2", 9, 11));
  const auto numbers = ParseDrawnNumbers(FileOf("\"l2\":\"0.5\",\"published.4\":\"1.0e-02\"",
                                                tensors, {1, 2, 3, 4, 5, 6, 1, 0, 7, 8, 9}),
                                         "f");
  ASSERT_THAT(numbers, IsOk());
  EXPECT_EQ(numbers->problem.rows(), 2);
  EXPECT_EQ(numbers->problem.features.At(1, 0), 4.0);
  EXPECT_THAT(numbers->problem.targets, ElementsAre(1.0, 0.0));
  EXPECT_EQ(numbers->problem.l2, 0.5);
  ASSERT_EQ(numbers->of_stages.size(), 2u);
  EXPECT_EQ(numbers->of_stages[0].stages, 2);
  EXPECT_EQ(numbers->of_stages[0].noise.count(), 2);
  EXPECT_EQ(numbers->of_stages[0].published, "");
  EXPECT_EQ(numbers->of_stages[1].published, "1.0e-02");
}

TEST(DrawnNumbersTest, WhatIsWrong_IsSaidWithTheFile) {
  const std::string features = TensorText("features", "1,1", 0, 1);
  const std::string targets = TensorText("targets", "1", 1, 2);
  const struct {
    std::string metadata, tensors;
    std::vector<double> numbers;
    std::string expected;
  } cases[] = {
      {"\"l2\":\"0\"", targets, {1, 2}, "file"},
      {"\"l2\":\"0\"",
       TensorText("targets", "1", 0, 1),
       {1},
       "the tensor \"features\", F64 of 2 dimensions"},
      {"\"l2\":\"0\"",
       absl::StrCat(TensorText("features", "1,1", 0, 1, "I64"), ",", targets),
       {1, 1},
       "\"features\", F64"},
      {"\"l2\":\"0\"",
       absl::StrCat(features, ",", targets),
       {1, 2},
       "each of the 1 rows of \"features\" a 0 or a 1"},
      {"\"l2\":\"-1\"",
       absl::StrCat(features, ",", targets),
       {1, 1},
       "\"l2\", a number of at least 0"},
      {"", absl::StrCat(features, ",", targets), {1, 1}, "\"l2\", a number of at least 0"},
      {"\"l2\":\"0\"",
       absl::StrCat(features, ",", targets),
       {1, 1},
       "\"noise.S\" for some number of stages"},
      {"\"l2\":\"0\"",
       absl::StrCat(features, ",", targets, ",", TensorText("noise.x", "1", 2, 3)),
       {1, 1, 1},
       "\"noise.x\": expected"},
  };
  for (const auto& each : cases) {
    const auto numbers =
        ParseDrawnNumbers(FileOf(each.metadata, each.tensors, each.numbers), "file");
    EXPECT_THAT(numbers.status().message(), HasSubstr(each.expected));
    EXPECT_THAT(numbers.status().message(), HasSubstr("file: "));
  }
}

}  // namespace
}  // namespace penstock
