// Timelines and their three pictures.
#include "schedule/timeline.h"

#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "schedule/nice_time.h"
#include "schedule/render_svg.h"
#include "schedule/render_text.h"
#include "schedule/render_trace.h"
#include "schedule/simulate.h"
#include "tests/schedule/schedules.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// With everything a timeline can show: links, credit, collectives, overhead.
Timeline Sample(int64_t steps) {
  ScheduleOptions options = TiedOptions(3, 4);
  SimulationCosts costs{.overhead_s = 0.05, .collective_s = 0.5};
  costs.stages = {{1, 0.5, 0.5, 0.4}, {1.5, 1, 0.5, 0.4}, {1, 0.5, 0.5, 0.4}};
  costs.links.assign(2, {.bytes = 1, .bytes_per_second = 5, .latency_s = 0.1});
  const Schedule schedule = BuildSchedule(**FindMethod("gpipe"), options, {0, 4 * steps}).value();
  return Simulate(schedule, costs, {.channel_capacity = 1, .timeline_spans_max = 1'000'000})
      ->timeline;
}

Timeline Hand(std::vector<Span> spans) {
  Timeline timeline{.workers = 2, .spans = std::move(spans)};
  return timeline;
}

Span Compute(int32_t worker, ActionKind kind, int64_t microbatch, int64_t start_ns,
             int64_t end_ns) {
  return {WorkerId(worker),           Lane::kCompute, Wait::kNone,
          {kind, worker, microbatch}, start_ns,       end_ns};
}

TEST(Timeline, Shares_AddUpByLaneAndCause) {
  const Timeline timeline = Hand(
      {Compute(0, ActionKind::kForward, 0, 5, 15),
       Compute(0, ActionKind::kUpdate, 0, 20, 21),
       {WorkerId(1), Lane::kWait, Wait::kInput, {ActionKind::kRecvActivation, 1, 0}, 5, 15},
       {WorkerId(1), Lane::kWait, Wait::kCredit, {ActionKind::kSendGradient, 1, 0}, 15, 18},
       {WorkerId(0), Lane::kTransfer, Wait::kNone, {ActionKind::kSendActivation, 0, 0}, 15, 19}});
  EXPECT_EQ(timeline.start_ns(), 5);
  EXPECT_EQ(timeline.end_ns(), 21);
  const std::vector<TimeShares> shares = SharesOf(timeline);
  EXPECT_EQ(shares[0].busy_ns(), 11);
  EXPECT_EQ(shares[0].lane_ns(Lane::kTransfer), 4);
  EXPECT_EQ(shares[1].busy_ns(), 0);
  EXPECT_EQ(shares[1].waiting_ns(Wait::kInput), 10);
  EXPECT_EQ(shares[1].waiting_ns(), 13);
}

TEST(CheckTimeline, ImpossibleSpans_AreRefused) {
  const Span good = Compute(0, ActionKind::kForward, 0, 5, 15);
  EXPECT_THAT(CheckTimeline(Hand({good})), IsOk());
  const auto expect_refused = [&](void (*damage)(Span&)) {
    Span bad = good;
    damage(bad);
    EXPECT_THAT(CheckTimeline(Hand({good, bad})),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("span 1")));
  };
  expect_refused([](Span& span) { span.worker = WorkerId(2); });
  expect_refused([](Span& span) { span.worker = WorkerId(-1); });
  expect_refused([](Span& span) { span.lane = static_cast<Lane>(77); });
  expect_refused([](Span& span) { span.lane = Lane::kWait; });
  expect_refused([](Span& span) { span.wait = Wait::kInput; });
  expect_refused([](Span& span) { span.action.kind = static_cast<ActionKind>(kActionKinds); });
  expect_refused([](Span& span) { span.end_ns = 4; });
  expect_refused([](Span& span) { span.action.index = -1; });
  expect_refused([](Span& span) { span.action.index = 1 << 20; });
  expect_refused([](Span& span) { span.action.microbatch = -1; });
  expect_refused([](Span& span) { span.action.microbatch = kMicrobatchMax; });
  expect_refused([](Span& span) { span.start_ns = std::numeric_limits<int64_t>::min(); });
  expect_refused([](Span& span) { span.end_ns = std::numeric_limits<int64_t>::max(); });
}

