#include "services/cli/command.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "job/keys/suggest.h"
#include "services/cli/help.h"

namespace penstock {
namespace {

constexpr char kIntroduction[] =
    "Penstock trains neural networks through a pipeline of workers.\n"
    "\n"
    "  penstock train examples/shakespeare.yaml --data input.txt --workers 2\n"
    "  penstock simulate --method pipedream --stages 4 --microbatches 32 --text\n";
constexpr char kFooter[] =
    "Exit codes: 0 done, 1 failed, 2 bad usage or bad input, 130 interrupted.\n"
    "`penstock COMMAND --help` explains a command, docs/cli.md all of them.";

// "unknown command 'trian'; did you mean train?", instead of CLI11's list of leftovers.
absl::Status CheckCommandName(absl::Span<const Command> commands, const std::string& typed) {
  if (absl::StartsWith(typed, "-")) return absl::OkStatus();
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (typed == command.name) return absl::OkStatus();
    names.push_back(command.name);
  }
  const std::string nearest = NearestName(typed, names);
  return absl::InvalidArgumentError(
      absl::StrCat("unknown command '", typed, "'",
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

namespace {

// One line for what CLI11 has to say about the arguments.
std::string UsageError(const CLI::ParseError& error, const CLI::App& app) {
  std::string message = error.what();
  std::string path;
  const CLI::App* innermost = &app;
  for (auto parsed = app.get_subcommands(); !parsed.empty();
       parsed = innermost->get_subcommands()) {
    innermost = parsed.front();
    absl::StrAppend(&path, " ", innermost->get_name());
  }
  const std::vector<std::string> left = app.remaining(/*recurse=*/true);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !left.empty()) {
    message =
        absl::StrCat("unexpected argument ", left.front(), SuggestFlag(*innermost, left.front()));
  }
  return absl::StrCat("penstock", path, ": ", message, " (see `penstock", path, " --help`)");
}

void DeclareAll(absl::Span<const Command> commands, CLI::App& app,
                std::map<const CLI::App*, CommandRunner>& runners) {
  app.footer(kFooter);
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", std::string("penstock ") + PENSTOCK_VERSION,
                       "Print the version");
  app.set_help_flag("-h,--help", "Print this help");
  app.require_subcommand(1);
  for (const Command& command : commands) {
    CLI::App* subcommand = app.add_subcommand(command.name, command.summary);
    subcommand->group(command.group);
    subcommand->footer(command.examples);
    runners[subcommand] = command.declare(*subcommand);
  }
}

// A flag whose name changed; the next version will not know the old one.
constexpr absl::string_view kRenamed = "plan", kOldFlag = "--topology", kFlag = "--cluster";

// The arguments after the program's name with present flags, in the reverse order that CLI11 takes.
std::vector<std::string> PresentArguments(int argc, const char* const* argv, Console& console) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::string& argument : arguments) {
    const absl::string_view flag = absl::string_view(argument).substr(0, argument.find('='));
    if (arguments.front() != kRenamed || flag != kOldFlag) continue;
    argument.replace(0, kOldFlag.size(), std::string(kFlag));
    console.err << "penstock " << kRenamed << ": " << kOldFlag << " is called " << kFlag
                << " now; the next version will not know the old name\n";
  }
  std::reverse(arguments.begin(), arguments.end());
  return arguments;
}

// Arguments become texts of messages, which must be UTF-8.
absl::Status CheckArguments(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    if (FindInvalidUtf8(argv[i]) != absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("argument ", i, ", \"", absl::CHexEscape(argv[i]), "\", is not UTF-8 text"));
    }
  }
  return absl::OkStatus();
}

// All but whether what was printed has arrived.
int ParseAndRun(absl::Span<const Command> commands, int argc, const char* const* argv,
                Console& console) {
  CLI::App app(kIntroduction, "penstock");
  std::map<const CLI::App*, CommandRunner> runners;
  DeclareAll(commands, app, runners);
  if (argc < 2) {
    console.err << app.help();
    return kExitBadInput;
  }
  for (const absl::Status& status :
       {CheckArguments(argc, argv), CheckCommandName(commands, argv[1])}) {
    if (!status.ok()) {
      console.err << "penstock: " << status.message() << "\n";
      return kExitBadInput;
    }
  }
  try {
    app.parse(PresentArguments(argc, argv, console));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error, console.out, console.err);  // --help
    console.err << UsageError(error, app) << "\n";
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

}  // namespace

int RunCommandLine(absl::Span<const Command> commands, int argc, const char* const* argv,
                   Console& console) {
  const int exit_code = ParseAndRun(commands, argc, argv, console);
  const absl::Status written = FinishOutput(console);
  if (written.ok()) return exit_code;
  console.err << "penstock: " << written.message() << "\n";
  return exit_code == kExitDone ? kExitFailed : exit_code;
}

}  // namespace penstock
