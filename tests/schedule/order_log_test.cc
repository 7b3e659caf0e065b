#include "schedule/order_log.h"

#include <gmock/gmock.h>

#include <limits>

#include "base/random.h"
#include "schedule/recorded_order.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<StageId> Stages(const std::vector<int32_t>& ids) {
  std::vector<StageId> stages;
  stages.reserve(ids.size());
  for (const int32_t id : ids) stages.emplace_back(id);
  return stages;
}

// Blocks at random, as many as the range has.
OrderLog RandomLog(const std::vector<StageId>& stages, MicrobatchRange range, uint64_t seed) {
  RandomStream random(seed, /*purpose=*/0);
  OrderLog log(stages, range);
  while (log.size() < log.size_complete()) {
    log.Append({stages[random.Below(stages.size())], random.Below(2) == 1});
  }
  return log;
}

TEST(OrderLog, OneStage_TakesABitForEachBlock) {
  OrderLog log(Stages({5}), {.first = 10, .count = 6});
  for (const bool backward : {false, false, true, false, true, true, false, false, true, false}) {
    log.Append({StageId(5), backward});
  }
  // The lowest bit first: 00110100, then 10.
  EXPECT_EQ(log.bytes(), std::string("\x34\x01", 2));
  EXPECT_EQ(OrderLog::BytesComplete(1, 6), 2);
  EXPECT_EQ(log.At(2), (OrderBlock{StageId(5), true}));
  EXPECT_EQ(log.At(8), (OrderBlock{StageId(5), true}));
  EXPECT_EQ(ToString(log.At(9)), "5F");
}

TEST(OrderLog, AnyNumberOfStages_ComesBackFromItsBytes) {
  std::vector<StageId> stages;
  for (int32_t count = 1; count <= 9; ++count) {
    stages.emplace_back(3 * count);
    const MicrobatchRange range = {.first = 7, .count = 13};
    const OrderLog log = RandomLog(stages, range, count);
    EXPECT_EQ(static_cast<int64_t>(log.bytes().size()), OrderLog::BytesComplete(count, 13));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const OrderLog read,
                                  OrderLog::FromBytes(stages, range, log.bytes()));
    EXPECT_EQ(read, log);
  }
}

TEST(OrderLog, ShortenedLog_IsThatOfTheShorterRange) {
  OrderLog log(Stages({0}), {.first = 0, .count = 100});
  OrderLog shorter(Stages({0}), {.first = 0, .count = 1});
  for (const bool backward : {false, true}) {
    log.Append({StageId(0), backward});
    shorter.Append({StageId(0), backward});
  }
  log.Shorten(1);
  EXPECT_EQ(log, shorter);
}

TEST(OrderLog, BytesThatAreNoLog_AreRefused) {
  const MicrobatchRange range = {.first = 0, .count = 4};
  EXPECT_THAT(OrderLog::FromBytes(Stages({0}), range, "xy"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has 2 bytes; the 4 microbatches of 1 stages need 1")));
  for (const int64_t count : {int64_t{-4}, int64_t{1} << 62, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(OrderLog::FromBytes(Stages({0}), {.first = 0, .count = count}, "x"),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has 1 bytes for them")));
  }
  // Three stages take three bits; 110 and 111 mean nothing.
  EXPECT_THAT(OrderLog::FromBytes(Stages({0, 1, 2}), range, std::string(9, '\xff')),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("block 0 is of none")));
}

constexpr char kText[] =
    "penstock-order 1  # in which order each worker ran forwards (F) and backwards (B)\n"
    "method pipedream\n"
    "weights single\n"
    "microbatches 4  # of a step\n"
    "stage 0 worker 0 layers 0+3\n"
    "stage 1 worker 1 layers 3+4\n"
    "range 0+4\n"
    "worker 0\n"
    " 0F*2 0B 0F 0B 0F 0B*2\n"
    "worker 1\n"
    " 1F 1B 1F 1B 1F 1B 1F 1B\n"
    "range 4+4\n"
    "worker 0\n"
    " 0F*4 0B*4\n"
    "worker 1\n"
    " 1F*2 1B*2 1F*2 1B*2\n"
    "end\n";

TEST(RecordedOrderText, KnownText_IsReadAndPrintedTheSame) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const RecordedOrder order, ParseRecordedOrder(kText));
  EXPECT_EQ(order.method, "pipedream");
  EXPECT_EQ(order.weights, "single");
  EXPECT_EQ(order.microbatches, 4);
  EXPECT_EQ(order.workers(), 2);
  EXPECT_EQ(order.stages[1], (RecordedOrder::Stage{WorkerId(1), 3, 4}));
  ASSERT_EQ(order.ranges.size(), 2u);
  EXPECT_EQ(order.ranges[1].microbatches, (MicrobatchRange{4, 4}));
  EXPECT_EQ(order.ranges[0].workers[0].At(3), (OrderBlock{StageId(0), false}));
  EXPECT_EQ(PrintRecordedOrder(order), kText);
}

TEST(RecordedOrderText, RandomOrders_ComeBack) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    RecordedOrder order = {.method = "interleaved-1f1b", .weights = "", .microbatches = 8};
    const int32_t workers = 1 + static_cast<int32_t>(seed % 4);
    const int32_t stages = workers * (1 + static_cast<int32_t>(seed % 3));
    for (int32_t s = 0; s < stages; ++s) order.stages.push_back({WorkerId(s % workers), s, 1});
    for (int64_t first = 16; first < 64; first += 16) {
      RecordedOrder::Range& range = order.ranges.emplace_back();
      range.microbatches = {first, 16};
      for (int32_t w = 0; w < workers; ++w) {
        range.workers.push_back(
            RandomLog(order.StagesOf(WorkerId(w)), range.microbatches, seed * 100 + w));
      }
    }
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const RecordedOrder read,
                                  ParseRecordedOrder(PrintRecordedOrder(order)));
    EXPECT_EQ(read, order) << "seed " << seed;
  }
}

