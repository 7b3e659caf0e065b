#include "checkpoint/strict_json.h"

#include <gtest/gtest.h>

#include <string>

#include "nlohmann/json.hpp"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

TEST(StrictJson, Parse_AllKinds_KeepsValues) {
  const auto json = ParseStrictJson(R"({"a": [1, -2, 1.5, true, null], "b": {"c": "d"}})", {});
  ASSERT_THAT(json, IsOk());
  EXPECT_EQ(json->dump(), R"({"a":[1,-2,1.5,true,null],"b":{"c":"d"}})");
}

TEST(StrictJson, Parse_KeyTwice_NamesIt) {
  EXPECT_THAT(ParseStrictJson(R"({"a": 1, "b": 2, "a": 1})", {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("key \"a\" is there twice")));
}

TEST(StrictJson, Parse_KeyTwiceInside_NamesIt) {
  EXPECT_THAT(ParseStrictJson(R"([{"x": {"y": 1, "y": 2}}])", {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"y\"")));
}

TEST(StrictJson, Parse_SameKeyInSiblings_IsFine) {
  EXPECT_THAT(ParseStrictJson(R"([{"x": 1}, {"x": 2}])", {}), IsOk());
}

TEST(StrictJson, Parse_TooDeep_IsRefusedWithoutRecursion) {
  EXPECT_THAT(ParseStrictJson(std::string(1'000'000, '['), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("deep")));
}

TEST(StrictJson, Parse_TooManyValues_IsRefused) {
  EXPECT_THAT(ParseStrictJson("[1,2,3]", {.depth_max = 2, .values_max = 3}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 3")));
}

TEST(StrictJson, Parse_NotJson_NamesThePosition) {
  EXPECT_THAT(ParseStrictJson("{\"a\" 1}", {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("byte 6")));
  EXPECT_THAT(ParseStrictJson("", {}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("")));
  EXPECT_THAT(ParseStrictJson("{} {}", {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not JSON")));
  EXPECT_THAT(ParseStrictJson("\"\xff\"", {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not JSON")));
}

}  // namespace
}  // namespace penstock
