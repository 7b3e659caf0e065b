#include "services/cli/text.h"

#include <gtest/gtest.h>

#include <limits>

#include "services/cli/table.h"

namespace penstock {
namespace {

TEST(TextTest, FormatDuration_EachSize_HasItsUnit) {
  EXPECT_EQ(FormatDuration(0.0849), "85 ms");
  EXPECT_EQ(FormatDuration(12.34), "12.3 s");
  EXPECT_EQ(FormatDuration(59.97), "1m 00s");
  EXPECT_EQ(FormatDuration(200), "3m 20s");
  EXPECT_EQ(FormatDuration(7500), "2h 05m");
  EXPECT_EQ(FormatDuration(-1), "-");
  EXPECT_EQ(FormatDuration(std::numeric_limits<double>::infinity()), "-");
}

TEST(TextTest, FormatCount_EachSize_HasThreeDigits) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(950), "950");
  EXPECT_EQ(FormatCount(999.7), "1.00 k");
  EXPECT_EQ(FormatCount(12345), "12.3 k");
  EXPECT_EQ(FormatCount(4.56e6), "4.56 M");
  EXPECT_EQ(FormatCount(7.5e12), "7.50 T");
}

TEST(TextTest, FormatBytes_EachSize_HasBinaryUnit) {
  EXPECT_EQ(FormatBytes(950), "950 B");
  EXPECT_EQ(FormatBytes(12600), "12.3 KiB");
  EXPECT_EQ(FormatBytes(int64_t{5} << 30), "5.00 GiB");
}

TEST(TextTest, Numbers_ThatAreNoneOrTooLong_AreReadable) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(FormatLoss(2.34121), "2.3412");
  EXPECT_EQ(FormatLoss(9999.4), "9999.4000");
  EXPECT_EQ(FormatLoss(2.13e23), "2.1e+23");
  EXPECT_EQ(FormatLoss(-2.13e23), "-2.1e+23");
  EXPECT_EQ(FormatLoss(kInfinity), "infinite");
  EXPECT_EQ(FormatLoss(-kInfinity), "-infinite");
  EXPECT_EQ(FormatLoss(std::numeric_limits<double>::quiet_NaN()), "not a number");
  EXPECT_EQ(FormatFixed(123456.25, 1), "123456.2");
  EXPECT_EQ(FormatFixed(1e23, 1), "1e+23");
  EXPECT_EQ(FormatDigits(0.00098127, 3), "0.000981");
  EXPECT_EQ(FormatCount(1e30), "1e+18 T");
  EXPECT_EQ(FormatCount(kInfinity), "infinite T");
  EXPECT_EQ(FormatPercent(1e20), "1e+22 %");
}

TEST(TextTest, FormatUnixMs_IsUtc) {
  EXPECT_EQ(FormatUnixMs(1'782'914'585'127), "2026-07-01T14:03:05Z");
  EXPECT_EQ(FormatUnixMs(0), "-");
}

TEST(TableTest, Render_ColumnsLineUp_WithoutTrailingBlanks) {
  Table table({{"STAGE", Table::Align::kRight}, {"WORKER"}, {"BUBBLE", Table::Align::kRight}});
  table.AddRow({"0", "worker-0", "3.1 %"});
  table.AddRow({"12", "é", ""});
  EXPECT_EQ(table.Render(),
            "STAGE  WORKER    BUBBLE\n"
            "    0  worker-0   3.1 %\n"
            "   12  é\n");
}

TEST(TableTest, Render_WithoutRows_IsTitlesAlone) {
  EXPECT_EQ(Table({{"A"}, {"B"}}).Render(), "A  B\n");
}

}  // namespace
}  // namespace penstock
