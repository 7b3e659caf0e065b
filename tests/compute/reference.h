// The ops of the GPT in double precision, written the plainest way: what every back-end is compared with.
//
// Gradients come from central differences of these functions; in double they are good to about 1e-9,
// so a back-end's float gradients can be held to a tight tolerance element by element.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "model/graph.h"

namespace penstock::reference {

using Numbers = std::vector<double>;

// What an op computes from: inputs, and parameters in the order of its node.
struct Arguments {
  int64_t samples = 0;
  int64_t time = 0;
  Numbers input;  // [samples, time, width], or empty
  std::vector<int32_t> ids;
  std::vector<int32_t> targets;
  std::vector<Numbers> parameters;
};

// [samples, time, width], or the mean loss for the head. No dropout.
Numbers Forward(const Node& node, const Arguments& arguments);

// The derivative of `value` with respect to each of `variables`, which it reads.
Numbers CentralDifferences(Numbers& variables, const std::function<double()>& value);

}  // namespace penstock::reference
