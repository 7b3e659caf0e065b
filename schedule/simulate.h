// Simulate: how long a schedule takes if every action takes a given time.
//
// The model: a worker performs its actions one after the other; each costs `overhead_s` of the
// worker's time (BEGIN_REDUCE, which only announces something, none) and, for computing, the time of its
// stage. A send hands the message to the channel, waiting for a free place; the link then carries the
// messages of one direction one after the other (bytes / bytes_per_second each) and delivers them
// `latency_s` later, beside the worker's own work. A receive waits for its message and frees its place. A
// collective starts when the last member is there, or, where the links between workers are given, takes as
// long as its messages do (collective_clock.h). What a BEGIN_REDUCE lets leave early is sent while its W runs,
// bucket after bucket. An OFFLOAD or PREFETCH hands a stash to the worker's lane of that direction, which
// copies one after the other beside the worker's own work; EVICT waits for the first, I for the second. Where weights live
// in files (Topology::weights_in_file), LOAD and RECV_Q begin to read them in the lane of PREFETCH, which the passes and
// SEND_P wait for; UPDATE waits there for weights and state before it, and in the lane of OFFLOAD after it. Times
// are counted in whole nanoseconds, so results are exact and repeatable.
//
// Staleness, versions and stash are not modelled but derived: the machines of run.h run underneath.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "schedule/machine.h"
#include "schedule/schedule.h"
#include "schedule/tied_sum.h"
#include "schedule/timeline.h"

namespace penstock {

struct StageCosts {
  double forward_s = 1.0;
  double backward_input_s = 0.5;
  double backward_weight_s = 0.5;
  double update_s = 0.0;
  std::optional<double> recompute_s;  // of R; absent: as long as a forward
  double stash_bytes = 0.0;           // that OFFLOAD and PREFETCH copy
  // Where weights live in files: those that LOAD and RECV_Q read, and those with the optimizer's state.
  double weight_bytes = 0.0;
  double state_bytes = 0.0;
};

// How fast stashes go from every worker's device to its host (memory, or a file) and back.
struct HostSpeed {
  double offload_bytes_per_second = std::numeric_limits<double>::infinity();
  double prefetch_bytes_per_second = std::numeric_limits<double>::infinity();
};

// Between stages s and s + 1, the same in both directions. There and back a stage's input goes on
// to its twin as it came to the stage. Where places have replicas: between places s and s + 1, each of whose
// pairs of replicas has a link of its own.
struct LinkCosts {
  double bytes = 0.0;  // of one message
  double bytes_per_second = std::numeric_limits<double>::infinity();
  double latency_s = 0.0;
};

// The link between two workers, the same both ways. Every channel between them has it for itself, and so have the
// messages of collectives.
struct LinkSpeed {
  double bytes_per_second = std::numeric_limits<double>::infinity();
  double latency_s = 0.0;
};

// The links between all workers: one kind, but for the pairs (the lower number first) that have another. Where the cards of
// the workers have a limit, all messages of a worker share it (network_cards.h), beside what their links take; files of
// device times (job/profile/device_times.h) have none.
struct WorkerLinks {
  LinkSpeed others;
  std::map<std::pair<int32_t, int32_t>, LinkSpeed> pairs;
  double card_bytes_per_second = std::numeric_limits<double>::infinity();

  const LinkSpeed& Between(WorkerId one, WorkerId other) const {
    const auto pair = pairs.find(std::minmax({one.value, other.value}));
    return pair == pairs.end() ? others : pair->second;
  }
};

// The bytes that travel over the links.
struct Traffic {
  // The bytes of a REDUCE.
  struct OfGroup {
    // A gradient of parameters that parts of the model share, which goes from one to the other.
    struct Tied {
      TiedSum sum;
      double bytes = 0.0;
    };
    // Some of the gradients of replicas, which travel together.
    struct Bucket {
      // By stage of the group: each adds up a part of the bucket, which it gets from all others, and then sends them the
      // sum.
      std::vector<double> parts;
      // They are whole once so much of the time of the last W is over.
      double done = 1.0;
    };
    std::vector<Bucket>
        buckets;  // of replicas, in the order in which they leave; empty for other groups
    std::vector<Tied> tied;  // of stages that share parameters; else empty
    double copied = 0.0;     // of copies: the weights
  };

