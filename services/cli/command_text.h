// CommandText: the commands and their flags as plain values, out of what CLI11 knows of them, for completion scripts
// and the manual page.
//
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "CLI/CLI.hpp"

namespace penstock {

struct OptionText {
  std::vector<std::string> names;    // "-o", "--output"; of a positional argument its name alone
  std::string value;                 // what follows, such as "FILE"; empty: nothing does
  std::vector<std::string> choices;  // the values that are known; others may be allowed too
  bool separated_by_commas = false;  // several values in one word
  std::string description;           // with environment variable, default and "(required)"
};

struct CommandText {
  std::string path;  // "schedule show"; empty for the program
  std::string name;  // "show"
  std::string summary;
  std::string group;   // heading that it stands under
  std::string footer;  // examples
  std::vector<OptionText> options;
  std::vector<OptionText> positionals;
  std::vector<CommandText> commands;
};

CommandText Describe(const CLI::App& app);

// Returns the values of an option that are checked by CLI::IsMember or named by KnownValues.
std::vector<std::string> ChoicesOf(const CLI::Option& option);

// For `->check(...)` of an option whose values are checked elsewhere: names those that are known, and refuses nothing.
CLI::Validator KnownValues(const std::vector<std::string>& values);

// Names, for an option that takes methods, those of the catalog, and `more`.
CLI::Validator KnownMethods(std::vector<std::string> more = {});

// Names, for an option that sets keys of a job, "training.steps=", or with known words
// "training.precision=bf16".
CLI::Validator KnownSettings();

// Returns the word after the option, such as "FILE"; empty for flags.
std::string ValueOf(const CLI::Option& option);
// With environment variable, default and "(required)".
std::string DescriptionOf(const CLI::Option& option);

}  // namespace penstock
