#include "studies/theory/libsvm.h"

#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

void ExpectRefused(absl::string_view text, const std::string& message) {
  EXPECT_THAT(ParseLibsvm(text, "data", 0.1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
      << text;
}

TEST(ParseLibsvmTest, Rows_BecomeALogisticRegression) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Problem problem,
                                ParseLibsvm("1 1:0.5 3:-2 \r\n\n-1 2:1e1\n0\n+1 4:1", "data", 0.1));
  EXPECT_EQ(problem.loss, Loss::kLogistic);
  EXPECT_EQ(problem.name, "data");
  EXPECT_EQ(problem.l2, 0.1);
  EXPECT_EQ(problem.width(), 4);
  EXPECT_THAT(problem.targets, ElementsAre(1, 0, 0, 1));
  EXPECT_THAT(problem.features.values,
              ElementsAre(0.5, 0, -2, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1));
}

TEST(ParseLibsvmTest, BadInput_NamesLineColumnAndWhatWasExpected) {
  ExpectRefused("", "data: has no rows");
  ExpectRefused("\n \n", "data: has no rows");
  ExpectRefused("1\n0\n", "data: no row names a feature");
  ExpectRefused("0 1:1\n2 1:1\n", "data:2:1: expected a label of 0, 1 or -1, got \"2\"");
  ExpectRefused("x 1:1", "data:1:1: expected a label of 0, 1 or -1, got \"x\"");
  ExpectRefused("1 1:1 7\n", "data:1:7: expected INDEX:VALUE, got \"7\"");
  ExpectRefused("1 0:1", "data:1:3: expected an index from 1 to 4096, got \"0\"");
  ExpectRefused("1 3:1 3:1", "data:1:7: expected an index from 4 to 4096, got \"3\"");
  ExpectRefused("1 3:1 2:1", "data:1:7: expected an index from 4 to 4096, got \"2\"");
  ExpectRefused("1 4097:1", "data:1:3: expected an index from 1 to 4096");
  ExpectRefused("1 99999999999999999999:1", "data:1:3: expected an index");
  ExpectRefused("1 1:", "data:1:5: expected a finite number, got \"\"");
  ExpectRefused("1 1:nan", "data:1:5: expected a finite number, got \"nan\"");
  ExpectRefused("1 1:inf", "data:1:5: expected a finite number");
  ExpectRefused("1 1:2x", "data:1:5: expected a finite number, got \"2x\"");
  ExpectRefused(absl::string_view("1 1:\0", 5), "got \"\\x00\"");
}

TEST(ParseLibsvmTest, TooManyValues_IsRefused) {
  std::string text;
  for (int row = 0; row < 16385; ++row) text += "1 4096:1\n";
  ExpectRefused(text, "data:16385: more than 67108864 values (16385 rows of 4096)");
}

}  // namespace
}  // namespace penstock
