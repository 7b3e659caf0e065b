#include "job/yaml/yaml_writer.h"

#include <yaml-cpp/yaml.h>

#include <vector>

#include "absl/strings/str_split.h"
#include "base/exact_text.h"
#include "google/protobuf/descriptor.h"

namespace penstock {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::vector<const FieldDescriptor*> FieldsOf(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  return fields;
}

bool IsPlain(const Message& message) {
  for (const FieldDescriptor* field : FieldsOf(message)) {
    if (field->is_repeated() || field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) return false;
  }
  return true;
}

void EmitMessage(const Message& message, YAML::Emitter& out);

// `index`: of the element of a repeated field, or -1.
void EmitValue(const Message& message, const FieldDescriptor& field, int index,
               YAML::Emitter& out) {
  const Reflection& reflection = *message.GetReflection();
  const auto get = [&](auto single, auto repeated) {
    return index < 0 ? (reflection.*single)(message, &field)
                     : (reflection.*repeated)(message, &field, index);
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      out << get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32);
      return;
    case FieldDescriptor::CPPTYPE_INT64:
      out << get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64);
      return;
    case FieldDescriptor::CPPTYPE_UINT32:
      out << get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32);
      return;
    case FieldDescriptor::CPPTYPE_UINT64:
      out << get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64);
      return;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      out << ExactText(get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble));
      return;
    case FieldDescriptor::CPPTYPE_FLOAT:
      out << ExactText(get(&Reflection::GetFloat, &Reflection::GetRepeatedFloat));
      return;
    case FieldDescriptor::CPPTYPE_BOOL:
      out << get(&Reflection::GetBool, &Reflection::GetRepeatedBool);
      return;
    case FieldDescriptor::CPPTYPE_ENUM:
      out << get(&Reflection::GetEnum, &Reflection::GetRepeatedEnum)->name();
      return;
    case FieldDescriptor::CPPTYPE_STRING:
      // Quoted, lest a text that looks like a number becomes one.
      out << YAML::DoubleQuoted << get(&Reflection::GetString, &Reflection::GetRepeatedString);
      return;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      EmitMessage(index < 0 ? reflection.GetMessage(message, &field)
                            : reflection.GetRepeatedMessage(message, &field, index),
                  out);
      return;
  }
}

void EmitMessage(const Message& message, YAML::Emitter& out) {
  if (IsPlain(message)) out << YAML::Flow;
  out << YAML::BeginMap;
  for (const FieldDescriptor* field : FieldsOf(message)) {
    out << YAML::Key << field->name() << YAML::Value;
    if (!field->is_repeated()) {
      EmitValue(message, *field, -1, out);
      continue;
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) out << YAML::Flow;
    out << YAML::BeginSeq;
    for (int i = 0; i < message.GetReflection()->FieldSize(message, field); ++i) {
      EmitValue(message, *field, i, out);
    }
    out << YAML::EndSeq;
  }
  out << YAML::EndMap;
}

}  // namespace

std::string WriteYamlMessage(const Message& message, const std::string& comment) {
  std::string text;
  if (!comment.empty()) {
    for (const absl::string_view line : absl::StrSplit(comment, '\n')) {
      text.append("# ").append(line.data(), line.size()).append("\n");
    }
  }
  YAML::Emitter out;
  EmitMessage(message, out);
  return text + out.c_str() + "\n";
}

}  // namespace penstock