TEST(CheckTimeline, DurationsThatDoNotFitASum_AreRefused) {
  const Span half = Compute(0, ActionKind::kForward, 0, 0, kTimelineNsMax / 2);
  EXPECT_THAT(CheckTimeline(Hand({half, half})), IsOk());
  EXPECT_THAT(CheckTimeline(Hand({half, half, half})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("span 2")));
}

TEST(RenderText, EveryKindOfSpan_HasItsSymbol) {
  ExpectEqualsGolden("schedule/timeline.txt",
                     RenderText(Sample(1), {.slot_ns = 250'000'000, .columns = 200}));
}

TEST(RenderText, LongTimeline_FitsTheColumnsAndShowsWhatDominates) {
  const std::string picture =
      RenderText(Hand({Compute(0, ActionKind::kForward, 3, 0, 90),
                       Compute(0, ActionKind::kBackwardInput, 3, 90, 100),
                       Compute(1, ActionKind::kBackwardWeight, 12, 50, 100)}),
                 {.columns = 4, .legend = false});
  EXPECT_EQ(picture, "worker 0 |3333\nworker 1 |  CC\n");
}

TEST(RenderText, Color_SurroundsTheSameCharacters) {
  const Timeline timeline = Sample(1);
  std::string colored = RenderText(timeline, {.columns = 60, .color = true, .legend = false});
  EXPECT_THAT(colored, HasSubstr("\x1b[0m\n"));
  std::string plain;
  for (size_t i = 0; i < colored.size(); ++i) {
    if (colored[i] == '\x1b')
      i = colored.find('m', i);
    else
      plain += colored[i];
  }
  std::string expected = RenderText(timeline, {.columns = 60, .legend = false});
  // Without colour, blanks at the end of a row are left out.
  for (const auto& line : absl::StrSplit(expected, '\n')) {
    EXPECT_THAT(plain, HasSubstr(std::string(line)));
  }
}

TEST(Renderers, EmptyTimeline_IsDrawnToo) {
  for (const int32_t workers : {0, 2}) {
    const Timeline empty{.workers = workers};
    EXPECT_NO_FATAL_FAILURE(RenderText(empty));
    EXPECT_THAT(RenderSvg(empty), HasSubstr("</svg>"));
    EXPECT_TRUE(nlohmann::json::accept(RenderTrace(empty)));
  }
}

TEST(RenderTrace, Sample_IsValidJsonWithAllSpansAndPairedArrows) {
  const Timeline timeline = Sample(2);
  const nlohmann::json trace = nlohmann::json::parse(RenderTrace(timeline));
  size_t spans = 0;
  std::map<int64_t, std::string> arrows;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase == "X") {
      ++spans;
      EXPECT_GE(event["dur"].get<double>(), 0.0);
      EXPECT_EQ(event["cat"] == "wait", event.contains("args"));
    } else if (phase == "s" || phase == "f") {
      arrows[event["id"]] += phase;
    } else {
      EXPECT_EQ(phase, "M");
    }
  }
  EXPECT_EQ(spans, timeline.spans.size());
  // 8 microbatches over 2 edges, there and back.
  EXPECT_EQ(arrows.size(), 8u * 2 * 2);
  for (const auto& [id, phases] : arrows) EXPECT_EQ(phases, "sf");
}

