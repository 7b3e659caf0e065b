// Stashes that wait on the host: which, when, and what it costs.
#include "schedule/offload.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "schedule/render_svg.h"
#include "schedule/render_trace.h"
#include "schedule/simulate.h"
#include "schedule/verify.h"
#include "tests/schedule/schedules.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ParseOffload, WordsPlacesAndNumbers_AreReadAndPrinted) {
  EXPECT_THAT(ParseOffload("none"), IsOkAndHolds(OffloadChoice()));
  EXPECT_THAT(ParseOffload("all"), IsOkAndHolds(OffloadChoice{.all = 3}));
  EXPECT_THAT(ParseOffload("all:5"), IsOkAndHolds(OffloadChoice{.all = 5}));
  EXPECT_THAT(ParseOffload("2"), IsOkAndHolds(OffloadChoice{.stages = {{2, 3}}}));
  EXPECT_THAT(ParseOffload("3:4,0,1:2"),
              IsOkAndHolds(OffloadChoice{.stages = {{0, 3}, {1, 2}, {3, 4}}}));
  for (const char* text : {"none", "all", "all:2", "0", "0:2,3,7:16"}) {
    EXPECT_EQ(TextOf(ParseOffload(text).value()), text);
  }
}

TEST(ParseOffload, AnythingElse_IsRefusedWithWhatWouldDo) {
  for (const char* text : {"", "some", "0,", "-1", "0:", "0:1", "0:-3", "all:1", "all,0", "0,all",
                           "1:x", "0:2:3", "1.5", "99999999999", "0 1", "0:9999999"}) {
    EXPECT_THAT(ParseOffload(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                             HasSubstr("expected none, all, or places")))
        << text;
  }
  EXPECT_THAT(ParseOffload("1,0,1:4"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("names stage 1 twice")));
}

TEST(CheckOffload, PlaceThatThereIsNotOrThatRecomputes_IsNamed) {
  EXPECT_THAT(CheckOffload({.stages = {{0, 3}, {3, 3}}}, {}, 4), IsOk());
  EXPECT_EQ(CheckOffload({.stages = {{4, 3}}}, {}, 4).message(),
            "names stage 4, but the pipeline has 4 stages; 0 to 3 would do");
  EXPECT_THAT(CheckOffload({.stages = {{1, 3}}}, {.places = {0}}, 4), IsOk());
  EXPECT_THAT(CheckOffload({.stages = {{0, 3}, {1, 3}}}, {.places = {1}}, 4),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stage 1, which recomputes")));
  EXPECT_THAT(CheckOffload({.all = 3}, {.all = true}, 4),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stage 0, which recomputes")));
}

bool CanOffload(const Method& method) { return method.placement != Placement::kRoundTrip; }

// By hand: microbatch 1 leaves while 2 is made, and has left before 3 needs its place; from then on each comes back
// beside the backward before its own and the forward between them.
TEST(Offload, Of1F1B_HasItsKnownOrder) {
  const Schedule schedule = OffloadingSteps(**FindMethod("1f1b"), {.stages = {{0, 3}}}, 4, 6, 0, 1);
  Schedule first_worker = schedule;
  first_worker.programs.resize(1);
  const std::string text = PrintSchedule(first_worker, {.merge_backward = true, .expand = true});
  EXPECT_THAT(text,
              HasSubstr("\n0F0,0SEND_F0,0F1,0SEND_F1,0OFFLOAD1,0F2,0SEND_F2,0OFFLOAD2,0EVICT1,"
                        "0F3,0SEND_F3,0OFFLOAD3,0EVICT2,0PREFETCH1,0RECV_B0,0B0,"
                        "0F4,0SEND_F4,0OFFLOAD4,0EVICT3,0PREFETCH2,0RECV_B1,0B1,"
                        "0F5,0SEND_F5,0OFFLOAD5,0EVICT4,0PREFETCH3,0RECV_B2,0B2,"
                        "0PREFETCH4,0RECV_B3,0B3,0EVICT5,0PREFETCH5,0RECV_B4,0B4,0RECV_B5,0B5,"
                        "0UPDATE,FLUSH\n"));
}

std::vector<Action> WithoutMoves(const Program& program) {
  ActionList list = Expand(program);
  std::erase_if(list, [](const Action& action) { return MovesStash(action.kind); });
  return list;
}

// Moves change neither what is computed nor the counts of what is in flight.
TEST(Offload, OfEveryMethod_IsVerifiedWithTheSameCountsAndItsLimit) {
  for (const Method& method : Methods()) {
    if (!CanOffload(method)) continue;
    for (const int32_t workers : {1, 2, 4, 5}) {
      for (const int32_t stashes : {2, 3, 4}) {
        SCOPED_TRACE(absl::StrCat(method.name, " on ", workers, ", ", stashes));
        const Schedule plain = CatalogSteps(method, workers, 8, 8, 3);
        const Schedule schedule = OffloadingSteps(method, {.all = stashes}, workers, 8, 8, 3);
        for (size_t w = 0; w < plain.programs.size(); ++w) {
          EXPECT_EQ(WithoutMoves(schedule.programs[w]), Expand(plain.programs[w]));
        }
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport expected, Verify(plain));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport slow, VerifyWithoutShortcut(schedule));
        EXPECT_EQ(slow.stages, report.stages);
        EXPECT_EQ(report.channel_capacity_min, expected.channel_capacity_min);
        for (size_t s = 0; s < report.stages.size(); ++s) {
          StageCounts counts = report.stages[s];
          EXPECT_EQ(counts.resident_live, 0);
          EXPECT_EQ(counts.offloaded_live, 0);
          EXPECT_LE(counts.resident_peak, counts.activations_peak);
          if (counts.activations_peak <= stashes) {
            EXPECT_EQ(counts.offloaded_peak, 0);
          }
          // With W at once nothing but stashes is on the device.
          const bool whole_backwards =
              !absl::StartsWith(method.name, "zb") && !absl::StartsWith(method.name, "dualpipe");
          if (whole_backwards) {
            EXPECT_LE(counts.resident_peak, stashes);
          }
          counts.resident_peak = expected.stages[s].resident_peak;
          counts.offloaded_peak = expected.stages[s].offloaded_peak;
          EXPECT_EQ(counts, expected.stages[s]);
        }
      }
    }
  }
}

