// The two numbers that the searches of this folder compare by.
#pragma once

#include <limits>

namespace penstock {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Relative; periods and scores closer than this are one.
inline constexpr double kMargin = 1e-12;

}  // namespace penstock