// From the end of a giver's span to the beginning of a taker's, by process.
struct Arrow {
  std::string name;
  int giver = -1;
  int taker = -1;
  double from_us = 0;
  double to_us = 0;
};
std::vector<Arrow> ArrowsOf(const std::string& trace) {
  std::map<int64_t, Arrow> arrows;
  const nlohmann::json document = nlohmann::json::parse(trace);
  for (const nlohmann::json& event : document["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase != "s" && phase != "f") continue;
    Arrow& arrow = arrows[event["id"]];
    arrow.name = event["name"];
    (phase == "s" ? arrow.giver : arrow.taker) = event["pid"];
    (phase == "s" ? arrow.from_us : arrow.to_us) = event["ts"];
  }
  std::vector<Arrow> list;
  for (const auto& [id, arrow] : arrows) {
    EXPECT_GE(arrow.giver, 0);
    EXPECT_GE(arrow.taker, 0);
    EXPECT_LE(arrow.from_us, arrow.to_us) << "goes back in time";
    list.push_back(arrow);
  }
  return list;
}

Timeline SimulatedTimeline(const Schedule& schedule) {
  SimulationCosts costs;
  costs.stages.assign(schedule.topology.stages(), {});
  return Simulate(schedule, costs, {.timeline_spans_max = 1'000'000})->timeline;
}

TEST(RenderTrace, Replicas_ArrowsGoToTheReplicaThatTakesTheMicrobatch) {
  const ScheduleOptions options = {
      .topology = ReplicatedStages({2, 3}, ReduceGroup::Operation::kSum),
      .microbatches_per_step = 6};
  const Schedule schedule = BuildSchedule(**FindMethod("1f1b"), options, {0, 6}).value();
  const Timeline timeline = SimulatedTimeline(schedule);
  std::map<std::pair<int, int>, int> between;
  for (const Arrow& arrow :
       ArrowsOf(RenderTrace({{.timeline = &timeline, .topology = &schedule.topology}}))) {
    ++between[{arrow.giver, arrow.taker}];
  }
  // Microbatch m goes from worker m mod 2 to worker 2 + m mod 3 and back.
  std::map<std::pair<int, int>, int> expected;
  for (int m = 0; m < 6; ++m) {
    ++expected[{m % 2, 2 + m % 3}];
    ++expected[{2 + m % 3, m % 2}];
  }
  EXPECT_EQ(between, expected);
}

TEST(RenderTrace, Interleaved_ArrowsGoRoundTheWorkers) {
  const Schedule schedule = CatalogSchedule("interleaved-1f1b", 2, 4, {0, 4});
  ASSERT_EQ(schedule.topology.stages(), 4);
  const Timeline timeline = SimulatedTimeline(schedule);
  const std::vector<Arrow> arrows =
      ArrowsOf(RenderTrace({{.timeline = &timeline, .topology = &schedule.topology}}));
  EXPECT_EQ(arrows.size(), 4u * 3 * 2);
  for (const Arrow& arrow : arrows) EXPECT_EQ(arrow.giver + arrow.taker, 1) << arrow.name;
}

TEST(RenderTrace, ThereAndBack_ArrowsFollowTheStages) {
  const Method& method = **FindMethod("roundpipe");
  const Schedule schedule = CatalogSteps(method, 2, 4, 0, 1);
  const Timeline timeline = SimulatedTimeline(schedule);
  const auto parts = static_cast<size_t>(schedule.topology.parts());
  const auto microbatches = static_cast<size_t>(schedule.range.count);
  EXPECT_EQ(ArrowsOf(RenderTrace({{.timeline = &timeline, .topology = &schedule.topology}})).size(),
            microbatches * (parts - 1) * 2);
}

// A validation's microbatches have the numbers of the first ones of training.
TEST(RenderTrace, Validations_HaveArrowsOfTheirOwn) {
  const Timeline timeline = Hand({
      Compute(0, ActionKind::kForward, 0, 0, 10),         // training
      Compute(1, ActionKind::kForward, 0, 12, 20),        //
      Compute(1, ActionKind::kBackwardInput, 0, 20, 30),  //
      Compute(0, ActionKind::kBackwardInput, 0, 32, 40),  //
      Compute(0, ActionKind::kForward, 0, 1'000, 1'010),  // a validation
      Compute(1, ActionKind::kForward, 0, 1'020, 1'030),  //
      Compute(0, ActionKind::kForward, 0, 2'000, 2'010),  // another one
      Compute(1, ActionKind::kForward, 0, 2'020, 2'030),  //
      Compute(0, ActionKind::kForward, 0, 3'000, 3'010),  // and one that is not at its end
  });
  std::vector<std::pair<double, double>> ends;
  for (const Arrow& arrow : ArrowsOf(RenderTrace(timeline))) {
    ends.emplace_back(arrow.from_us, arrow.to_us);
  }
  EXPECT_THAT(ends,
              ::testing::UnorderedElementsAre(std::pair(0.009, 0.012), std::pair(0.029, 0.032),
                                              std::pair(1.009, 1.020), std::pair(2.009, 2.020)));
}

TEST(RenderTrace, GiverThatIsNotThere_LeavesTheTakerWithoutAnArrow) {
  // The first worker keeps fewer spans than the second.
  const Timeline timeline = Hand({
      Compute(1, ActionKind::kForward, 0, 12, 20),
      Compute(0, ActionKind::kForward, 0, 1'000, 1'010),
      Compute(1, ActionKind::kForward, 0, 1'020, 1'030),
  });
  const std::vector<Arrow> arrows = ArrowsOf(RenderTrace(timeline));
  ASSERT_EQ(arrows.size(), 1u);
  EXPECT_EQ(arrows[0].to_us, 1.008) << "on a clock that begins with the first span";
}

TEST(RenderTrace, TwoTimelines_HaveProcessesOfTheirOwn) {
  const Timeline measured = Sample(1);
  const nlohmann::json trace = nlohmann::json::parse(
      RenderTrace({{.timeline = &measured, .name = "measured", .workers = {"a\"b", "c", ""}},
                   {.timeline = &measured, .name = "predicted", .workers = {"a\"b", "c", ""}}}));
  std::map<int, std::string> names;
  std::map<int, int> spans;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") names[event["pid"]] = event["args"]["name"];
    if (event["ph"] == "X") ++spans[event["pid"]];
  }
  EXPECT_EQ(names, (std::map<int, std::string>{{0, "measured: ab"},
                                               {1, "measured: c"},
                                               {2, "measured: worker 2"},
                                               {3, "predicted: ab"},
                                               {4, "predicted: c"},
                                               {5, "predicted: worker 2"}}));
  for (int worker = 0; worker < 3; ++worker) EXPECT_EQ(spans[worker], spans[worker + 3]);
}

