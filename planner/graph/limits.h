// The searches of this folder compare by these two numbers.
#pragma once

#include <limits>

namespace penstock {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
// The margin is relative; periods and scores closer than this count as equal.
inline constexpr double kMargin = 1e-12;

}  // namespace penstock