TEST(Offload, OfDeepPipelines_KeepsAsManyAsItSays) {
  for (const char* name : {"gpipe", "1f1b", "pipedream", "paci"}) {
    for (const int32_t workers : {4, 8, 16}) {
      for (const int32_t stashes : {2, 3, 5}) {
        SCOPED_TRACE(absl::StrCat(name, " on ", workers, ", ", stashes));
        const Schedule schedule =
            OffloadingSteps(**FindMethod(name), {.all = stashes}, workers, 16, 0, 4);
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
        for (const StageCounts& counts : report.stages) {
          EXPECT_EQ(counts.resident_peak, std::min<int64_t>(stashes, counts.activations_peak));
          // Those on the device, one of which may be leaving, and those on the host are all.
          if (counts.activations_peak > stashes) {
            EXPECT_GE(counts.offloaded_peak, counts.activations_peak - stashes);
          }
        }
      }
    }
  }
}

TEST(Offload, LongRange_IsVerifiedWithItsShortcut) {
  for (const char* name : {"1f1b", "paci", "pipedream", "interleaved-1f1b"}) {
    const Schedule schedule =
        OffloadingSteps(**FindMethod(name), {.all = 3}, 8, 16, 0, 100'000'000'000);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
    EXPECT_LT(report.actions_run, 200'000) << name;
    EXPECT_GT(report.stages[0].offloaded_peak, 0) << name;
  }
}

// The executor swaps programs where a range is cut short.
TEST(Offload, ShorterRange_HasTheSameActionsUpToTheCut) {
  for (const Method& method : Methods()) {
    if (!CanOffload(method)) continue;
    for (const int32_t stashes : {2, 3}) {
      const int64_t step = StepFor(method, 6, 4);
      const Schedule whole = OffloadingSteps(method, {.all = stashes}, 6, 4, 0, 12);
      for (int64_t cut = 1; cut < 12; ++cut) {
        const Schedule shorter = OffloadingSteps(method, {.all = stashes}, 6, 4, 0, cut);
        for (size_t w = 0; w < whole.programs.size(); ++w) {
          SCOPED_TRACE(absl::StrCat(method.name, ", ", stashes, ", cut ", cut, ", worker ", w));
          const ActionList all = Expand(whole.programs[w]);
          const ActionList some = Expand(shorter.programs[w]);
          auto end = std::find_if(all.begin(), all.end(), [&](const Action& action) {
            const bool begins =
                action.kind == ActionKind::kRecvActivation || action.kind == ActionKind::kForward;
            return begins && action.microbatch >= cut * step;
          });
          while (end != all.begin() && MovesStash(std::prev(end)->kind)) --end;
          ASSERT_LE(end - all.begin(), static_cast<int64_t>(some.size()));
          EXPECT_TRUE(std::equal(all.begin(), end, some.begin()));
        }
      }
    }
  }
}

// Any order of passes: what is added is always right, whichever backward comes first.
TEST(Offload, OfRandomOrders_IsVerified) {
  RandomStream random(5, 0);
  for (int round = 0; round < 300; ++round) {
    const auto count = static_cast<int64_t>(1 + random.Below(12));
    ActionList list;
    std::vector<int64_t> in_flight;
    std::vector<int64_t> waiting;  // for W, ascending
    int64_t made = 0;
    int64_t weights = 0;
    std::set<int64_t> backwards;
    while (weights < count) {
      const uint64_t choice = random.Below(3);
      if (choice == 0 && made < count) {
        in_flight.push_back(made);
        list.push_back({ActionKind::kForward, 0, made++});
      } else if (choice == 1 && !in_flight.empty()) {
        const auto which = in_flight.begin() + static_cast<long>(random.Below(in_flight.size()));
        list.push_back({ActionKind::kBackwardInput, 0, *which});
        backwards.insert(*which);
        in_flight.erase(which);
      } else if (choice == 2 && backwards.count(weights) == 1) {
        list.push_back({ActionKind::kBackwardWeight, 0, weights++});
      }
    }
    list.push_back({ActionKind::kUpdate});
    list.push_back({ActionKind::kFlush});
    Schedule schedule{.name = "random",
                      .topology = StraightPipeline(1),
                      .range = {0, count},
                      .programs = {{.prologue = list}}};
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport plain, Verify(schedule));
    const auto stashes = static_cast<int32_t>(2 + random.Below(4));
    AddOffload({stashes}, schedule.programs);
    SCOPED_TRACE(PrintSchedule(schedule));
    EXPECT_EQ(WithoutMoves(schedule.programs[0]), list);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
    EXPECT_LE(report.stages[0].resident_peak, plain.stages[0].resident_peak);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule again, ParseSchedule(PrintSchedule(schedule)));
    EXPECT_EQ(again.programs, schedule.programs);
  }
}

