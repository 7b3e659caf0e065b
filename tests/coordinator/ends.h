// What holds of a simulated cluster once its jobs are over.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/coordinator/simulated_cluster.h"

namespace penstock {

// Nothing has gone wrong, and nobody trains any more or keeps a directory.
inline void ExpectCleanEnd(SimulatedCluster& cluster) {
  cluster.RunFor(5000);
  EXPECT_THAT(cluster.violations(), ::testing::IsEmpty()) << cluster.transcript();
  EXPECT_THAT(cluster.StillTraining(), ::testing::IsEmpty()) << cluster.transcript();
  EXPECT_THAT(cluster.LeasedDirectories(), ::testing::IsEmpty()) << cluster.transcript();
  for (const auto& [run, count] : cluster.starts()) {
    EXPECT_EQ(count, 1) << "worker " << run.first << " started " << run.second << " twice";
  }
}

}  // namespace penstock
