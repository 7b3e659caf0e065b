// Metrics of a worker about its run: the numbers of `train --json`, while they grow. Every metric is one row of the
// tables in run_metrics.cc, those of stages in stage_metrics.cc. docs/glossary.md defines the words.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/v1/cluster.pb.h"
#include "services/metrics/catalog.h"
#include "services/metrics/metric_set.h"

namespace penstock {

// The traffic over one edge of the run so far.
struct LinkCount {
  std::string kind;  // "activation", "gradient" or "collective"
  int32_t source = 0;
  int32_t destination = 0;
  std::string peer;   // the other worker
  bool sent = false;  // else received
  std::string path;   // "host", "shared-memory", "cuda-ipc", "peer"
  int64_t bytes = 0;
  int64_t messages = 0;
  int64_t waiting = 0;  // messages in the window now
  double wait_seconds = 0;
  double transfer_seconds = 0;
  double round_trip_seconds = 0;  // 0: not known
  int64_t redials = 0;            // streams after one that broke
  int64_t resent = 0;             // messages
  int64_t duplicates = 0;         // messages
  int64_t damaged = 0;            // frames
};

// A run, or the last one, as its worker sees it.
struct RunSnapshot {
  std::string worker;
  std::string job_id;  // empty: none since the start
  int64_t epoch = 0;
  bool running = false;
  int64_t snapshot_bytes = 0;  // of all jobs
  std::vector<v1::StageReport> stages;
  std::vector<LinkCount> links;
  v1::StepDone last_step;  // of the worker with the last stage; else empty
  int64_t tokens = 0;      // of all steps so far, there too
  int64_t samples = 0;     // likewise
  int64_t actions_done = 0;
  double last_step_unix_seconds = 0;  // 0: of none
};

// Their part of the catalogue, without the stages'.
std::vector<MetricGroup> RunMetricGroups();
// A run's own series; nothing without a job.
void AddRunMetrics(const RunSnapshot& snapshot, MetricSet& metrics);
// Adds whether the worker executes a run.
void AddWorkerMetrics(const RunSnapshot& snapshot, MetricSet& metrics);

}  // namespace penstock