TEST(RenderSvg, TwoTimelines_StandUnderEachOtherOnOneAxis) {
  const Timeline first = Hand({Compute(0, ActionKind::kForward, 0, 0, 1'000'000)});
  const Timeline second = Hand({Compute(0, ActionKind::kForward, 0, 0, 2'000'000)});
  const std::string svg = RenderSvg(
      {{.timeline = &first, .name = "measured", .note = "a step takes 1 ms", .workers = {"alpha"}},
       {.timeline = &second, .name = "predicted", .note = "a step takes 2 ms"}});
  EXPECT_THAT(svg, HasSubstr(">measured</tspan> a step takes 1 ms"));
  EXPECT_THAT(svg, HasSubstr(">predicted</tspan> a step takes 2 ms"));
  EXPECT_THAT(svg, HasSubstr(">alpha<"));
  EXPECT_THAT(svg, HasSubstr(">worker 0<"));
  // One is drawn half as wide as the other.
  std::vector<double> widths;
  for (const absl::string_view part : absl::StrSplit(svg, "<rect class=\"f\"")) {
    const size_t at = part.find(" width=\"");
    if (at > 100 || part.find("<title>0F0") == absl::string_view::npos) continue;
    widths.push_back(std::stod(std::string(part.substr(at + 8))));
  }
  ASSERT_EQ(widths.size(), 2u);
  EXPECT_NEAR(widths[1] / widths[0], 2.0, 0.01);
}

