// What the kernels of attention are on every back-end: sizes, and where queries, keys and values lie in the inputs.
//
// Plain values.
#pragma once

#include <cstdint>

#include "compute/op_kernels.h"

namespace penstock::attention {

enum Part : int { kQuery, kKey, kValue };

struct Sizes {
  explicit Sizes(const KernelSpec& spec)
      : samples(spec.samples),
        side_by_side(spec.inputs.size() < 3),
        has_lengths(spec.inputs.size() % 2 == 0 && spec.inputs.back().dims.empty()),
        has_positions(spec.inputs.size() % 2 == 0 && !has_lengths),
        causal(spec.attributes().flag("causal")),
        window(spec.attributes().integer("window")),
        queries(spec.inputs[0].dims[0]),
        keys(spec.inputs[InputOf(kKey)].dims[0]),
        heads(spec.attributes().integer("heads")),
        size(spec.node.output.dims.back() / heads),
        key_value_heads(side_by_side ? (spec.width() / size - heads) / 2 : spec.width(kKey) / size),
        query_stride(spec.width(kQuery)),
        key_stride(spec.width(InputOf(kKey))) {}

  int64_t samples;
  bool side_by_side;  // queries, keys and values are one input
  bool has_lengths;
  bool has_positions;  // i32 [samples, queries]: a document begins where one is 0
  bool causal;
  int64_t window;                    // keys that a query sees at most; 0: no bound
  int64_t queries, keys;             // of a sample
  int64_t heads, size;               // size: of a head
  int64_t key_value_heads;           // of keys and values
  int64_t query_stride, key_stride;  // of the rows of the inputs; keys and values have one

  int inputs() const { return side_by_side ? 1 : 3; }  // without lengths or positions
  int InputOf(Part part) const { return side_by_side ? 0 : part; }
  int64_t StrideOf(Part part) const { return part == kQuery ? query_stride : key_stride; }
  int64_t TimeOf(Part part) const { return part == kQuery ? queries : keys; }
  // Where the part begins in the rows of its input.
  int64_t ColumnOf(Part part) const {
    if (!side_by_side || part == kQuery) return 0;
    return width() + (part == kValue ? key_value_heads * size : 0);
  }

  // Of a microbatch.
  int64_t elements(Part part) const { return samples * TimeOf(part) * StrideOf(part); }
  int64_t output_elements() const { return samples * queries * width(); }

  int64_t width() const { return heads * size; }  // of the output
  // Heads that read one head of keys and values; they follow one another.
  int64_t group() const { return heads / key_value_heads; }
};

}  // namespace penstock::attention
