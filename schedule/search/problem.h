// StepProblem and StepOrder: what the search for a schedule works on.
//
// A training step as a flow shop: every microbatch passes F of all stages, then I of all stages
// backwards, and each I leaves a W. A pass is one of them on one stage, without its microbatch: all
// microbatches cost the same, messages arrive in the order in which they were sent, and W's must ascend,
// so every pass takes its microbatches in ascending order and a worker's order is a word over its passes.
//
// Times are whole nanoseconds. Plain values; thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "schedule/schedule.h"
#include "schedule/simulate.h"

namespace penstock {

enum Pass : int32_t { kPassF, kPassI, kPassW };
inline constexpr int32_t kPasses = 3;

// A pass of a stage as one number.
constexpr int32_t PassId(int32_t stage, Pass pass) { return stage * kPasses + pass; }
constexpr int32_t StageOfPass(int32_t id) { return id / kPasses; }
constexpr Pass KindOfPass(int32_t id) { return static_cast<Pass>(id % kPasses); }

struct StepProblem {
  struct Stage {
    int32_t worker = 0;
    int64_t compute_ns[kPasses] = {0, 0, 0};  // with the overhead of the action
    bool receives_activation = false;         // the stage before is on another worker
    bool sends_activation = false;            // the stage after is on another worker
  };
  // Between stages s and s + 1.
  struct Link {
    int64_t transfer_ns = 0;
    int64_t latency_ns = 0;
  };
  struct Worker {
    std::vector<int32_t> stages;  // ascending
    int64_t memory_max = 0;       // microbatches between F and W, over its stages
    int64_t update_ns = 0;        // its updates, after the last pass of a step
  };

  Topology topology;
  int64_t microbatches = 0;  // of a step
  int64_t steps = 1;         // that run on from one to the next, each in the same order
  int64_t channel_capacity = 0;
  int64_t overhead_ns = 0;  // of a send, a receive or the FLUSH at the end
  std::vector<Stage> stages;
  std::vector<Link> links;
  std::vector<Worker> workers;

  // The time that a pass keeps its worker busy, with its messages.
  int64_t duration_ns(int32_t pass_id) const;
  // True if the input of a pass comes, and its output goes, as a message.
  bool receives(int32_t pass_id) const;
  bool sends(int32_t pass_id) const;
  // From the end of a pass that has a next stage (the next of F is up, of I down) to when its message is there;
  // 0 if both stages are on one worker.
  int64_t delay_ns(int32_t pass_id) const;
};

// REQUIRES: a valid topology, microbatches and a limit for each worker of at least 1.
// Errors: InvalidArgument (several pipelines, stages that recompute, costs, or a step that would
// last for a century).
absl::StatusOr<StepProblem> MakeStepProblem(const Topology& topology, int64_t microbatches,
                                            const SimulationCosts& costs,
                                            const std::vector<int64_t>& memory_max,
                                            int64_t channel_capacity, int64_t steps = 1);

// By worker: its passes in order, each of its pass ids once for every microbatch.
using PassList = std::vector<int32_t>;
struct StepOrder {
  std::vector<PassList> lists;
};

// Checks that a worker alone could run `list`: own inputs first, within its memory. (StepClock finds workers that wait
// for each other for ever.)
class ListCheck {
 public:
  // REQUIRES: `problem` outlives the check.
  explicit ListCheck(const StepProblem& problem);
  bool Allows(int32_t worker, const PassList& list);

 private:
  const StepProblem& problem_;
  std::vector<int64_t> done_;  // by pass id
};

// The compute actions of a step, microbatches from 0 on.
Schedule ToComputeSchedule(const StepProblem& problem, const StepOrder& order);
// The passes of one step of a schedule. REQUIRES: it was built for the same topology and microbatches.
StepOrder OrderOf(const Schedule& schedule);

}  // namespace penstock