TEST(RenderText, TwoTimelines_ShareTheColumns) {
  const Timeline first = Hand({Compute(0, ActionKind::kForward, 3, 0, 20)});
  const Timeline second = Hand({Compute(0, ActionKind::kForward, 3, 0, 40)});
  EXPECT_EQ(RenderText({{.timeline = &first, .name = "measured", .workers = {"alpha"}},
                        {.timeline = &second, .name = "predicted", .note = "by the plan"}},
                       {.columns = 4, .legend = false}),
            "measured\nalpha    |33\nworker 1 |\n"
            "predicted: by the plan\nworker 0 |3333\nworker 1 |\n");
}

TEST(RenderTrace, Title_IsAMarkOverAllWorkers) {
  const nlohmann::json trace =
      nlohmann::json::parse(RenderTrace(Sample(2), "job \"a\\b\", step 1.0 ms\n"));
  int marks = 0;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] != "i") continue;
    ++marks;
    EXPECT_EQ(event["name"], "job ab, step 1.0 ms");
    EXPECT_EQ(event["s"], "g");
  }
  EXPECT_EQ(marks, 1);
}

TEST(RenderTrace, SpansOfOneThread_NeverOverlap) {
  const nlohmann::json trace = nlohmann::json::parse(RenderTrace(Sample(3)));
  std::map<std::pair<int, int>, std::map<double, double>> threads;
  for (const nlohmann::json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    threads[{event["pid"], event["tid"]}][event["ts"]] =
        event["ts"].get<double>() + event["dur"].get<double>();
  }
  for (const auto& [thread, spans] : threads) {
    double end = 0;
    for (const auto& [from, to] : spans) {
      EXPECT_GE(from, end - 1e-6);
      end = to;
    }
  }
}

TEST(RenderSvg, FewSpans_MatchTheGoldenPicture) {
  ExpectEqualsGolden("schedule/timeline.svg",
                     RenderSvg(Sample(1), {.title = "gpipe, <3> workers & \"tied\" stages"}));
}

TEST(RenderSvg, ManySpans_StaySmall) {
  const Timeline timeline = Sample(500);
  ASSERT_GT(timeline.spans.size(), 20'000u);
  const std::string svg = RenderSvg(timeline);
  EXPECT_LT(svg.size(), 40 * timeline.spans.size());
  EXPECT_THAT(svg, HasSubstr("worker 2"));
  EXPECT_FALSE(absl::StrContains(svg, "nan"));
}

TEST(NiceTime, AnyLength_HasTheFittingUnit) {
  EXPECT_EQ(NiceTime(0), "0 ns");
  EXPECT_EQ(NiceTime(999), "999 ns");
  EXPECT_EQ(NiceTime(1500), "1.5 µs");
  EXPECT_EQ(NiceTime(1'250'000), "1.25 ms");
  EXPECT_EQ(NiceTime(22'000'000'000), "22 s");
  EXPECT_EQ(NiceTime(123'456'000'000'000), "123456 s");
}

TEST(NiceTime, TimesWithoutUnit_AreNumbers) {
  EXPECT_EQ(NiceTime(250'000'000, TimeUnit::kNone), "0.25");
  EXPECT_EQ(NiceTime(22'000'000'000, TimeUnit::kNone), "22");
  EXPECT_EQ(NiceTime(123'456'000'000'000, TimeUnit::kNone), "123456");
  const Timeline timeline = Sample(1);
  EXPECT_THAT(RenderText(timeline, {.unit = TimeUnit::kNone}), Not(HasSubstr("s, the whole")));
  EXPECT_THAT(RenderSvg(timeline, {.unit = TimeUnit::kNone}), Not(HasSubstr(" s</")));
}

TEST(NiceTick, AnyLength_GivesEnoughRoundTicks) {
  for (int64_t length = 1; length < int64_t{1} << 50; length = length * 3 + 1) {
    const int64_t tick = NiceTickNs(length, 8);
    EXPECT_GE(tick, 1);
    if (length < 8) continue;
    EXPECT_GE(length / tick, 8);
    EXPECT_LE(length / tick, 24);
    int64_t digits = tick;
    while (digits % 10 == 0) digits /= 10;
    EXPECT_TRUE(digits == 1 || digits == 2 || digits == 5);
  }
}

}  // namespace
}  // namespace penstock