  // The tensors that a stage sends.
  struct OfStage {
    double output = 0.0;      // an activation
    double grad_input = 0.0;  // a gradient
    double input = 0.0;       // a kept input
  };

  double boundary = 0.0;  // an activation, a gradient or a checkpoint, where `stages` is empty
  std::vector<OfStage> stages;  // by stage
  std::vector<double> sums;  // by stage: a sum of gradients on its way to the next round; empty: 0
  std::vector<double> weights;  // by stage: streamed ones on their way to it; empty: 0
  double request = 0.0;         // a stage's for its weights
  std::vector<OfGroup> groups;  // by group of the topology; empty: nothing
  // By worker: the bytes that it sends to each other worker for a NORM; one with 0 sends no message. Empty: every worker
  // sends messages of 0 bytes.
  std::vector<double> norms;

  // REQUIRES: IsSend(send.kind).
  double BytesOf(const Action& send) const;
};

struct SimulationCosts {
  std::vector<StageCosts> stages;  // by stage; empty: the defaults for all
  std::vector<LinkCosts> links;    // Topology::links(), by number; empty: the defaults for all
  // Instead of `links` and `sum_s`: what travels between which workers. Then REDUCE and NORM take the time of
  // their messages, too.
  std::optional<WorkerLinks> worker_links = std::nullopt;
  Traffic traffic;
  double overhead_s = 0.0;    // of the worker, for every action
  double collective_s = 0.0;  // of a REDUCE or NORM once all members are there
  double sum_s =
      0.0;  // of a sum of gradients on its way to the next round, and of streamed weights
  HostSpeed host;
};

struct SimulationOptions {
  // Messages; without a value ChannelCapacityOf, or as many as the schedule needs, like a cluster.
  std::optional<int32_t> channel_capacity = std::nullopt;
  int64_t timeline_spans_max = 0;  // kept; every worker has an equal share and keeps its first ones
  int64_t actions_max = 200'000'000;
};

// Where one worker's time goes; the parts add up to the makespan.
struct WorkerTimes {
  double busy_s = 0.0;      // F, R, I, W, UPDATE
  double overhead_s = 0.0;  // the per-action overhead and the collectives themselves
  double wait_input_s = 0.0;
  double wait_credit_s = 0.0;
  double wait_collective_s = 0.0;
  double wait_host_s = 0.0;   // for stashes on their way to the host or back
  double done_early_s = 0.0;  // after its last action
  // Idle time (all waiting) over the makespan.
  double bubble_ratio = 0.0;

  double idle_s() const {
    return wait_input_s + wait_credit_s + wait_collective_s + wait_host_s + done_early_s;
  }
};

struct SimulationResult {
  double makespan_s = 0.0;
  // Time for one more microbatch in a long run: the second half of worker 0's copies of the period,
  // divided by their microbatches. The whole makespan counts if the period does not repeat.
  double steady_state_period_s = 0.0;
  double bubble_ratio = 0.0;         // the mean over workers
  std::vector<WorkerTimes> workers;  // by worker
  std::vector<StageCounts> stages;   // by stage
  std::vector<double> stage_busy_s;  // by stage: in F, R, I, W and UPDATE
  Timeline timeline;                 // empty if timeline_spans_max is 0
  // The timeline ends here, where a worker has no more spans; without a value it is whole.
  std::optional<double> timeline_cut_s = std::nullopt;
};

// Errors: InvalidArgument (CheckSchedule; costs that are negative, not finite, or not one for each
// stage or link), FailedPrecondition (a rule is broken, or a deadlock), ResourceExhausted (more
// than actions_max actions).
absl::StatusOr<SimulationResult> Simulate(const Schedule& schedule, const SimulationCosts& costs,
                                          const SimulationOptions& options = {});

}  // namespace penstock
