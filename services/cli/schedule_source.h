// ScheduleSource: a schedule as named on the command line: a method with its parameters, or a file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "schedule/catalog/catalog.h"
#include "schedule/schedule.h"
#include "services/cli/console.h"

namespace penstock {

struct ScheduleSource {
  std::string name;  // of a method, or the path of a file
  int32_t stages = 4;
  int32_t stages_per_worker = 0;  // 0: the fewest that the method runs with
  bool has_stages = false;        // whether `stages` was given
  // Replicas of each stage, or one number for all; for local-sgd the number of copies of the model.
  // Empty: one of each stage; as many copies as workers.
  std::vector<int32_t> replicas;
  int32_t workers = 0;             // of roundpipe; 0: as the stages say
  int32_t stages_per_forward = 1;  // of roundpipe
  int64_t microbatches = 8;        // per step
  int64_t steps = 1;
  std::string recompute = "none";
  std::string offload = "none";
  bool stream_weights = false;
  bool weights_in_file = false;
  std::optional<int64_t> delta;  // of rpd; absent: PipeDream's delay
  uint64_t seed = 0;             // of rpd
  bool send_early = false;       // gradients leave before those of the weights are computed
};

// Declares --stages, --stages-per-worker, --stages-per-forward, --replicas, --microbatches, --steps, --recompute, --offload,
// --stream-weights, --weights-in-file, --delta, --seed and --send-early.
void AddScheduleOptions(CLI::App& app, ScheduleSource& source);

// The workers of each of `stages` stages from what --replicas says: one number for each, or one that holds for all. Absent
// stages are as many as the numbers. Errors: InvalidArgument naming both flags. REQUIRES: `given` is not empty.
absl::StatusOr<std::vector<int32_t>> ReplicasOfStages(const std::vector<int32_t>& given,
                                                      std::optional<int32_t> stages);

// The options of a catalog schedule: stages where the method wants them, no global norm.
// Errors: InvalidArgument (the stages do not fit the method).
absl::StatusOr<ScheduleOptions> CatalogOptions(const Method& method, const ScheduleSource& source);

// A catalog name comes first; anything else is a file in the form of schedule/text.h, whose lists may
// hold compute actions only (then the messages are added). An old name in a file is noted on `console`.
// Errors: InvalidArgument (what the method refuses; line and column of a file), NotFound (neither a
// method nor a file, with the nearest method).
absl::StatusOr<Schedule> LoadSchedule(const ScheduleSource& source, Console& console);

}  // namespace penstock
