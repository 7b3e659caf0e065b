#include "job/run/run_schedule.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/job/jobs.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

std::string Digest(const ResolvedJob& job, int64_t first_step, const std::vector<Cut>& cuts,
                   int32_t stages = 4) {
  return DigestOfRun(job, ScheduleOptionsOf(job, StraightPipeline(stages)), first_step, cuts)
      .value();
}

TEST(DigestOfRun, AnyDifference_GivesAnotherDigest) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(GoodJob()));
  ResolvedJob other = job;
  other.method = *FindMethod("gpipe");
  ResolvedJob longer_validation = job;
  ++longer_validation.validation_batches;
  // Three ranges of one length, so that all but the first are repeats.
  const std::vector<Cut> cuts = {
      {.step = 10}, {.step = 20, .validate = true}, {.step = 30, .validate = true}};
  std::vector<Cut> moved = cuts, fewer = cuts, no_validation = cuts, first_validates = cuts;
  moved[1].step = 21;
  fewer.erase(fewer.begin());
  no_validation[2].validate = false;
  first_validates[0].validate = true;
  const std::vector<std::string> digests = {Digest(job, 0, cuts),
                                            Digest(other, 0, cuts),
                                            Digest(longer_validation, 0, cuts),
                                            Digest(job, 0, cuts, /*stages=*/3),
                                            Digest(job, 5, cuts),
                                            Digest(job, 0, moved),
                                            Digest(job, 0, fewer),
                                            Digest(job, 0, no_validation),
                                            Digest(job, 0, first_validates)};
  EXPECT_EQ(std::set<std::string>(digests.begin(), digests.end()).size(), digests.size());
  EXPECT_EQ(Digest(job, 0, cuts), digests[0]);
}

// A build that does not know one of these keys trains with its default.
TEST(DigestOfRun, KeyThatABuildMayNotKnow_GivesAnotherDigest) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(GoodJob()));
  const auto changed = [&](const std::function<void(ResolvedJob&)>& change) {
    ResolvedJob other = job;
    change(other);
    return Digest(other, 0, {{.step = 10}});
  };
  const std::vector<std::string> digests = {
      changed([](ResolvedJob&) {}),
      changed([](ResolvedJob& j) { j.rounding = Rounding::kStochastic; }),
      changed([](ResolvedJob& j) { j.stash = StashPlace::kHost; }),
      changed([](ResolvedJob& j) { j.repeatability = Repeatability::kFast; }),
      changed([](ResolvedJob& j) { j.cuda_graphs = true; }),
      changed([](ResolvedJob& j) { j.order = Order::kRecorded; }),
      changed([](ResolvedJob& j) { j.in_flight_factor = 2; }),
      changed([](ResolvedJob& j) { j.staleness.rescheduled_steps = 5; }),
      changed([](ResolvedJob& j) { j.staleness.stage_momentum = 0.5; }),
      changed([](ResolvedJob& j) { j.staleness.delay_compensation = 0.5; }),
      changed([](ResolvedJob& j) { j.staleness.error_feedback = true; }),
      changed([](ResolvedJob& j) { j.staleness.momentum_average_decay = 0.5; }),
      changed([](ResolvedJob& j) {
        j.staleness.adaptive_compensation = true;
        j.staleness.mean_square_decay = 0.5;
      }),
      changed([](ResolvedJob& j) {
        j.staleness.adaptive_compensation = true;
        j.staleness.mean_square_decay = 0.75;
      })};
  EXPECT_EQ(std::set<std::string>(digests.begin(), digests.end()).size(), digests.size());
}

}  // namespace
}  // namespace penstock
