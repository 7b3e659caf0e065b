#include "job/yaml/yaml_message.h"

#include <yaml-cpp/yaml.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/files.h"
#include "base/status.h"
#include "google/protobuf/descriptor.h"
#include "job/keys/key_options.h"
#include "job/keys/suggest.h"
#include "job/yaml/yaml_layers.h"
#include "job/yaml/yaml_limits.h"
#include "job/yaml/yaml_node.h"

namespace penstock {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

// Walks a tree and a message's description side by side.
class MessageReader {
 public:
  MessageReader(const std::string& file_name, YamlPositions& positions,
                std::vector<std::string>* notes)
      : file_name_(file_name), positions_(positions), notes_(notes) {}

  absl::Status ReadMessage(const YAML::Node& node, const std::string& path, Message& message);
  // Sets the field or, of a list, appends to it.
  absl::Status ReadScalar(const YAML::Node& node, const std::string& path,
                          const FieldDescriptor& field, Message& message);

 private:
  absl::Status Error(const YAML::Node& node, const std::string& path,
                     absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(PlaceOf(file_name_, node.Mark()), ": ",
                                                   path.empty() ? "" : path + ": ", what));
  }
  absl::Status WrongType(const YAML::Node& node, const std::string& path,
                         absl::string_view expected) const;
  absl::Status UnknownKey(const YAML::Node& key, const std::string& path,
                          const Descriptor& descriptor) const;
  absl::Status CheckChoice(const YAML::Node& key, const std::string& parent,
                           const FieldDescriptor& field, const Message& message) const;
  absl::Status ReadShortForm(const YAML::Node& node, const std::string& path,
                             const FieldDescriptor& field, Message& message);
  absl::Status ReadField(const YAML::Node& node, const std::string& path,
                         const FieldDescriptor& field, Message& message);
  absl::Status ReadList(const YAML::Node& node, const std::string& path,
                        const FieldDescriptor& field, Message& message);
  template <typename Integer>
  absl::StatusOr<Integer> ReadInteger(const YAML::Node& node, const std::string& path,
                                      const FieldDescriptor& field) const;
  absl::StatusOr<double> ReadDouble(const YAML::Node& node, const std::string& path,
                                    const FieldDescriptor& field) const;
  absl::StatusOr<bool> ReadBool(const YAML::Node& node, const std::string& path,
                                const FieldDescriptor& field) const;
  absl::StatusOr<std::string> ReadString(const YAML::Node& node, const std::string& path,
                                         const FieldDescriptor& field) const;
  absl::StatusOr<const EnumValueDescriptor*> ReadEnum(const YAML::Node& node,
                                                      const std::string& path,
                                                      const FieldDescriptor& field) const;

  const std::string& file_name_;
  YamlPositions& positions_;
  std::vector<std::string>* notes_;  // null: no notes
};

absl::Status MessageReader::WrongType(const YAML::Node& node, const std::string& path,
                                      absl::string_view expected) const {
  const std::string what = absl::StrCat("expected ", expected, ", got ", DescribeNode(node));
  // An absent value has the place of whatever comes next; its key says more.
  const auto key = positions_.find(path);
  if (node.IsNull() && key != positions_.end()) {
    return absl::InvalidArgumentError(absl::StrCat(key->second, ": ", path, ": ", what));
  }
  return Error(node, path, what);
}

absl::Status MessageReader::UnknownKey(const YAML::Node& key, const std::string& path,
                                       const Descriptor& descriptor) const {
  std::vector<std::string> names;
  names.reserve(descriptor.field_count());
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const std::string& short_form = OptionsOf(*descriptor.field(i)).short_form();
    if (!short_form.empty()) names.push_back(short_form);
    names.push_back(descriptor.field(i)->name());
  }
  if (names.empty()) return Error(key, path, "unknown key; there are no keys here");
  const std::string nearest = NearestName(key.Scalar(), names);
  return Error(key, path,
               nearest.empty() ? absl::StrCat("unknown key; known are ", absl::StrJoin(names, ", "))
                               : absl::StrCat("unknown key; did you mean ", nearest, "?"));
}

