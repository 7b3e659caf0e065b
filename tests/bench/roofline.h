// Roofline: the least time in which a machine can do what the passes of a layer have to do, beside the time that they take.
//
// A pass takes no less than its operations at the rate of a large matrix product, and no less than its bytes at the rate of
// memory. Operations are those of products alone (model/op.h). Bytes are what crosses between nodes and passes: a pass of a
// node reads and writes each number that it is given or leaves once, at the least. What lies in a cache comes faster than
// from memory, so that a pass of few operations can be faster than its bound.
//
// Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "compute/backend.h"
#include "compute/op_kernels.h"
#include "model/graph.h"
#include "penstock/v1/profile.pb.h"

namespace penstock {

struct MachineRates {
  double flops_per_second = 0;
  double bytes_per_second = 0;
};

struct PassWork {
  double flops = 0;
  double bytes = 0;

  PassWork& operator+=(const PassWork& other);
  friend bool operator==(const PassWork&, const PassWork&) = default;
};

// Of a microbatch.
struct LayerWork {
  PassWork forward, backward_input, backward_weight;
};

// `needs` is by node of the layer. In bf16 a parameter that a pass reads counts two bytes, although small ones are read in
// f32. Of a table of embeddings no more rows count than there are ids.
LayerWork WorkOf(const ModelGraph& model, const LayerSpec& layer, int64_t samples,
                 Precision precision, absl::Span<const TapeNeeds> needs);

// An update of `parameters` numbers, for which `states` more are kept each: it reads weights, gradients and state, and writes
// weights, their mirror in bf16, zeros for gradients, and state.
PassWork WorkOfUpdate(int64_t parameters, int64_t states, Precision precision);

double BoundMs(const PassWork& work, const MachineRates& rates);

struct RooflineRow {
  std::string layers;  // "h.0.attention, 4 of them"
  int count = 1;       // of layers that do the same
  std::string pass;    // "F", "I", "W", "update"
  double ms = 0;       // of one of them
  PassWork work;
  double bound_ms = 0;

  // What all of them would gain at their bound.
  double gap_ms() const { return count * (ms - bound_ms); }
};

// Returns a row for each pass of each shape of a layer, and one for the update, the largest gap first. Passes without work are
// left out.
// REQUIRES: CheckModelProfile and CheckProfileFits are OK. Errors: those of TapeNeedsOf; Internal if `samples` was not
// measured.
absl::StatusOr<std::vector<RooflineRow>> RooflineOf(const ModelGraph& model,
                                                    const v1::ModelProfile& profile,
                                                    const OptimizerConfig& optimizer,
                                                    int64_t samples, Precision precision,
                                                    const MachineRates& rates);

// Returns a Markdown table of the first rows, at most `rows_max`, and a last line with the sum of all. The sum is of a step with
// one microbatch.
std::string RooflineTable(absl::Span<const RooflineRow> rows, int rows_max,
                          const MachineRates& rates);

}  // namespace penstock
