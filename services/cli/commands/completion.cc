// penstock completion: a script that teaches a shell our commands.
#include "services/cli/completion.h"

#include <memory>
#include <string>
#include <vector>

#include "services/cli/command_text.h"
#include "services/cli/commands/commands.h"

namespace penstock {
namespace {

constexpr struct {
  const char* name;
  std::string (*make)(const CommandText& program);
} kShells[] = {{"bash", BashCompletion}, {"zsh", ZshCompletion}, {"fish", FishCompletion}};

}  // namespace

CommandRunner DeclareCompletion(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  std::vector<std::string> names;
  for (const auto& known : kShells) names.emplace_back(known.name);
  app.add_option("SHELL", *shell, "bash, zsh or fish")
      ->required()
      ->type_name("")
      ->check(CLI::IsMember(names));
  return [shell, &app](Console& console) {
    const CommandText program = Describe(*app.get_parent());
    for (const auto& known : kShells) {
      if (*shell == known.name) console.out << known.make(program);
    }
    return absl::OkStatus();
  };
}

}  // namespace penstock
