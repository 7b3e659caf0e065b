#include "coordinator/worker_state.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(WorkerState, IsTheOneThatSaysWhyAWorkerGetsNoWork) {
  v1::WorkerSummary worker;
  worker.set_alive(true);
  EXPECT_EQ(StateOf(worker), WorkerState::kFree);
  worker.set_job_id("small-1");
  EXPECT_EQ(StateOf(worker), WorkerState::kBusy);
  worker.set_leaving(true);
  EXPECT_EQ(StateOf(worker), WorkerState::kLeaving);
  worker.set_unusable_reason("worker w1 does not stop its run of job small-1");
  EXPECT_EQ(StateOf(worker), WorkerState::kStuck);
  worker.set_alive(false);
  EXPECT_EQ(StateOf(worker), WorkerState::kLost);
}

}  // namespace
}  // namespace penstock
