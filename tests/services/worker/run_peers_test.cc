#include "services/worker/run_peers.h"

#include "absl/strings/str_cat.h"
#include "base/seen_epoch.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::PrepareRunRequest ThreeStagesOnTwoWorkers() {
  v1::PrepareRunRequest request;
  request.set_job_id("j");
  request.set_epoch(2);
  request.set_worker_index(1);
  for (int stage = 0; stage < 3; ++stage) {
    v1::StageAssignment& assignment = *request.mutable_plan()->add_stages();
    assignment.set_stage(stage);
    assignment.set_worker_index(stage % 2);
    assignment.set_worker(absl::StrCat("w", stage % 2));
    assignment.set_address(absl::StrCat("127.0.0.1:", 4000 + stage % 2));
    assignment.set_incarnation(10 + stage % 2);
  }
  return request;
}

TEST(PeersOf, Plan_GivesWorkersAndStages) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const RunPeers peers, PeersOf(ThreeStagesOnTwoWorkers(), "w1", 11));
  EXPECT_EQ(peers.job_id, "j");
  EXPECT_EQ(peers.epoch, 2);
  EXPECT_EQ(peers.self, 1);
  EXPECT_THAT(peers.worker_of_stage, ElementsAre(0, 1, 0));
  EXPECT_THAT(peers.workers, ElementsAre(TensorPeer{"w0", "127.0.0.1:4000", 10},
                                         TensorPeer{"w1", "127.0.0.1:4001", 11}));
}

TEST(PeersOf, PlanForAnotherWorkerOrLife_IsRefused) {
  EXPECT_THAT(PeersOf(ThreeStagesOnTwoWorkers(), "w2", 11),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("worker w1"), HasSubstr("this is worker w2"))));
  EXPECT_THAT(PeersOf(ThreeStagesOnTwoWorkers(), "w1", 12),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("incarnation 12")));
}

TEST(PeersOf, PlanThatDoesNotHoldTogether_IsRefusedByField) {
  const auto refused = [](const std::string& what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(what)));
  };
  v1::PrepareRunRequest request = ThreeStagesOnTwoWorkers();
  request.clear_job_id();
  EXPECT_THAT(PeersOf(request, "w1", 11), refused("job_id"));
  request = ThreeStagesOnTwoWorkers();
  for (const int64_t epoch : {int64_t{0}, int64_t{-1}, kEpochMax + 1}) {
    request.set_epoch(epoch);
    EXPECT_THAT(PeersOf(request, "w1", 11), refused("epoch"));
  }
  request = ThreeStagesOnTwoWorkers();
  request.clear_plan();
  EXPECT_THAT(PeersOf(request, "w1", 11), refused("no stages"));
  request = ThreeStagesOnTwoWorkers();
  request.mutable_plan()->mutable_stages(2)->set_stage(3);
  EXPECT_THAT(PeersOf(request, "w1", 11), refused("stage 3"));
  request = ThreeStagesOnTwoWorkers();
  request.mutable_plan()->mutable_stages(2)->set_stage(1);
  EXPECT_THAT(PeersOf(request, "w1", 11), refused("listed twice"));
  request = ThreeStagesOnTwoWorkers();
  request.mutable_plan()->mutable_stages(2)->set_worker_index(1 << 30);
  EXPECT_THAT(PeersOf(request, "w1", 11), refused("worker 1073741824"));
  request = ThreeStagesOnTwoWorkers();
  request.mutable_plan()->mutable_stages(2)->set_address("127.0.0.1:5");
  EXPECT_THAT(PeersOf(request, "w1", 11), refused("worker 0 is listed as"));
  request = ThreeStagesOnTwoWorkers();
  request.mutable_plan()->mutable_stages(1)->set_address("nowhere");
  EXPECT_THAT(PeersOf(request, "w1", 11), refused("HOST:PORT"));
  request = ThreeStagesOnTwoWorkers();
  request.set_worker_index(2);
  EXPECT_THAT(PeersOf(request, "w1", 11), refused("worker_index 2"));
  request.set_worker_index(-1);
  EXPECT_THAT(PeersOf(request, "w1", 11), refused("worker_index -1"));
}

}  // namespace
}  // namespace penstock
