#include "services/cli/manual_page.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace penstock {
namespace {

// Text that troff takes for nothing but text.
std::string Plain(absl::string_view text) {
  const std::string plain =
      absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"'", "\\(aq"}, {"`", "\\(ga"}});
  return absl::StartsWith(plain, ".") ? absl::StrCat("\\&", plain) : plain;
}

// Returns the text unchanged, line by line.
std::string Verbatim(const std::string& text) {
  std::string lines = ".PP\n.nf\n";
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::StrAppend(&lines, line.empty() ? "\\&" : Plain(line), "\n");
  }
  return absl::StrCat(lines, ".fi\n");
}

std::string OptionEntry(const OptionText& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.names)
    names.push_back(absl::StrCat("\\fB", Plain(name), "\\fR"));
  std::string entry = absl::StrCat(".TP\n", absl::StrJoin(names, ", "));
  if (!option.value.empty()) absl::StrAppend(&entry, " \\fI", Plain(option.value), "\\fR");
  absl::StrAppend(&entry, "\n", Plain(option.description), "\n");
  // The values of a job's keys would fill pages; `penstock manual job` has them.
  const bool sets_keys = absl::StrContains(option.value, "=");
  if (!option.choices.empty() && !sets_keys) {
    absl::StrAppend(&entry, ".br\nKnown: ", Plain(absl::StrJoin(option.choices, ", ")), "\n");
  }
  return entry;
}

std::string Synopsis(const CommandText& command) {
  std::string line = absl::StrCat("\\fBpenstock ", Plain(command.path), "\\fR");
  for (const OptionText& positional : command.positionals) {
    absl::StrAppend(&line, " \\fI", Plain(positional.names.front()), "\\fR");
  }
  return absl::StrCat(line, " [\\fIoption\\fR ...]\n");
}

void AppendCommand(const CommandText& command, std::string& page) {
  absl::StrAppend(&page, ".SS penstock ", Plain(command.path), "\n", Plain(command.summary), ".\n");
  if (command.commands.empty()) absl::StrAppend(&page, ".PP\n", Synopsis(command));
  for (const OptionText& positional : command.positionals) page += OptionEntry(positional);
  for (const OptionText& option : command.options) page += OptionEntry(option);
  for (const CommandText& below : command.commands) AppendCommand(below, page);
  if (!command.footer.empty()) page += Verbatim(command.footer);
}

}  // namespace

std::string ManualPage(const CommandText& program, const std::string& version) {
  std::string page = absl::StrCat(
      ".TH PENSTOCK 1 \"\" \"penstock ", Plain(version), "\" \"User Commands\"\n",
      ".SH NAME\npenstock \\- train neural networks through a pipeline of workers\n",
      ".SH SYNOPSIS\n\\fBpenstock\\fR \\fIcommand\\fR [\\fIoption\\fR ...]\n.SH DESCRIPTION\n",
      Verbatim(program.summary));
  std::string group;
  for (const CommandText& command : program.commands) {
    if (command.group != group) {
      group = command.group;
      absl::StrAppend(&page, ".SH ", Plain(absl::AsciiStrToUpper(group)), "\n");
    }
    AppendCommand(command, page);
  }
  absl::StrAppend(&page, ".SH OPTIONS\n");
  for (const OptionText& option : program.options) page += OptionEntry(option);
  absl::StrAppend(&page, ".SH EXIT STATUS\n", Verbatim(program.footer));
  return page;
}

}  // namespace penstock