// Refuses a second kind of a choice (a oneof), which would silently replace the first.
absl::Status MessageReader::CheckChoice(const YAML::Node& key, const std::string& parent,
                                        const FieldDescriptor& field,
                                        const Message& message) const {
  const OneofDescriptor* choice = field.real_containing_oneof();
  if (choice == nullptr || !message.GetReflection()->HasOneof(message, choice)) {
    return absl::OkStatus();
  }
  const FieldDescriptor& other = *message.GetReflection()->GetOneofFieldDescriptor(message, choice);
  const std::string& short_form = OptionsOf(other).short_form();
  const bool is_short =
      key.Scalar() != short_form && positions_.count(absl::StrCat(parent, ".", short_form)) > 0;
  return Error(key, parent,
               absl::StrCat(is_short ? short_form : other.name(), " and ", key.Scalar(),
                            " exclude each other; keep one"));
}

absl::Status MessageReader::ReadMessage(const YAML::Node& node, const std::string& path,
                                        Message& message) {
  if (!node.IsMap()) {
    return WrongType(node, path, "keys and values");
  }
  const Descriptor& descriptor = *message.GetDescriptor();
  for (const auto& entry : node) {
    const YAML::Node& key = entry.first;
    if (!key.IsScalar()) {
      return WrongType(key, path, "a key");
    }
    const std::string prefix = path.empty() ? "" : path + ".";
    const FieldDescriptor* field = FieldNamed(descriptor, key.Scalar());
    if (field == nullptr) {
      return UnknownKey(key, prefix + key.Scalar(), descriptor);
    }
    const bool is_short = OptionsOf(*field).short_form() == key.Scalar();
    const std::string key_path = prefix + (is_short ? key.Scalar() : field->name());
    if (notes_ != nullptr && field->name() != key.Scalar() && !is_short) {
      notes_->push_back(absl::StrCat(PlaceOf(file_name_, key.Mark()), ": ", prefix, key.Scalar(),
                                     " is called ", key_path,
                                     " now; the next version will not know the old name"));
    }
    const auto [position, inserted] = positions_.emplace(key_path, PlaceOf(file_name_, key.Mark()));
    if (!inserted) {
      return Error(key, key_path, absl::StrCat("given twice, first at ", position->second));
    }
    PENSTOCK_RETURN_IF_ERROR(CheckChoice(key, path, *field, message));
    if (is_short) {
      positions_.emplace(prefix + field->name(), position->second);
      PENSTOCK_RETURN_IF_ERROR(ReadShortForm(entry.second, key_path, *field, message));
    } else {
      PENSTOCK_RETURN_IF_ERROR(ReadField(entry.second, key_path, *field, message));
    }
  }
  return absl::OkStatus();
}

absl::Status MessageReader::ReadShortForm(const YAML::Node& node, const std::string& path,
                                          const FieldDescriptor& field, Message& message) {
  // The layers of a model are the only value with a short form.
  auto* graph = google::protobuf::DynamicCastToGenerated<v1::ModelGraph>(
      message.GetReflection()->MutableMessage(&message, &field));
  PENSTOCK_CHECK(graph != nullptr);
  if (node.IsSequence()) return ReadLayers(node, file_name_, path, *graph);
  return WrongType(node, path, "a list");
}

absl::Status MessageReader::ReadField(const YAML::Node& node, const std::string& path,
                                      const FieldDescriptor& field, Message& message) {
  if (field.is_repeated()) {
    return ReadList(node, path, field, message);
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return ReadMessage(node, path, *message.GetReflection()->MutableMessage(&message, &field));
  }
  // A number that need not be there may be left to Penstock by the word.
  const bool is_number = field.cpp_type() != FieldDescriptor::CPPTYPE_STRING &&
                         field.cpp_type() != FieldDescriptor::CPPTYPE_ENUM;
  const bool is_auto = node.IsScalar() && !IsQuoted(node) && node.Scalar() == "auto";
  if (field.has_presence() && is_number && is_auto) return absl::OkStatus();
  return ReadScalar(node, path, field, message);
}

