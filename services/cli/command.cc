#include "services/cli/command.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "job/suggest.h"

namespace penstock {
namespace {

constexpr char kIntroduction[] =
    "Penstock trains neural networks through a pipeline of workers.\n"
    "Try: penstock train examples/shakespeare.yaml --workers 4";
constexpr char kFooter[] =
    "Exit codes: 0 done, 1 failed, 2 bad usage or bad input, 130 interrupted.\n"
    "`penstock COMMAND --help` explains a command; docs/cli.md has all of it.";

// "unknown command 'trian'; did you mean train?", instead of CLI11's list of leftovers.
absl::Status CheckCommandName(absl::Span<const Command> commands, int argc,
                              const char* const* argv) {
  if (argc < 2 || argv[1][0] == '-') return absl::OkStatus();
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (std::string(argv[1]) == command.name) return absl::OkStatus();
    names.push_back(command.name);
  }
  const std::string nearest = NearestName(argv[1], names);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown command '", argv[1], "'",
                   nearest.empty() ? "; `penstock --help` lists the commands"
                                   : absl::StrCat("; did you mean ", nearest, "?")));
}

}  // namespace

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitDone;
    case absl::StatusCode::kCancelled:
      return kExitInterrupted;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kDataLoss:
      return kExitBadInput;
    default:
      return kExitFailed;
  }
}

absl::Status FailedError(absl::string_view message) { return absl::UnknownError(message); }
absl::Status InterruptedError(absl::string_view message) { return absl::CancelledError(message); }

int RunCommandLine(absl::Span<const Command> commands, int argc, const char* const* argv,
                   Console& console) {
  CLI::App app(kIntroduction, "penstock");
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("penstock ") + PENSTOCK_VERSION);
  app.require_subcommand(1);
  std::map<const CLI::App*, CommandRunner> runners;
  for (const Command& command : commands) {
    CLI::App* subcommand = app.add_subcommand(command.name, command.summary);
    subcommand->group(command.group);
    runners[subcommand] = command.declare(*subcommand);
  }
  const absl::Status named = CheckCommandName(commands, argc, argv);
  if (!named.ok()) {
    console.err << "penstock: " << named.message() << "\n";
    return kExitBadInput;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error, console.out, console.err);  // --help
    const auto parsed = app.get_subcommands();
    const std::string name = parsed.empty() ? "" : " " + parsed.front()->get_name();
    console.err << "penstock" << name << ": " << error.what() << "; see `penstock" << name
                << " --help`\n";
    return kExitBadInput;
  }
  const CLI::App* chosen = app.get_subcommands().front();
  const absl::Status status = runners.at(chosen)(console);
  console.out.flush();
  if (!status.ok()) {
    console.err << "penstock " << chosen->get_name() << ": " << status.message() << "\n";
  }
  return ExitCodeOf(status);
}

}  // namespace penstock
