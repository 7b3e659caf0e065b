#include "services/cli/help.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "job/keys/suggest.h"
#include "services/cli/command_text.h"

namespace penstock {
namespace {

constexpr size_t kNameColumns = 34;
constexpr size_t kColumns = 100;

// `text` in lines of `columns` at most, where its words allow it. CLI11 indents them.
std::string Wrapped(absl::string_view text, size_t columns) {
  std::string wrapped;
  size_t length = 0;
  for (const absl::string_view word : absl::StrSplit(text, ' ')) {
    if (length > 0 && length + 1 + word.size() > columns) {
      absl::StrAppend(&wrapped, "\n");
      length = 0;
    } else if (length > 0) {
      absl::StrAppend(&wrapped, " ");
      ++length;
    }
    absl::StrAppend(&wrapped, word);
    length += word.size();
  }
  return wrapped;
}

}  // namespace

HelpFormatter::HelpFormatter() { column_width(kNameColumns); }

std::string HelpFormatter::make_option_name(const CLI::Option* option, bool is_positional) const {
  std::string name = CLI::Formatter::make_option_name(option, is_positional);
  return name.substr(0, name.find('{'));  // "--no-recompute{false}"
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  const std::string value = ValueOf(*option);
  return value.empty() ? "" : " " + value;
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  return Wrapped(DescriptionOf(*option), kColumns - kNameColumns);
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
