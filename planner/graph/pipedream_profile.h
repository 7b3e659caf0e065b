// PipeDreamProfile: PipeDream's graph.txt, in which it and later planners publish their profiles.
//
// Nodes come first, then edges, one per line:
//
//   node2 -- Conv2d(3, 64) -- forward_compute_time=1.234, backward_compute_time=2.345,
//       activation_size=822083584.0, parameter_size=7168.000 -- stage_id=0        (one line)
//   <TAB>node2 -- node3
//
// Times are milliseconds of a minibatch, sizes bytes. An output of several tensors has a list,
// activation_size=[6291456.0; 131072.0]. stage_id is there after planning. In addition to what PipeDream reads, edges
// may be indented by spaces and lines may be blank (DAPPLE's files).
//
// Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "planner/graph/layer_graph.h"

namespace penstock {

struct PipeDreamProfile {
  LayerGraph graph;
  // By node, this holds the tensors of an output given as a list, which add up to its activation_bytes; it is empty for
  // a plain number.
  std::vector<std::vector<double>> output_bytes;
  std::vector<std::optional<int32_t>> stage_of;  // by node

  friend bool operator==(const PipeDreamProfile&, const PipeDreamProfile&) = default;
};

inline constexpr int64_t kPipeDreamProfileBytesMax = 64 << 20;

// Errors: InvalidArgument naming the line and, where one is meant, the node: a malformed line, a
// second node of one id, an edge to a node that no line before describes, an amount outside the limits
// of layer_graph.h, a cycle, a text beyond the limit above.
absl::StatusOr<PipeDreamProfile> ParsePipeDreamProfile(absl::string_view text);

// Returns the text that parses to the profile again, as far as the format holds it (times in whole microseconds). It
// ends without a newline, as PipeDream's own files do.
std::string FormatPipeDreamProfile(const PipeDreamProfile& profile);

// Returns what PipeDream's optimizer plans: the profile without the sources described as "Input..", which load data,
// and then without the sinks described as "__getitem__..", which nobody reads.
PipeDreamProfile WithoutInputsAndUnreadItems(const PipeDreamProfile& profile);

}  // namespace penstock
