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

TEST(TextTest, FormatUnixMs_Zero_IsDash) { EXPECT_EQ(FormatUnixMs(0), "-"); }

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
