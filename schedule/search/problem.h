// StepProblem and StepOrder: what the search for a schedule works on.
//
// A training step as a flow shop: every microbatch passes F of all stages, then I of all stages
// backwards, and each I leaves a W. A pass is one of them on one stage, without its microbatch: all
// microbatches cost the same, messages arrive in the order in which they were sent, and W's must ascend,
// so every pass takes its microbatches in ascending order and a worker's order is a word over its passes.
//
// Where places have replicas, each replica is a stage with microbatches of its own. A stage counts them by itself:
// microbatch k of a stage is the one that comes to it as number k, from 0 on.
//
// Times are whole nanoseconds. Plain values; thread-compatible.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
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
  // What two stages at neighbouring places hand each other: the microbatches that both have.
  struct Link {
    // Microbatch j of the link is microbatch first + j * stride of the stage.
    struct End {
      int32_t stage = 0;
      int32_t first = 0;
      int32_t stride = 1;
    };
    End before;
    End after;
    // Of a message in either direction, an activation or its gradient; 0 where both stages are on one worker.
    int64_t transfer_ns = 0;
    int64_t latency_ns = 0;

    int64_t delay_ns() const { return transfer_ns + latency_ns; }
  };
  struct Stage {
    int32_t worker = 0;
    int64_t microbatches = 0;                 // of its own, in a step
    int64_t compute_ns[kPasses] = {0, 0, 0};  // with the overhead of the action
    // The links to the place before and after, which its microbatches take in turn; empty at the ends.
    std::vector<int32_t> before;
    std::vector<int32_t> after;
    // The stages at the other ends of these links are on other workers: all of a place, or none.
    bool receives_activation = false;
    bool sends_activation = false;
  };
  struct Worker {
    std::vector<int32_t> stages;  // ascending
    int64_t memory_max = 0;       // microbatches between F and W, over its stages
    int64_t update_ns = 0;        // its updates, after the last pass of a step
  };
  // A pass at the other end of a link, and which microbatch of that stage it is.
  struct Neighbour {
    int32_t pass_id = -1;  // -1: there is none
    int64_t microbatch = 0;
    int64_t delay_ns = 0;  // from the end of the pass that sends to when its message is there
  };

  Topology topology;         // without groups, but for those of replicas
  int64_t microbatches = 0;  // of a step
  int64_t steps = 1;         // that run on from one to the next, each in the same order
  int64_t channel_capacity = 0;
  int64_t overhead_ns = 0;  // of a send, a receive or the FLUSH at the end
  std::vector<Stage> stages;
  std::vector<Link> links;
  std::vector<Worker> workers;

  // The passes of a step, all microbatches together.
  int64_t passes() const { return topology.depth() * microbatches * kPasses; }
  // The time that a pass keeps its worker busy, with its messages.
  int64_t duration_ns(int32_t pass_id) const;
  // True if the input of a pass comes, and its output goes, as a message.
  bool receives(int32_t pass_id) const;
  bool sends(int32_t pass_id) const;
  // The links by which its input comes, and its output goes, in turn; none for W.
  absl::Span<const int32_t> LinksIn(int32_t pass_id) const;
  absl::Span<const int32_t> LinksOut(int32_t pass_id) const;
  // The pass of another stage that makes the input of this one, and the one whose input this one makes.
  Neighbour Source(int32_t pass_id, int64_t microbatch) const;
  Neighbour Target(int32_t pass_id, int64_t microbatch) const;
};

// Numbers the microbatches of all passes over some steps.
class PassIndex {
 public:
  PassIndex(const StepProblem& problem, int64_t steps);
  size_t operator()(int32_t pass_id, int64_t microbatch) const {
    return first_[pass_id] + static_cast<size_t>(microbatch);
  }
  size_t size() const { return first_.back(); }

 private:
  std::vector<size_t> first_;  // by pass id, and the end
};

// REQUIRES: a valid topology, microbatches and a limit for each worker of at least 1; where places have replicas a
// multiple of `topology.cycle` microbatches.
// Errors: InvalidArgument (several pipelines, stages that recompute, costs, or a step that would
// last for a century).
absl::StatusOr<StepProblem> MakeStepProblem(const Topology& topology, int64_t microbatches,
                                            const SimulationCosts& costs,
                                            const std::vector<int64_t>& memory_max,
                                            int64_t channel_capacity, int64_t steps = 1);

// By worker: its passes in order, each of its pass ids once for every microbatch of its stage.
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
  std::vector<int32_t>
      source_;  // by pass id: the pass of another stage of the worker that makes its input, or -1
  std::vector<int64_t> done_;  // by pass id
};

// The compute actions of a step, microbatches from 0 on.
Schedule ToComputeSchedule(const StepProblem& problem, const StepOrder& order);
// The passes of one step of a schedule. REQUIRES: it was built for the same topology and microbatches.
StepOrder OrderOf(const Schedule& schedule);

}  // namespace penstock
