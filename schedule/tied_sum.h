// TiedSum: the messages that add up the gradient of parameters which several parts of a model use.
//
// The sum goes from the last part to the first (model/graph.h), each of which adds its own uses, and then from the first
// part to all others. So a gradient is the same bits however the model is cut. Two parts of which the first uses the
// parameters once send each other what they have at the same time, and both add: a sum of two has no order.
//
// Where places have replicas, which hold the same gradients by then, replica j gets what it needs from replica
// j mod r of the r that have it. A worker with several of the parts gets the whole sum once.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/topology.h"

namespace penstock {

struct TiedSum {
  std::vector<int32_t> parts;  // of the model, that use the parameters, ascending
  bool exchanges = false;      // there are two parts, and the first uses the parameters once

  friend bool operator==(const TiedSum&, const TiedSum&) = default;
};

struct TiedMessage {
  enum class Kind : uint8_t {
    kLater,  // the sum of the uses behind a part, to that part
    kFirst,  // in an exchange: the first part's use, to the last part
    kWhole,  // the sum of all uses, from the first part
  };
  Kind kind = Kind::kLater;
  StageId from;
  StageId to;  // it may be on the worker of `from`, and then nothing is sent

  friend bool operator==(const TiedMessage&, const TiedMessage&) = default;
};

// In the order in which they are sent, one after the other; in an exchange all at once. REQUIRES: `group` has the
// stages of all parts of `sum`.
std::vector<TiedMessage> MessagesOf(const Topology& topology, const ReduceGroup& group,
                                    const TiedSum& sum);

}  // namespace penstock
