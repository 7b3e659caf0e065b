// penstock manual: the manual page, made of what --help shows, and the reference of job files.
#include <memory>
#include <string>

#include "job/keys/key_reference.h"
#include "services/cli/command_text.h"
#include "services/cli/commands/commands.h"
#include "services/cli/manual_page.h"

namespace penstock {

CommandRunner DeclareManual(CLI::App& app) {
  const auto topic = std::make_shared<std::string>();
  app.add_option("TOPIC", *topic,
                 "job: print the keys of a job file, in Markdown, instead of the page")
      ->type_name("")
      ->check(CLI::IsMember({"job"}));
  return [topic, &app](Console& console) {
    console.out << (topic->empty() ? ManualPage(Describe(*app.get_parent()), PENSTOCK_VERSION)
                                   : JobReference());
    return absl::OkStatus();
  };
}

}  // namespace penstock
