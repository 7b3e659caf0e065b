// Parameters that many ops have.
#pragma once

#include <cmath>
#include <string>
#include <utility>

#include "model/op.h"

namespace penstock::ops {

// Between hidden features.
inline ParameterSpec Matrix(std::string name, std::vector<int64_t> shape, double deviation) {
  return {.name = std::move(name),
          .shape = std::move(shape),
          .init_scale = deviation,
          .maps_features = true};
}
// With a side that is a vocabulary, positions or classes.
inline ParameterSpec Table(std::string name, int64_t rows, int64_t columns, double deviation) {
  return {.name = std::move(name),
          .shape = {rows, columns},
          .init_scale = deviation,
          .in_pytorch = {{ParameterSpec::Init::kNormal, 1.0}}};
}
inline ParameterSpec Bias(std::string name, int64_t size) {
  return {.name = std::move(name),
          .shape = {size},
          .init = ParameterSpec::Init::kZeros,
          .init_scale = 0.0,
          .decays = false};
}
inline ParameterSpec Gain(std::string name, int64_t size) {
  return {.name = std::move(name),
          .shape = {size},
          .init = ParameterSpec::Init::kOnes,
          .init_scale = 0.0,
          .decays = false};
}
// The same, first drawn between -bound and bound.
inline ParameterSpec Uniform(ParameterSpec parameter, double bound) {
  parameter.init = ParameterSpec::Init::kUniform;
  parameter.init_scale = bound;
  return parameter;
}

// Weight or bias of a linear map, each of whose outputs is a sum over `inputs`. In PyTorch both are first drawn between
// -1/sqrt(inputs) and 1/sqrt(inputs): of a matrix that is kaiming_uniform_ with a = sqrt(5).
inline ParameterSpec OfMap(ParameterSpec parameter, int64_t inputs) {
  parameter.in_pytorch = {ParameterSpec::Init::kUniform,
                          1.0 / std::sqrt(static_cast<double>(inputs))};
  return parameter;
}

// Of the first weights, where they are drawn evenly.
constexpr AttributeSpec BoundSpec(absl::string_view help) {
  return {.name = "bound",
          .kind = AttributeKind::kNumber,
          .help = help,
          .otherwise = "0",
          .min = 0.0,
          .max = 1e6,
          .use = AttributeUse::kInitialWeights};
}

// Of the first rows of a table.
inline constexpr AttributeSpec kTableDeviation = {.name = "deviation",
                                                  .kind = AttributeKind::kNumber,
                                                  .help = "the deviation of the first rows",
                                                  .otherwise = "0.02",
                                                  .min = 0.0,
                                                  .max = 1e6,
                                                  .use = AttributeUse::kInitialWeights};

}  // namespace penstock::ops
