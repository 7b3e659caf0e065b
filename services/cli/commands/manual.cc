// penstock manual: the manual page, made of what --help shows.
#include "services/cli/command_text.h"
#include "services/cli/commands/commands.h"
#include "services/cli/manual_page.h"

namespace penstock {

CommandRunner DeclareManual(CLI::App& app) {
  return [&app](Console& console) {
    console.out << ManualPage(Describe(*app.get_parent()), PENSTOCK_VERSION);
    return absl::OkStatus();
  };
}

}  // namespace penstock