TEST(Offload, OfStagesThatRecomputeOrThereAndBack_IsRefused) {
  ScheduleOptions options{.topology = StraightPipeline(2), .microbatches_per_step = 4};
  options.offload = {.all = 3};
  options.topology.Recompute({StageId(1)});
  EXPECT_THAT(BuildSchedule(**FindMethod("1f1b"), options, {0, 4}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stage 1 recomputes")));
  options.offload = {.stages = {{0, 3}}};
  EXPECT_THAT(BuildSchedule(**FindMethod("1f1b"), options, {0, 4}), IsOk());
  const ScheduleOptions rounds{
      .topology = RoundTripPipelines(3, 2, 6), .microbatches_per_step = 6, .offload = {.all = 3}};
  EXPECT_THAT(BuildSchedule(**FindMethod("roundpipe"), rounds, {0, 6}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("there and back")));
}

// A list may have moves of its own, with and without messages.
TEST(Offload, InALowerableList_StaysWhereItStands) {
  const Schedule schedule = ScheduleFromText(
      "# penstock schedule 1 stages=0,1 range=0+2\n"
      "0F0,0OFFLOAD0,0F1,0EVICT0,0PREFETCH0,0B0,0B1\n1F0,1B0,1F1,1B1\n");
  EXPECT_THAT(PrintSchedule(schedule),
              HasSubstr("\n0F0,0SEND_F0,0OFFLOAD0,0F1,0SEND_F1,0EVICT0,0PREFETCH0,0RECV_B0,0I0"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const VerifyReport report, Verify(schedule));
  EXPECT_EQ(report.stages[0].activations_peak, 2);
  EXPECT_EQ(report.stages[0].resident_peak, 2);
  EXPECT_EQ(report.stages[0].offloaded_peak, 1);
}

// Copies that are no longer than a pass hide behind passes.
TEST(OffloadTime, OfShortCopies_IsNoTime) {
  for (const char* name : {"gpipe", "1f1b", "pipedream"}) {
    for (const int32_t workers : {1, 2, 4, 8}) {
      for (const int32_t stashes : {3, 4}) {
        SCOPED_TRACE(absl::StrCat(name, " on ", workers, ", ", stashes));
        const Method& method = **FindMethod(name);
        SimulationCosts costs;
        costs.stages.assign(workers, {.stash_bytes = 1e9});
        costs.host = {.offload_bytes_per_second = 1e9, .prefetch_bytes_per_second = 1e9};
        PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult plain,
                                      Simulate(CatalogSteps(method, workers, 16, 0, 2), {}));
        PENSTOCK_ASSERT_OK_AND_ASSIGN(
            const SimulationResult moved,
            Simulate(OffloadingSteps(method, {.all = stashes}, workers, 16, 0, 2), costs));
        EXPECT_DOUBLE_EQ(moved.makespan_s, plain.makespan_s);
        for (const WorkerTimes& times : moved.workers) EXPECT_EQ(times.wait_host_s, 0);
      }
    }
  }
}

TEST(OffloadTime, OfLongCopies_IsThatOfTheLanesAndWaitedFor) {
  const Method& method = **FindMethod("gpipe");
  const Schedule schedule = OffloadingSteps(method, {.all = 3}, 1, 8, 0, 1);
  SimulationCosts costs;
  costs.stages = {{.stash_bytes = 6}};
  costs.host = {.offload_bytes_per_second = 2, .prefetch_bytes_per_second = 3};
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SimulationResult result,
                                Simulate(schedule, costs, {.timeline_spans_max = 1000}));
  // All but the first stash go out, 3 s each, from the end of the second forward on, and then, beside the
  // backward of the first, 7 come back, 2 s each; the last backward is behind them.
  int64_t offloads = 0;
  int64_t prefetches = 0;
  std::map<Lane, int64_t> free_ns;
  std::vector<Span> spans = result.timeline.spans;
  std::stable_sort(spans.begin(), spans.end(),
                   [](const Span& a, const Span& b) { return a.start_ns < b.start_ns; });
  for (const Span& span : spans) {
    if (!RunsBeside(span.lane)) continue;
    EXPECT_GE(span.start_ns, free_ns[span.lane]);
    free_ns[span.lane] = span.end_ns;
    offloads += span.lane == Lane::kOffload;
    prefetches += span.lane == Lane::kPrefetch;
    EXPECT_EQ(span.duration_ns(), (span.lane == Lane::kOffload ? 3 : 2) * int64_t{1'000'000'000});
  }
  EXPECT_EQ(offloads, 7);
  EXPECT_EQ(prefetches, 7);
  const WorkerTimes& times = result.workers[0];
  EXPECT_DOUBLE_EQ(times.busy_s, 16);
  EXPECT_DOUBLE_EQ(times.busy_s + times.wait_host_s, result.makespan_s);
  // The seventh copy ends at 2 + 7 * 3 = 23; the sixth, whose place the first prefetch takes, at 20.
  EXPECT_DOUBLE_EQ(result.makespan_s, 20 + 7 * 2 + 1);
  EXPECT_THAT(RenderSvg(result.timeline, {}), HasSubstr("offload"));
  EXPECT_THAT(RenderTrace(result.timeline), HasSubstr("\"cat\":\"prefetch\""));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const SimulationResult plain,
      Simulate(CatalogSteps(method, 1, 8, 0, 1), {}, {.timeline_spans_max = 1000}));
  EXPECT_THAT(RenderSvg(plain.timeline, {}), Not(HasSubstr(".wh{")));
}

TEST(OffloadTime, Speeds_AreChecked) {
  const Schedule schedule = OffloadingSteps(**FindMethod("gpipe"), {.all = 3}, 1, 8, 0, 1);
  SimulationCosts costs;
  costs.stages = {{.stash_bytes = 6}};
  costs.host.offload_bytes_per_second = 0;
  EXPECT_THAT(Simulate(schedule, costs),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("stash of stage 0")));
}

}  // namespace
}  // namespace penstock
