// Schedules that several tests use.
#pragma once

#include <algorithm>
#include <string>

#include "schedule/catalog/catalog.h"
#include "schedule/lower.h"
#include "schedule/text.h"

namespace penstock {

// `method` of the catalog on a straight pipeline. REQUIRES: it is valid.
inline Schedule CatalogSchedule(absl::string_view method, int32_t stages,
                                int64_t microbatches_per_step, MicrobatchRange range) {
  const ScheduleOptions options{.topology = StraightPipeline(stages),
                                .microbatches_per_step = microbatches_per_step};
  return BuildSchedule(**FindMethod(method), options, range).value();
}

// From the text form; compute-only lists are completed. REQUIRES: it is valid.
inline Schedule ScheduleFromText(absl::string_view text, const LowerOptions& options = {}) {
  Schedule schedule = ParseSchedule(text).value();
  if (IsComputeOnly(schedule)) schedule = CompleteSchedule(schedule, options).value();
  return schedule;
}

// A straight pipeline whose first and last stage share parameters.
inline ScheduleOptions TiedOptions(int32_t stages, int64_t microbatches_per_step) {
  ScheduleOptions options{.topology = StraightPipeline(stages),
                          .microbatches_per_step = microbatches_per_step};
  options.topology.groups = {{.stages = {StageId(0), StageId(stages - 1)}}};
  return options;
}

// Interleaved 1F1B (Narayanan et al., SC'21): `parts` stages on each of `workers` workers, stage s
// on worker s mod workers. REQUIRES: microbatches is a multiple of workers.
inline Schedule InterleavedOneFOneB(int32_t workers, int32_t parts, int64_t microbatches,
                                    const LowerOptions& options = {}) {
  Schedule schedule{.name = "interleaved-1f1b", .range = {0, microbatches}};
  schedule.topology.workers = workers;
  for (int32_t stage = 0; stage < workers * parts; ++stage) {
    schedule.topology.worker_of.emplace_back(stage % workers);
  }
  const int64_t units = microbatches * parts;
  for (int32_t worker = 0; worker < workers; ++worker) {
    // The k-th forward (or backward) of a worker: parts take turns, `workers` microbatches each.
    const auto microbatch = [&](int64_t k) {
      return k / (workers * parts) * workers + k % workers;
    };
    const auto part = [&](int64_t k) { return static_cast<int32_t>(k / workers % parts); };
    ActionList list;
    const int64_t warm_up =
        std::min<int64_t>(units, 2 * (workers - worker - 1) + (parts - 1) * workers);
    for (int64_t k = 0; k < units + warm_up; ++k) {
      if (k < units) {
        list.push_back({Op::kForward, part(k) * workers + worker, microbatch(k)});
      }
      if (k >= warm_up) {
        const int64_t b = k - warm_up;
        const int32_t stage = (parts - 1 - part(b)) * workers + worker;
        list.push_back({Op::kBackwardInput, stage, microbatch(b)});
        list.push_back({Op::kBackwardWeight, stage, microbatch(b)});
      }
    }
    schedule.programs.push_back({.prologue = list});
  }
  return CompleteSchedule(schedule, options).value();
}

}  // namespace penstock
