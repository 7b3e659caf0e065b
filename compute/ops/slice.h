// The part of a value that slice, select and pad take or place, on every back-end.
#pragma once

#include <cstdint>

#include "compute/op_kernels.h"

namespace penstock::slice {

// Of each of `rows` rows of `width`, the columns from `from` on, `taken` of them.
struct Part {
  int64_t rows, width, from, taken;
};

// Columns of the last dimension, or time steps of each sample.
inline Part PartOfSlice(const KernelSpec& spec) {
  const ValueType& input = spec.inputs[0];
  const bool is_first = spec.attributes().word("dimension") == "first";
  // What is taken together: a whole time step, or one element.
  const int64_t unit = is_first ? input.elements() / input.dims.front() : 1;
  const int64_t width = is_first ? input.elements() : spec.width();
  const int64_t from = spec.attributes().integer("from");
  const int64_t to = spec.attributes().integer("to");
  return {spec.input_elements() / width, width, from * unit, (to - from) * unit};
}

// The input in the output.
inline Part PartOfPad(const KernelSpec& spec) {
  const ValueType& input = spec.inputs[0];
  const int64_t step = input.elements() / input.dims.front();
  return {spec.samples, spec.node.output.elements(), spec.attributes().integer("before") * step,
          input.elements()};
}

// One time step.
inline Part PartOfSelect(const KernelSpec& spec) {
  const int64_t time = spec.inputs[0].dims[0];
  const int64_t step = spec.node.output.elements();
  const int64_t index = spec.attributes().integer("index");
  return {spec.samples, time * step, (index < 0 ? time - 1 : index) * step, step};
}

}  // namespace penstock::slice
