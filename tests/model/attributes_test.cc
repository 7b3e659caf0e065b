#include "model/attributes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "model/op.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr absl::string_view kPaddings[] = {"valid", "same"};
constexpr AttributeSpec kSpecs[] = {
    {"channels", AttributeKind::kInteger, "channels of the output"},
    {.name = "kernel",
     .kind = AttributeKind::kIntegers,
     .help = "height and width",
     .otherwise = "[3, 5]",
     .max = 100,
     .sizes = 2},
    {"dropout", AttributeKind::kNumber, "the probability", "0.25", 0.0, 0.5},
    {"bias", AttributeKind::kFlag, "adds a bias", "true"},
    {.name = "padding",
     .kind = AttributeKind::kWord,
     .help = "at the edges",
     .otherwise = "valid",
     .words = kPaddings},
};

absl::StatusOr<Attributes> CompleteWith(absl::string_view name, AttributeValue value) {
  Attributes given = {{"channels", int64_t{8}}};
  given.Set(name, std::move(value));
  return Complete(kSpecs, given);
}

TEST(Complete, MissingAttributes_HaveTheirDefaultsInTheOrderOfTheSpecs) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Attributes complete,
                                Complete(kSpecs, {{"channels", int64_t{8}}}));
  EXPECT_THAT(complete.entries(),
              ElementsAre(Pair("channels", AttributeValue(int64_t{8})),
                          Pair("kernel", AttributeValue(std::vector<int64_t>{3, 5})),
                          Pair("dropout", AttributeValue(0.25)), Pair("bias", AttributeValue(true)),
                          Pair("padding", AttributeValue(std::string("valid")))));
}

TEST(Complete, MissingAttributeWithoutDefault_StaysAway) {
  constexpr AttributeSpec kOptional[] = {{.name = "ignore", .otherwise = kNoDefault, .min = -100}};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Attributes without, Complete(kOptional, {}));
  EXPECT_FALSE(without.has("ignore"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Attributes with,
                                Complete(kOptional, {{"ignore", int64_t{-100}}}));
  EXPECT_EQ(with.integer("ignore"), -100);
  EXPECT_FALSE(IsDefault(kOptional[0], *with.Find("ignore")));
}

TEST(Complete, GivenAttributes_AreKeptInTheOrderOfTheSpecs) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Attributes complete,
                                Complete(kSpecs, {{"padding", std::string("same")},
                                                  {"bias", false},
                                                  {"dropout", 0.5},
                                                  {"kernel", std::vector<int64_t>{1, 7}},
                                                  {"channels", int64_t{4}}}));
  EXPECT_EQ(complete.integer("channels"), 4);
  EXPECT_THAT(complete.integers("kernel"), ElementsAre(1, 7));
  EXPECT_EQ(complete.number("dropout"), 0.5);
  EXPECT_FALSE(complete.flag("bias"));
  EXPECT_EQ(complete.word("padding"), "same");
  EXPECT_EQ(complete.entries().front().first, "channels");
}

TEST(Complete, CompleteAttributes_StayAsTheyAre) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Attributes once, CompleteWith("dropout", 0.125));
  EXPECT_THAT(Complete(kSpecs, once), IsOkAndHolds(once));
}

TEST(Complete, WholeNumber_ServesAsANumberAndAsSeveral) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Attributes number, CompleteWith("dropout", int64_t{0}));
  EXPECT_EQ(number.number("dropout"), 0.0);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Attributes both, CompleteWith("kernel", int64_t{4}));
  EXPECT_THAT(both.integers("kernel"), ElementsAre(4, 4));
}

TEST(Complete, RequiredAttribute_IsNamedWithItsHelp) {
  EXPECT_THAT(Complete(kSpecs, {}), StatusIs(kInvalid, AllOf(HasSubstr("channels: missing"),
                                                             HasSubstr("channels of the output"))));
}

TEST(Complete, UnknownAttribute_IsNamedWithThoseThatAreKnown) {
  EXPECT_THAT(CompleteWith("stride", int64_t{1}),
              StatusIs(kInvalid, AllOf(HasSubstr("stride: unknown"), HasSubstr("kernel"),
                                       HasSubstr("padding"))));
  EXPECT_THAT(Complete({}, {{"stride", int64_t{1}}}),
              StatusIs(kInvalid, HasSubstr("stride: unknown; expected nothing")));
}

struct WrongAttribute {
  const char* test_name;
  const char* name;
  AttributeValue value;
  const char* message;
};

class CompleteRefuses : public ::testing::TestWithParam<WrongAttribute> {};

