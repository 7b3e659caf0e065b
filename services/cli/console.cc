#include "services/cli/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <iostream>

namespace penstock {

Console StandardConsole() {
  Console console{std::cout, std::cerr};
  console.err_is_terminal = isatty(STDERR_FILENO) == 1;
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    console.columns = size.ws_col;
  }
  return console;
}

}  // namespace penstock
