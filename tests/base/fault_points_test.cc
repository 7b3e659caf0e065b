#include "base/fault_points.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace penstock {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;

using Kind = FaultAction::Kind;

std::string ErrorIn(absl::string_view text) {
  const auto armed = ParseFaultPoints(text);
  EXPECT_EQ(armed.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(armed.status().message());
}

std::vector<ArmedFault> Armed(absl::string_view text) {
  const auto armed = ParseFaultPoints(text);
  EXPECT_TRUE(armed.ok()) << armed.status();
  return armed.ok() ? *armed : std::vector<ArmedFault>();
}

// The numbers of the hits, of `hits` in all, at which something is due.
std::vector<int64_t> DueOf(FaultCounter& counter, FaultPoint point, int hits) {
  std::vector<int64_t> due;
  for (int i = 0; i < hits; ++i) {
    const FaultCounter::Hit hit = counter.Reach(point);
    if (hit.action != nullptr) due.push_back(hit.number);
  }
  return due;
}

TEST(FaultPointList, HasDistinctNamesOfAnAreaAndAPlace) {
  std::set<std::string> names;
  for (int32_t i = 0; i < kFaultPoints; ++i) {
    const std::string name(NameOf(static_cast<FaultPoint>(i)));
    EXPECT_THAT(name, MatchesRegex("[a-z]+\\.[a-z_]+"));
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_GE(kFaultPoints, 40);
}

TEST(ParseFaultPoints, ReadsNamesActionsAndHits) {
  EXPECT_THAT(Armed(""), IsEmpty());
  EXPECT_THAT(Armed("file.before_fsync=kill@3,store.before_commit=sleep:500"),
              ElementsAre(ArmedFault{FaultPoint::kFileBeforeFsync, {Kind::kKill, {}, 3}},
                          ArmedFault{FaultPoint::kStoreBeforeCommit,
                                     {Kind::kSleep, absl::Milliseconds(500)}}));
  EXPECT_THAT(Armed("file.before_write=full,run.at_cut=fail@12,loop.after_write=note"),
              ElementsAre(ArmedFault{FaultPoint::kFileBeforeWrite, {Kind::kFull}},
                          ArmedFault{FaultPoint::kRunAtCut, {Kind::kFail, {}, 12}},
                          ArmedFault{FaultPoint::kLoopAfterWrite, {Kind::kNote}}));
  EXPECT_THAT(Armed("audit.before_write=sleep:0@1"),
              ElementsAre(ArmedFault{FaultPoint::kAuditBeforeWrite, {Kind::kSleep, {}, 1}}));
}

TEST(ParseFaultPoints, NamesWhatIsCloseToAWrongName) {
  EXPECT_THAT(ErrorIn("store.befor_commit=kill"),
              AllOf(HasSubstr("no fault point \"store.befor_commit\""),
                    HasSubstr("those of store are store.after_open, "),
                    HasSubstr("store.before_commit"), Not(HasSubstr("file.before_write"))));
  EXPECT_THAT(ErrorIn("stor.before_commit=kill"),
              AllOf(HasSubstr("names begin with one of audit.*, "), HasSubstr(", store.*")));
  EXPECT_THAT(ErrorIn("=kill"), HasSubstr("no fault point \"\""));
  EXPECT_THAT(ErrorIn("run.at_cut=kill,"), HasSubstr("no fault point \"\""));
}

TEST(ParseFaultPoints, SaysWhichActionsThereAre) {
  for (const char* wrong : {"run.at_cut", "run.at_cut=", "run.at_cut=die", "run.at_cut=sleep",
                            "run.at_cut=kill:5", "run.at_cut=kill = 3"}) {
    EXPECT_THAT(ErrorIn(wrong), AllOf(HasSubstr("run.at_cut: there is no action"),
                                      HasSubstr("expected kill, sleep:MILLISECONDS, fail")));
  }
  for (const char* wrong : {"@0", "@-1", "@", "@x", "@1@2", "@99999999999999999999"}) {
    EXPECT_THAT(ErrorIn(absl::StrCat("run.at_cut=kill", wrong)),
                HasSubstr("run.at_cut: expected the number of a hit, 1 or more"));
  }
  for (const char* wrong : {"", "-1", "1s", "3600001", "99999999999999999999"}) {
    EXPECT_THAT(ErrorIn(absl::StrCat("run.at_cut=sleep:", wrong)),
                HasSubstr("expected milliseconds, 1h at most"));
  }
}

TEST(ParseFaultPoints, RefusesWhatAPlaceCannotDo) {
  EXPECT_THAT(ErrorIn("file.after_fsync=fail"),
              HasSubstr("file.after_fsync: this place returns no error; expected kill"));
  EXPECT_THAT(ErrorIn("file.after_fsync=full@2"), HasSubstr("returns no error"));
  EXPECT_THAT(ErrorIn("run.at_cut=kill,run.at_cut=note"), HasSubstr("run.at_cut: is named twice"));
}

TEST(FaultCounter, IsDueAtOneHitOrAtEvery) {
  FaultCounter counter(Armed("run.at_cut=kill@3,run.before_start=fail,loop.after_write=sleep:1"));
  EXPECT_THAT(DueOf(counter, FaultPoint::kRunAtCut, 6), ElementsAre(3));
  EXPECT_THAT(DueOf(counter, FaultPoint::kRunBeforeStart, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(DueOf(counter, FaultPoint::kLoopAfterWrite, 2), ElementsAre(1, 2));
  EXPECT_THAT(DueOf(counter, FaultPoint::kLoopBeforeWrite, 2), IsEmpty());
  FaultCounter none;
  EXPECT_THAT(DueOf(none, FaultPoint::kRunAtCut, 3), IsEmpty());
}

TEST(FaultCounter, TellsFewNotesAndEveryOtherAction) {
  FaultCounter counter(
      Armed("run.at_cut=note,run.before_start=fail,loop.after_write=sleep:1,"
            "loop.before_write=sleep:1@2,tensor.before_dial=note@3"));
  const auto told = [&](FaultPoint point, int hits) {
    std::vector<int64_t> numbers;
    for (int i = 0; i < hits; ++i) {
      const FaultCounter::Hit hit = counter.Reach(point);
      if (hit.is_told) numbers.push_back(hit.number);
    }
    return numbers;
  };
  EXPECT_THAT(told(FaultPoint::kRunAtCut, 20), ElementsAre(1, 2, 4, 8, 16));
  EXPECT_THAT(told(FaultPoint::kRunBeforeStart, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(told(FaultPoint::kLoopAfterWrite, 3), IsEmpty());
  EXPECT_THAT(told(FaultPoint::kLoopBeforeWrite, 3), ElementsAre(2));
  EXPECT_THAT(told(FaultPoint::kTensorBeforeDial, 4), ElementsAre(3));
}

TEST(FaultCounter, CountsHitsOfAllThreads) {
  FaultCounter counter(Armed("run.at_cut=kill@4000"));
  std::atomic<int> due = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int hit = 0; hit < 1000; ++hit) {
        if (counter.Reach(FaultPoint::kRunAtCut).action != nullptr) ++due;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(due, 1);
  EXPECT_EQ(counter.Reach(FaultPoint::kRunAtCut).number, 4001);
}

TEST(ErrorOf, NamesThePoint) {
  const absl::Status failed = ErrorOf(FaultPoint::kRunAtCut, {Kind::kFail});
  EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("fault point run.at_cut"));
  const absl::Status full = ErrorOf(FaultPoint::kFileBeforeWrite, {Kind::kFull});
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("fault point file.before_write"));
  EXPECT_TRUE(ErrorOf(FaultPoint::kRunAtCut, {Kind::kKill}).ok());
}

// The macros compile in every build; what they do is seen in programs that have them (tests/fault_points).
absl::Status PassPoints() {
  PENSTOCK_FAULT_POINT(kRunBeforeStop);
  PENSTOCK_FAULT_POINT_STATUS(kRunAtCut);
  return absl::OkStatus();
}

TEST(FaultPointMacros, DoNothingUnlessArmed) {
  EXPECT_TRUE(PENSTOCK_ARM_FAULT_POINTS().ok());
  EXPECT_TRUE(PassPoints().ok());
}

}  // namespace
}  // namespace penstock