absl::Status MessageReader::ReadList(const YAML::Node& node, const std::string& path,
                                     const FieldDescriptor& field, Message& message) {
  const bool of_messages = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  // A list of one value may be written as the value.
  if (node.IsScalar() && !of_messages) return ReadScalar(node, path, field, message);
  if (!node.IsSequence()) {
    return WrongType(node, path, of_messages ? "a list" : "a value or a list of them");
  }
  for (size_t i = 0; i < node.size(); ++i) {
    const std::string element_path = absl::StrCat(path, "[", i, "]");
    if (of_messages) {
      PENSTOCK_RETURN_IF_ERROR(ReadMessage(node[i], element_path,
                                           *message.GetReflection()->AddMessage(&message, &field)));
    } else {
      PENSTOCK_RETURN_IF_ERROR(ReadScalar(node[i], element_path, field, message));
    }
  }
  return absl::OkStatus();
}

template <typename Integer>
absl::StatusOr<Integer> MessageReader::ReadInteger(const YAML::Node& node, const std::string& path,
                                                   const FieldDescriptor& field) const {
  const std::string text = node.IsScalar() && !IsQuoted(node) ? node.Scalar() : "";
  Integer value = 0;
  if (absl::SimpleAtoi(text, &value)) {
    return value;
  }
  const size_t digits = text.find_first_not_of("+-");
  if (digits != std::string::npos && digits <= 1 &&
      text.find_first_not_of("0123456789", digits) == std::string::npos) {
    // Without a range of the key's own, that of its type.
    const std::string expected =
        OptionsOf(field).has_min()
            ? ExpectedOf(field)
            : absl::StrCat("a whole number from ", std::numeric_limits<Integer>::min(), " to ",
                           std::numeric_limits<Integer>::max());
    return Error(node, path, absl::StrCat("is ", text, "; expected ", expected));
  }
  return WrongType(node, path, ExpectedOf(field));
}

absl::StatusOr<double> MessageReader::ReadDouble(const YAML::Node& node, const std::string& path,
                                                 const FieldDescriptor& field) const {
  double value = 0;
  const std::string text = node.IsScalar() && !IsQuoted(node) ? node.Scalar() : "";
  const bool plain =
      !text.empty() && text.find_first_not_of("+-.0123456789eE") == std::string::npos;
  if (!plain || !absl::SimpleAtod(text, &value)) {
    return WrongType(node, path, ExpectedOf(field));
  }
  if (!std::isfinite(value)) {
    return Error(node, path, absl::StrCat("is ", text, ", too large for a double"));
  }
  return value;
}

absl::StatusOr<bool> MessageReader::ReadBool(const YAML::Node& node, const std::string& path,
                                             const FieldDescriptor& field) const {
  if (node.IsScalar() && !IsQuoted(node)) {
    const std::string text = absl::AsciiStrToLower(node.Scalar());
    if (text == "true" || text == "false") {
      return text == "true";
    }
  }
  return WrongType(node, path, ExpectedOf(field));
}

absl::StatusOr<std::string> MessageReader::ReadString(const YAML::Node& node,
                                                      const std::string& path,
                                                      const FieldDescriptor& field) const {
  if (!node.IsScalar()) {
    return WrongType(node, path, ExpectedOf(field));
  }
  return node.Scalar();
}

absl::StatusOr<const EnumValueDescriptor*> MessageReader::ReadEnum(
    const YAML::Node& node, const std::string& path, const FieldDescriptor& field) const {
  const EnumValueDescriptor* value =
      node.IsScalar() ? field.enum_type()->FindValueByName(node.Scalar()) : nullptr;
  if (value != nullptr) {
    return value;
  }
  return WrongType(node, path, ExpectedOf(field));
}

