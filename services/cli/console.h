// Console: where a command writes.
//
// Results go to `out`, and with --json nothing but one JSON document does. Everything said on the way
// (progress, notes, errors) goes to `err`.
#pragma once

#include <ostream>

#include "absl/status/status.h"

namespace penstock {

struct Console {
  std::ostream& out;
  std::ostream& err;
  bool err_is_terminal = false;
  int columns = 80;  // of the terminal
};

// The process's own standard streams. One for the process, as what it has buffered is.
Console StandardConsole();

// Writes what `out` still holds. Errors: Unknown with the reason, if not all that was ever given to it could be written.
absl::Status FinishOutput(Console& console);

}  // namespace penstock
