#include "services/cli/help.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "job/suggest.h"

namespace penstock {
namespace {

constexpr size_t kNameColumns = 34;

// The default as CLI11 noted it: "[0.5]" for a list of one.
std::string DefaultText(const CLI::Option& option) {
  const std::string noted = option.get_default_str();
  absl::string_view text = noted;
  if (absl::ConsumePrefix(&text, "[")) absl::ConsumeSuffix(&text, "]");
  return std::string(text);
}

}  // namespace

HelpFormatter::HelpFormatter() { column_width(kNameColumns); }

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  // For flags CLI11 keeps a type name too, which is empty.
  std::string type = option->get_type_name();
  type.erase(std::min(type.find(':'), type.size()));  // "N:POSITIVE"
  return type.empty() || option->get_expected_max() == 0 ? "" : " " + type;
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  std::string text = option->get_description();
  if (!option->get_envname().empty()) absl::StrAppend(&text, ", or ", option->get_envname());
  if (option->get_required()) absl::StrAppend(&text, " (required)");
  if (!DefaultText(*option).empty())
    absl::StrAppend(&text, " (default: ", DefaultText(*option), ")");
  return text;
}

std::string SuggestFlag(const CLI::App& app, const std::string& typed) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::string nearest = NearestName(typed, names);
  return nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?");
}

}  // namespace penstock
