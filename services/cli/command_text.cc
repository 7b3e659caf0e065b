#include "services/cli/command_text.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "job/keys/key_options.h"
#include "schedule/catalog/catalog.h"

namespace penstock {
namespace {

// The default as CLI11 noted it: "[0.5]" for a list of one.
std::string DefaultText(const CLI::Option& option) {
  const std::string noted = option.get_default_str();
  absl::string_view text = noted;
  if (absl::ConsumePrefix(&text, "[")) absl::ConsumeSuffix(&text, "]");
  return std::string(text);
}

OptionText Describe(const CLI::Option& option) {
  OptionText text;
  for (const std::string& name : option.get_snames()) text.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) text.names.push_back("--" + name);
  if (text.names.empty()) text.names.push_back(option.get_name());
  text.value = ValueOf(option);
  text.choices = ChoicesOf(option);
  text.separated_by_commas = option.get_delimiter() == ',';
  text.description = DescriptionOf(option);
  return text;
}

CommandText Describe(const CLI::App& app, const std::string& path) {
  CommandText text;
  text.path = path;
  text.name = app.get_name();
  text.summary = app.get_description();
  text.group = app.get_group();
  text.footer = app.get_footer();
  for (const CLI::Option* option : app.get_options()) {
    (option->get_positional() ? text.positionals : text.options).push_back(Describe(*option));
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string& name = command->get_name();
    text.commands.push_back(
        Describe(*command, path.empty() ? name : absl::StrCat(path, " ", name)));
  }
  return text;
}

}  // namespace

CommandText Describe(const CLI::App& app) { return Describe(app, ""); }

std::vector<std::string> ChoicesOf(const CLI::Option& option) {
  // "NAME:{period,memory}": the notes of validators follow the name of the value.
  const std::string type = option.get_type_name();
  const size_t begin = type.find(":{");
  if (begin == std::string::npos) return {};
  const size_t end = type.find('}', begin);
  return absl::StrSplit(type.substr(begin + 2, end - begin - 2), ',', absl::SkipEmpty());
}

CLI::Validator KnownValues(const std::vector<std::string>& values) {
  return CLI::Validator(absl::StrCat("{", absl::StrJoin(values, ","), "}"));
}

CLI::Validator KnownMethods(std::vector<std::string> more) {
  for (const Method& method : Methods()) more.emplace_back(method.name);
  return KnownValues(more);
}

CLI::Validator KnownSettings() {
  std::vector<std::string> settings;
  for (const JobKey& key : JobKeys()) {
    if (key.field->message_type() != nullptr) continue;
    std::vector<std::string> words = WordsOf(*key.field);
    if (key.field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_BOOL) {
      words = {"true", "false"};
    }
    if (words.empty()) words = {""};
    for (const std::string& word : words) settings.push_back(absl::StrCat(key.path, "=", word));
  }
  return KnownValues(settings);
}

std::string ValueOf(const CLI::Option& option) {
  // For flags CLI11 keeps a type name too, which is empty.
  if (option.get_expected_max() == 0) return "";
  std::string type = option.get_type_name();
  type.erase(std::min(type.find(':'), type.size()));  // "N:POSITIVE"
  return type;
}

std::string DescriptionOf(const CLI::Option& option) {
  std::string text = option.get_description();
  if (!option.get_envname().empty()) absl::StrAppend(&text, ", or ", option.get_envname());
  if (option.get_required()) absl::StrAppend(&text, " (required)");
  if (!DefaultText(option).empty()) absl::StrAppend(&text, " (default: ", DefaultText(option), ")");
  return text;
}

}  // namespace penstock
