#include "coordinator/checkpoint_tracker.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

v1::LayersSaved Saved(int64_t step, int layer) {
  v1::LayersSaved saved;
  saved.set_step(step);
  saved.add_files()->set_layer(layer);
  saved.add_layers()->set_layer(layer);
  return saved;
}

TEST(CheckpointTracker, LastPart_CompletesItInLayerOrder) {
  CheckpointTracker tracker(3);
  EXPECT_FALSE(tracker.Saved(2, Saved(10, 2)).has_value());
  EXPECT_FALSE(tracker.Saved(0, Saved(10, 0)).has_value());
  EXPECT_FALSE(tracker.Committing());
  const auto complete = tracker.Saved(1, Saved(10, 1));
  ASSERT_TRUE(complete.has_value());
  EXPECT_EQ(complete->step, 10);
  ASSERT_EQ(complete->files.size(), 3u);
  for (int layer = 0; layer < 3; ++layer) EXPECT_EQ(complete->files[layer].layer(), layer);
  for (int layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(complete->layers[layer].layer(), layer);
  }
  EXPECT_TRUE(tracker.Committing());
  tracker.StopAwaiting(10);
  EXPECT_FALSE(tracker.Committing());
}

TEST(CheckpointTracker, SameWorkerTwice_CountsOnce) {
  CheckpointTracker tracker(2);
  EXPECT_FALSE(tracker.Saved(0, Saved(10, 0)).has_value());
  EXPECT_FALSE(tracker.Saved(0, Saved(10, 0)).has_value());
  EXPECT_TRUE(tracker.Saved(1, Saved(10, 1)).has_value());
  EXPECT_FALSE(tracker.Saved(1, Saved(10, 1)).has_value()) << "committed once";
}

TEST(CheckpointTracker, TwoCuts_DoNotMix) {
  CheckpointTracker tracker(2);
  EXPECT_FALSE(tracker.Saved(0, Saved(10, 0)).has_value());
  EXPECT_FALSE(tracker.Saved(0, Saved(20, 0)).has_value());
  EXPECT_EQ(tracker.Saved(1, Saved(20, 1))->step, 20);
  EXPECT_EQ(tracker.Saved(1, Saved(10, 1))->step, 10);
}

TEST(CheckpointTracker, FailedPart_GivesTheCheckpointUpAndTheNextIsFine) {
  CheckpointTracker tracker(2);
  EXPECT_FALSE(tracker.Saved(0, Saved(10, 0)).has_value());
  EXPECT_TRUE(tracker.Failed(1, 10));
  EXPECT_FALSE(tracker.Failed(1, 10)) << "told once";
  EXPECT_FALSE(tracker.Saved(0, Saved(20, 0)).has_value());
  EXPECT_TRUE(tracker.Saved(1, Saved(20, 1)).has_value());
}

// A job may have a million of them.
TEST(CheckpointTracker, ManyCheckpoints_AreForgottenAndDoNotBeginAgain) {
  CheckpointTracker tracker(1);
  constexpr int64_t kSteps = 3 * CheckpointTracker::kOverMax;
  for (int64_t step = 1; step <= kSteps; ++step) {
    ASSERT_TRUE(tracker.Saved(0, Saved(step, 0)).has_value()) << step;
    if (step % 2 == 0) {
      tracker.StopAwaiting(step);
    } else {
      tracker.NotCommitted(step);
    }
  }
  for (int64_t step = 1; step <= kSteps; ++step) {
    EXPECT_FALSE(tracker.Saved(0, Saved(step, 0)).has_value()) << step;
    EXPECT_FALSE(tracker.Failed(0, step)) << step;
  }
  EXPECT_TRUE(tracker.Saved(0, Saved(kSteps + 1, 0)).has_value());
}

// What is staged may be removed only when nobody writes to it any more.
TEST(CheckpointTracker, FailedPart_IsGivenUpOnceAllHaveAnswered) {
  CheckpointTracker tracker(3);
  EXPECT_TRUE(tracker.Failed(1, 10));
  EXPECT_FALSE(tracker.Saved(0, Saved(10, 0)).has_value());
  EXPECT_EQ(tracker.TakeGivenUp(), std::nullopt) << "worker 2 still writes";
  EXPECT_FALSE(tracker.Failed(2, 10)) << "not the first failure of this step";
  EXPECT_EQ(tracker.TakeGivenUp(), 10);
  EXPECT_EQ(tracker.TakeGivenUp(), std::nullopt) << "told once";
  EXPECT_FALSE(tracker.Saved(2, Saved(10, 2)).has_value());
  EXPECT_FALSE(tracker.Committing());
}

TEST(CheckpointTracker, LastPartFails_IsGivenUp) {
  CheckpointTracker tracker(2);
  EXPECT_FALSE(tracker.Saved(0, Saved(10, 0)).has_value());
  EXPECT_TRUE(tracker.Failed(1, 10));
  EXPECT_EQ(tracker.TakeGivenUp(), 10);
}

TEST(CheckpointTracker, CommitFails_IsGivenUp) {
  CheckpointTracker tracker(1);
  EXPECT_TRUE(tracker.Saved(0, Saved(10, 0)).has_value());
  EXPECT_EQ(tracker.TakeGivenUp(), std::nullopt);
  tracker.NotCommitted(10);
  EXPECT_FALSE(tracker.Committing());
  EXPECT_EQ(tracker.TakeGivenUp(), 10);
}

}  // namespace
}  // namespace penstock
