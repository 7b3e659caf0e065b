// The optimizers whose steps go element by element: a file each in this folder and a line here. Back-ends make their
// kernels for all of them from this list.
//
// A configuration has defaults, a Step (step.h), the names of its state arrays and how many of them it keeps, its kind
// and the coefficient of its first momentum; UpdatesOf(configuration).At(rate, update) gives the Step of an update.
// C++17, for nvcc.
#pragma once

#include "compute/elementwise/adamw.h"
#include "compute/elementwise/nadamw.h"
#include "compute/elementwise/sgd.h"

namespace penstock {

// Applies `Other` to all configurations: Other<SgdConfig, ...>.
template <template <typename...> typename Other>
using OfElementwise = Other<SgdConfig, AdamWConfig, NAdamWConfig>;

}  // namespace penstock
