// What the kernels of additive attention are on every back-end: sizes, parameters, and what its passes leave for one
// another.
//
// Plain values.
#pragma once

#include <array>
#include <cstdint>

#include "compute/op_kernels.h"
#include "compute/tape_layout.h"

namespace penstock::additive_attention {

enum Parameter : int { kQueryMatrix, kMemoryMatrix, kVector, kLength, kBias };
enum Input : int { kQueries, kMemory, kLengths };

struct Sizes {
  explicit Sizes(const KernelSpec& spec)
      : samples(spec.samples),
        queries(spec.inputs[kQueries].dims[0]),
        keys(spec.inputs[kMemory].dims[0]),
        units(spec.attributes().integer("units")),
        width(spec.width(kMemory)),
        has_lengths(spec.inputs.size() > kLengths) {}

  int64_t samples, queries, keys;  // queries and keys of a sample
  int64_t units;
  int64_t width;  // of the memory
  bool has_lengths;

  int64_t rows() const { return samples * queries; }  // of queries
};

// The linear map of the queries, or of the memory.
template <typename Number>
struct MapLayout {
  MapLayout(Input of, const KernelSpec& spec, TapeLayout& layout)
      : matrix(of == kQueries ? kQueryMatrix : kMemoryMatrix),
        rows(spec.rows(of)),
        inputs(spec.width(of)),
        outputs(spec.attributes().integer("units")),
        adds_to_input(of == kMemory),
        input(of, rows * inputs, layout),
        results(layout.stash.Add<float>(rows * outputs)),
        gradients(layout.weight_stash.Add<Number>(rows * outputs)) {}

  Parameter matrix;
  int64_t rows, inputs, outputs;
  bool adds_to_input;  // the memory's gradient is first that of what is mixed
  ProductInput<Number> input;
  Place<float> results;     // stash [rows, outputs]
  Place<Number> gradients;  // weight stash [rows, outputs]: of the results
};

template <typename Number>
struct Layout {
  explicit Layout(const KernelSpec& spec)
      : sizes(spec),
        maps{MapLayout<Number>(kQueries, spec, tape), MapLayout<Number>(kMemory, spec, tape)},
        weights(tape.stash.Add<float>(sizes.rows() * sizes.keys)),
        vector_gradient(tape.weight_stash.Add<float>(sizes.units)),
        length_gradient(tape.weight_stash.Add<float>(1)),
        bias_gradient(tape.weight_stash.Add<float>(sizes.units)) {}

  // I reads the memory again, which the gradients of the weights are made of.
  TapeNeeds needs() const {
    TapeNeeds needs = tape.needs();
    needs.inputs_for_input = InputSet{1} << kMemory | InputSet{1} << kLengths;
    for (const auto& map : maps) needs.inputs_for_weight |= map.input.for_weight();
    return needs;
  }

  TapeLayout tape;  // comes before what is placed in it
  Sizes sizes;
  std::array<MapLayout<Number>, 2> maps;  // by Input
  Place<float> weights;                   // stash [samples, queries, keys]
  Place<float> vector_gradient;           // weight stash [units]
  Place<float> length_gradient;           // weight stash [1]
  Place<float> bias_gradient;             // weight stash [units]
};

}  // namespace penstock::additive_attention