TEST_P(CompleteRefuses, WrongValue_NamesItAndWhatIsExpected) {
  EXPECT_THAT(CompleteWith(GetParam().name, GetParam().value),
              StatusIs(kInvalid, HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Attributes, CompleteRefuses,
    ::testing::Values(
        WrongAttribute{"NumberForAnInteger", "channels", 1.5,
                       "channels: is 1.5; expected a whole number"},
        WrongAttribute{"WordForAnInteger", "channels", std::string("many"),
                       "channels: is many; expected a whole number"},
        WrongAttribute{"IntegersForAnInteger", "channels", std::vector<int64_t>{1, 2},
                       "channels: is [1, 2]; expected a whole number"},
        WrongAttribute{"FlagForANumber", "dropout", true, "dropout: is true; expected a number"},
        WrongAttribute{"WordForIntegers", "kernel", std::string("3x3"),
                       "kernel: is 3x3; expected whole numbers"},
        WrongAttribute{"IntegerForAFlag", "bias", int64_t{1}, "bias: is 1; expected true or false"},
        WrongAttribute{"FlagForAWord", "padding", false, "padding: is false; expected a word"},
        WrongAttribute{"IntegerBelowTheRange", "channels", int64_t{0},
                       "channels: is 0; expected a whole number from 1 to"},
        WrongAttribute{"IntegerAboveTheRange", "channels", (int64_t{1} << 24) + 1,
                       "channels: is 16777217; expected a whole number from 1 to 16777216"},
        WrongAttribute{"NumberBelowTheRange", "dropout", -0.1,
                       "dropout: is -0.1; expected a number from 0 to 0.5"},
        WrongAttribute{"NumberAboveTheRange", "dropout", 0.6,
                       "dropout: is 0.6; expected a number from 0 to 0.5"},
        WrongAttribute{"NotANumber", "dropout", std::nan(""), "dropout: is nan"},
        WrongAttribute{"TooManyIntegers", "kernel", std::vector<int64_t>{1, 2, 3},
                       "kernel: has 3 numbers; expected one, or 2 of them"},
        WrongAttribute{"TooFewIntegers", "kernel", std::vector<int64_t>{1},
                       "kernel: has 1 numbers; expected one, or 2 of them"},
        WrongAttribute{"NoIntegers", "kernel", std::vector<int64_t>{},
                       "kernel: has 0 numbers; expected one, or 2 of them"},
        WrongAttribute{"IntegersOutsideTheRange", "kernel", std::vector<int64_t>{3, 101},
                       "kernel: is 101; expected a whole number from 1 to 100"},
        WrongAttribute{"UnknownWord", "padding", std::string("full"),
                       "padding: is \"full\"; expected one of valid, same"}),
    [](const auto& info) { return info.param.test_name; });

TEST(Attributes, Set_ReplacesWhatHasTheName) {
  Attributes attributes = {{"a", int64_t{1}}, {"b", true}};
  attributes.Set("a", 2.5);
  attributes.Set("c", std::string("x"));
  EXPECT_EQ(attributes, (Attributes{{"a", 2.5}, {"b", true}, {"c", std::string("x")}}));
  EXPECT_TRUE(attributes.has("c"));
  EXPECT_FALSE(attributes.has("d"));
  EXPECT_EQ(attributes.Find("d"), nullptr);
}

TEST(AttributeText, OfEveryKind_IsAsInYaml) {
  EXPECT_EQ(ToString(AttributeValue(true)), "true");
  EXPECT_EQ(ToString(AttributeValue(int64_t{-3})), "-3");
  EXPECT_EQ(ToString(AttributeValue(0.1)), "0.1");
  EXPECT_EQ(ToString(AttributeValue(std::string("valid"))), "valid");
  EXPECT_EQ(ToString(AttributeValue(std::vector<int64_t>{3, 5})), "[3, 5]");
}

// A default that is no value of its own attribute would end the process where nobody expects it.
TEST(AllOps, Defaults_CanBeReadAndAreInRange) {
  for (const Op* op : AllOps()) {
    for (const AttributeSpec& spec : op->attributes) {
      if (spec.otherwise.empty()) continue;
      SCOPED_TRACE(testing::Message() << op->name << " " << spec.name);
      const absl::Span<const AttributeSpec> one = absl::MakeConstSpan(&spec, 1);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Attributes made, Complete(one, {}));
      EXPECT_THAT(Complete(one, made), IsOkAndHolds(made));
    }
  }
}

TEST(AllOps, Ops_CanBeFoundByTheirNames) {
  for (const Op* op : AllOps()) EXPECT_THAT(FindOp(op->name), IsOkAndHolds(op));
  EXPECT_THAT(FindOp("layer_nrom"),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("\"layer_nrom\""), HasSubstr("layer_norm"))));
}

}  // namespace
}  // namespace penstock