absl::Status MessageReader::ReadScalar(const YAML::Node& node, const std::string& path,
                                       const FieldDescriptor& field, Message& message) {
  const Reflection& reflection = *message.GetReflection();
  // Reads one type and sets or, in a list, appends it.
#define PENSTOCK_READ_AS(Type, expression)                               \
  {                                                                      \
    PENSTOCK_ASSIGN_OR_RETURN(auto value, expression);                   \
    field.is_repeated() ? reflection.Add##Type(&message, &field, value)  \
                        : reflection.Set##Type(&message, &field, value); \
    return absl::OkStatus();                                             \
  }
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      PENSTOCK_READ_AS(Int32, ReadInteger<int32_t>(node, path, field));
    case FieldDescriptor::CPPTYPE_INT64:
      PENSTOCK_READ_AS(Int64, ReadInteger<int64_t>(node, path, field));
    case FieldDescriptor::CPPTYPE_UINT32:
      PENSTOCK_READ_AS(UInt32, ReadInteger<uint32_t>(node, path, field));
    case FieldDescriptor::CPPTYPE_UINT64:
      PENSTOCK_READ_AS(UInt64, ReadInteger<uint64_t>(node, path, field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      PENSTOCK_READ_AS(Double, ReadDouble(node, path, field));
    case FieldDescriptor::CPPTYPE_FLOAT:
      PENSTOCK_READ_AS(Float, ReadDouble(node, path, field));
    case FieldDescriptor::CPPTYPE_BOOL:
      PENSTOCK_READ_AS(Bool, ReadBool(node, path, field));
    case FieldDescriptor::CPPTYPE_STRING:
      PENSTOCK_READ_AS(String, ReadString(node, path, field));
    case FieldDescriptor::CPPTYPE_ENUM:
      PENSTOCK_READ_AS(Enum, ReadEnum(node, path, field));
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return ReadMessage(node, path, *reflection.MutableMessage(&message, &field));
  }
#undef PENSTOCK_READ_AS
  return absl::InternalError(absl::StrCat(path, ": unknown kind of field"));
}

}  // namespace

absl::Status ReadYamlMessage(absl::string_view text, const std::string& file_name, Message& message,
                             YamlPositions& positions, std::vector<std::string>* notes) {
  try {
    PENSTOCK_ASSIGN_OR_RETURN(const YAML::Node node, LoadYamlDocument(text, file_name));
    return MessageReader(file_name, positions, notes).ReadMessage(node, "", message);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(PlaceOf(file_name, error.mark), ": not YAML: ", error.msg));
  }
}

absl::Status SetFromYaml(absl::string_view value, const FieldDescriptor& field, Message& message) {
  const std::string no_file;
  YamlPositions positions;
  return MessageReader(no_file, positions, nullptr)
      .ReadScalar(YAML::Node(std::string(value)), field.name(), field, message);
}

absl::Status WithPlace(const absl::Status& error, const std::string& file_name,
                       const YamlPositions& positions) {
  const std::string message(error.message());
  std::string key = message.substr(0, message.find(": "));
  while (!key.empty()) {
    const auto found = positions.find(key);
    if (found != positions.end()) {
      return Annotate(error, found->second);
    }
    const size_t dot = key.rfind('.');
    key = dot == std::string::npos ? "" : key.substr(0, dot);
  }
  return Annotate(error, file_name);
}

absl::StatusOr<std::string> ReadYamlFile(const std::string& path) {
  absl::StatusOr<std::string> text = RealFiles().Read(path, kYamlBytesMax);
  if (absl::IsOutOfRange(text.status()) || absl::IsFailedPrecondition(text.status())) {
    return absl::InvalidArgumentError(text.status().message());
  }
  return text;
}

}  // namespace penstock
