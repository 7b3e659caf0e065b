#include "job/yaml/yaml_node.h"

#include "absl/strings/str_cat.h"

namespace penstock {

std::string PlaceOf(const std::string& file_name, const YAML::Mark& mark) {
  return mark.is_null() ? file_name
                        : absl::StrCat(file_name, ":", mark.line + 1, ":", mark.column + 1);
}

bool IsQuoted(const YAML::Node& node) { return node.Tag() == "!"; }

std::string DescribeNode(const YAML::Node& node) {
  constexpr size_t kCharactersMax = 40;
  switch (node.Type()) {
    case YAML::NodeType::Null:
    case YAML::NodeType::Undefined:
      return "nothing";
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "keys and values";
    case YAML::NodeType::Scalar:
      break;
  }
  std::string text = node.Scalar();
  if (text.size() > kCharactersMax) {
    size_t end = kCharactersMax;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // in a letter
    text = text.substr(0, end) + "...";
  }
  return IsQuoted(node) ? absl::StrCat("the text \"", text, "\"") : text;
}

}  // namespace penstock
