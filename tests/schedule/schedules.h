// Schedules that several tests use.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "schedule/catalog/catalog.h"
#include "schedule/lower.h"
#include "schedule/offload.h"
#include "schedule/recompute.h"
#include "schedule/text.h"

namespace penstock {

// `method` of the catalog on `workers` workers, with the fewest stages it runs with there.
// REQUIRES: it is valid.
inline Topology PlacedOn(const Method& method, int32_t workers, int64_t microbatches_per_step) {
  return PlaceMethod(method, workers * StagesPerWorkerMin(method.placement), workers,
                     microbatches_per_step)
      .value();
}
inline Schedule CatalogSchedule(absl::string_view name, int32_t workers,
                                int64_t microbatches_per_step, MicrobatchRange range) {
  const Method& method = **FindMethod(name);
  const ScheduleOptions options{.topology = PlacedOn(method, workers, microbatches_per_step),
                                .microbatches_per_step = microbatches_per_step};
  return BuildSchedule(method, options, range).value();
}

// At least `microbatches` microbatches in a step, as many as the method can do on so many workers.
inline int64_t StepFor(const Method& method, int32_t workers, int64_t microbatches) {
  if (!method.steps_in_rounds) {
    return method.weights->fills_pipeline ? std::max<int64_t>(microbatches, workers) : microbatches;
  }
  return (microbatches + workers - 1) / workers * workers;
}

// The same over whole steps of StepFor(microbatches), from microbatch `first` on, or from the step
// it is in where pipelines go there and back.
inline Schedule CatalogSteps(const Method& method, int32_t workers, int64_t microbatches,
                             int64_t first, int64_t steps) {
  const int64_t step = StepFor(method, workers, microbatches);
  const bool in_step = method.placement == Placement::kRoundTrip;
  return CatalogSchedule(method.name, workers, step,
                         {in_step ? first / step * step : first, steps * step});
}

// The same with stages that recompute.
inline Schedule RecomputingSteps(const Method& method, const RecomputeChoice& choice,
                                 int32_t workers, int64_t microbatches, int64_t first,
                                 int64_t steps) {
  const int64_t step = StepFor(method, workers, microbatches);
  ScheduleOptions options{.topology = PlacedOn(method, workers, step),
                          .microbatches_per_step = step};
  options.topology.Recompute(ChosenStages(choice, options.topology));
  const bool in_step = method.placement == Placement::kRoundTrip;
  return BuildSchedule(method, options, {in_step ? first / step * step : first, steps * step})
      .value();
}

// The same with stages that offload. REQUIRES: the method is not there and back.
inline Schedule OffloadingSteps(const Method& method, const OffloadChoice& choice, int32_t workers,
                                int64_t microbatches, int64_t first, int64_t steps) {
  const int64_t step = StepFor(method, workers, microbatches);
  const ScheduleOptions options{.topology = PlacedOn(method, workers, step),
                                .microbatches_per_step = step,
                                .offload = choice};
  return BuildSchedule(method, options, {first, steps * step}).value();
}

// From the text form; compute-only lists are completed. REQUIRES: it is valid.
inline Schedule ScheduleFromText(absl::string_view text, const LowerOptions& options = {}) {
  Schedule schedule = ParseSchedule(text).value();
  if (!IsComplete(schedule)) schedule = CompleteSchedule(schedule, options).value();
  return schedule;
}

// Makes the first and the last part share parameters.
inline void TieEnds(Topology& topology) {
  const std::vector<std::vector<int32_t>> ends = {{0, topology.parts() - 1}};
  if (topology.parts() > 1) TieParts(topology, ends);
}

// Whose first and last stage share parameters, in every pipeline.
inline ScheduleOptions TiedOptions(Topology topology, int64_t microbatches_per_step) {
  ScheduleOptions options{.topology = std::move(topology),
                          .microbatches_per_step = microbatches_per_step};
  TieEnds(options.topology);
  return options;
}
inline ScheduleOptions TiedOptions(int32_t stages, int64_t microbatches_per_step) {
  return TiedOptions(StraightPipeline(stages), microbatches_per_step);
}

}  // namespace penstock
