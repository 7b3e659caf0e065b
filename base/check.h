// PENSTOCK_CHECK: stops the program when one of our own assumptions is wrong.
//
// For bugs only. Anything that can come from outside (a file, a message, a flag) gets an
// absl::Status instead.
#pragma once

#include <cstdio>
#include <cstdlib>

#define PENSTOCK_CHECK(condition)                                                        \
  do {                                                                                   \
    if (!(condition)) [[unlikely]] {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)
