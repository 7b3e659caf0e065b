// StageCostModel: what a stage costs under a published model, for partitioning.
//
// Every model here charges a stage of work C and parameters P (bytes), run by m replicas over links of
// B bytes a second, for its computing and for the averaging of its gradients,
//
//   sum:  (C + traffic(m) P / B) / m          max:  max(C, traffic(m) P / B) / m
//
// where traffic(m) is what one replica sends and receives in units of P. It charges a minibatch's transfer of O bytes
// over a cut, forward and gradient, 2 O / B divided by some number of replicas. The pipeline's period is the largest of
// all these. Nothing overlaps except what the maximum joins.
//
// A model is a value; the functions below make the published ones. Pure functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"

namespace penstock {

// Says how the gradients of a replicated stage are averaged, and what that overlaps.
enum class SyncRule : uint8_t {
  kSum4,  // through sharded parameter servers, 4 (m-1)/m P, after computing
  kMax4,  // the same traffic, while computing
  kMax2,  // an all-reduce, 2 (m-1) P over all replicas, while computing
};

// Says by what a transfer over a cut is divided.
enum class LinkRule : uint8_t {
  kFree,         // transfers cost nothing
  kWhole,        // by nothing
  kOwnReplicas,  // by the replicas of the stage at hand, on either side; the first stage sends free
  kSmallerSide,  // by the smaller of both sides' replicas: the links that can run at the same time
};

struct StageCostModel {
  std::string name;
  SyncRule sync = SyncRule::kSum4;
  LinkRule link = LinkRule::kSmallerSide;
  double bytes_per_second = 0;    // of a worker's link
  bool replicates = true;         // else every stage has one worker: a straight pipeline
  bool uses_all_workers = false;  // exactly as many workers as there are; else at most

  // Returns the seconds to average P bytes among m replicas, per minibatch of all of them together.
  double SyncS(double parameter_bytes, int replicas) const {
    const double others = replicas - 1;
    const double traffic = sync == SyncRule::kMax2 ? 2 * others : 4 * others / replicas;
    return traffic * parameter_bytes / bytes_per_second;
  }
  // Returns the seconds of the whole stage, without its links.
  double StageS(double work_s, double parameter_bytes, int replicas) const {
    const double sync_s = SyncS(parameter_bytes, replicas);
    return (sync == SyncRule::kSum4 ? work_s + sync_s : std::max(work_s, sync_s)) / replicas;
  }
  // Returns the seconds that `bytes` take over a cut that `replicas` share.
  double LinkS(double bytes, int replicas) const {
    switch (link) {
      case LinkRule::kFree:
        return 0;
      case LinkRule::kWhole:
        return 2 * bytes / bytes_per_second;
      case LinkRule::kOwnReplicas:
      case LinkRule::kSmallerSide:
        break;
    }
    return 2 * bytes / (bytes_per_second * replicas);
  }
};

// Harlap et al., "PipeDream: Fast and Efficient Pipeline Parallel DNN Training", arXiv 1806.03377
// (2018), section 3.2: T = max(C, 4 (m-1)/m P / B) / m, links 2 O / B, exactly as many workers as there
// are.
StageCostModel PipeDream2018Model(double bytes_per_second);

// Narayanan et al., "PipeDream: Generalized Pipeline Parallelism for DNN Training", SOSP'19, section
// 3.1: T = max(C, 2 (m-1) P / B) / m, links 2 O / B, at every level of a hierarchy.
StageCostModel PipeDream2019Model(double bytes_per_second);

// Returns the model of the released optimizer: T = (C + 4 (m-1)/m P / B) / m, exactly as many workers as there are,
// links by the replicas of the stage at hand, and only if `charge_links` (its flag --activation_compression_ratio 1).
StageCostModel PipeDreamReleasedModel(double bytes_per_second, bool charge_links);

// Keeps the released model's stage times and adds what it leaves out: every link is charged, by the smaller side, and
// workers may stay idle.
StageCostModel ConsistentModel(double bytes_per_second);

// Returns InvalidArgument unless the bandwidth is positive and finite.
absl::Status CheckCostModel(const StageCostModel& model);

}  // namespace penstock