// `kText` with the first `what` replaced.
std::string Changed(const std::string& what, const std::string& by) {
  std::string text = kText;
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

TEST(RecordedOrderText, WhatIsNoOrder_IsRefusedWithItsPlace) {
  const auto refused = [](const std::string& text) {
    const auto order = ParseRecordedOrder(text);
    EXPECT_THAT(order, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("")));
    return std::string(order.status().message());
  };
  EXPECT_THAT(refused(""), HasSubstr("penstock-order 1"));
  EXPECT_THAT(refused("# penstock schedule 1"), HasSubstr("penstock-order 1"));
  EXPECT_THAT(refused(Changed("order 1", "order 2")), HasSubstr("line 1"));
  EXPECT_THAT(refused(Changed("method pipedream\n", "")), HasSubstr("\"method NAME\" first"));
  EXPECT_THAT(refused(Changed("microbatches 4", "microbatches 0")), HasSubstr("line 4"));
  EXPECT_THAT(refused(Changed("stage 1 worker 1", "stage 2 worker 1")),
              HasSubstr("stage 1 worker"));
  EXPECT_THAT(refused(Changed("stage 1 worker 1", "stage 1 worker 2")),
              HasSubstr("none on worker 1"));
  EXPECT_THAT(refused(Changed("range 0+4", "range 0-4")), HasSubstr("line 7"));
  EXPECT_THAT(refused(Changed("range 0+4", "range 0+9000000000")), HasSubstr("at most"));
  EXPECT_THAT(refused(Changed("range 4+4", "range 5+4")), HasSubstr("range 4+<microbatches>"));
  EXPECT_THAT(refused(Changed("worker 1\n", "worker 0\n")), HasSubstr("expected worker 1"));
  EXPECT_THAT(refused(Changed(" 1F 1B 1F", " 1F 1B 0F")),
              AllOf(HasSubstr("line 11"), HasSubstr("worker 1, block 2"),
                    HasSubstr("stage 0 is not on this worker")));
  EXPECT_THAT(refused(Changed(" 1F 1B 1F", " 1F 1X 1F")), HasSubstr("worker 1, block 1"));
  EXPECT_THAT(refused(Changed("0F*2", "0F*3")), HasSubstr("expected 8 blocks, got more"));
  EXPECT_THAT(refused(Changed("0F*2", "0F*0")), HasSubstr("worker 0, block 0"));
  EXPECT_THAT(refused(Changed("0F*2", "0F*")), HasSubstr("got 0F*"));
  EXPECT_THAT(refused(Changed("0F*2", "0F")), HasSubstr("expected 8 blocks, got 7"));
  EXPECT_THAT(refused(Changed("end\n", "")), HasSubstr("cut off"));
  EXPECT_THAT(refused("penstock-order 1\nend\n"), HasSubstr("\"method NAME\" first"));
  EXPECT_THAT(refused(Changed("end\n", "end\nrange 8+4\n")), HasSubstr("nothing after"));
  // Cut off anywhere.
  const std::string whole = kText;
  for (size_t size = 0; size + 1 < whole.size(); ++size) {
    EXPECT_FALSE(ParseRecordedOrder(whole.substr(0, size)).ok()) << size;
  }
}

TEST(RecordedOrder, Continue_JoinsRunsOfOneJobWithoutGap) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const RecordedOrder whole, ParseRecordedOrder(kText));
  RecordedOrder first = whole;
  RecordedOrder second = whole;
  first.ranges.pop_back();
  second.ranges.erase(second.ranges.begin());
  RecordedOrder joined = first;
  EXPECT_THAT(Continue(second, joined), IsOk());
  EXPECT_EQ(joined, whole);
  EXPECT_THAT(Continue(second, joined),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("begins at microbatch 4")));
  second.stages[0].layers = 1;
  joined = first;
  EXPECT_THAT(Continue(second, joined),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("another job")));
}

}  // namespace
}  // namespace penstock
