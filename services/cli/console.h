// Console: where a command writes.
//
// Results go to `out`, and with --json nothing but one JSON document does. Everything said on the way
// (progress, notes, errors) goes to `err`.
#pragma once

#include <ostream>

namespace penstock {

struct Console {
  std::ostream& out;
  std::ostream& err;
  bool err_is_terminal = false;
  int columns = 80;  // of the terminal
};

// The process's own standard streams.
Console StandardConsole();

}  // namespace penstock
