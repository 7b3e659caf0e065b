// Numbers from the environment, for tests that can also be run at greater length.
#pragma once

#include <cstdlib>

#include "absl/strings/numbers.h"

namespace penstock {

inline int EnvironmentNumber(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  int value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

}  // namespace penstock
