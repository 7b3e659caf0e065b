// Help: how `--help` looks, and what is said to a mistyped command or flag.
#pragma once

#include <string>

#include "CLI/CLI.hpp"

namespace penstock {

// Prints an option as "--steps N   Train N steps (default: 3)", without CLI11's notes about
// validators, in lines of 100 columns.
class HelpFormatter final : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

// "; did you mean --steps?" if `typed` is close to a flag of `app`, else nothing.
std::string SuggestFlag(const CLI::App& app, const std::string& typed);

}  // namespace penstock
