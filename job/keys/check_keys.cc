#include "job/keys/check_keys.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/status.h"
#include "google/protobuf/descriptor.h"
#include "job/keys/check_fields.h"
#include "job/keys/key_options.h"
#include "job/keys/suggest.h"

namespace penstock {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// A number of a message, exact for messages about it.
struct Number {
  double value = 0.0;
  std::string text;
};

// `index`: of the entry of a list, or -1.
Number NumberOf(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& reflection = *message.GetReflection();
  const auto get = [&](auto single, auto repeated) {
    const auto value = index < 0 ? (reflection.*single)(message, &field)
                                 : (reflection.*repeated)(message, &field, index);
    return Number{static_cast<double>(value), absl::StrCat(value)};
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return get(&Reflection::GetFloat, &Reflection::GetRepeatedFloat);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble);
    default:
      PENSTOCK_CHECK(false);
      return {};
  }
}

bool IsNumber(const FieldDescriptor& field) {
  return field.cpp_type() != FieldDescriptor::CPPTYPE_STRING &&
         field.cpp_type() != FieldDescriptor::CPPTYPE_BOOL &&
         field.cpp_type() != FieldDescriptor::CPPTYPE_ENUM &&
         field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE;
}

std::string TextOf(const Message& message, const FieldDescriptor& field) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    return message.GetReflection()->GetString(message, &field);
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
    return message.GetReflection()->GetBool(message, &field) ? "true" : "false";
  }
  return NumberOf(message, field, -1).text;
}

bool HasOpenChoice(const Message& message) {
  const Descriptor& descriptor = *message.GetDescriptor();
  for (int i = 0; i < descriptor.real_oneof_decl_count(); ++i) {
    if (!message.GetReflection()->HasOneof(message, descriptor.oneof_decl(i))) return true;
  }
  return false;
}

class KeyChecker {
 public:
  explicit KeyChecker(const Message& root) : root_(root) {}

  absl::Status CheckMessage(const Message& message, const std::string& prefix) const {
    const Descriptor& descriptor = *message.GetDescriptor();
    for (int i = 0; i < descriptor.field_count(); ++i) {
      const FieldDescriptor& field = *descriptor.field(i);
      if (!field.options().HasExtension(v1::key)) continue;
      PENSTOCK_RETURN_IF_ERROR(CheckField(message, field, prefix + field.name()));
    }
    return absl::OkStatus();
  }

 private:
  // The message and the field that a path from the root names.
  struct Place {
    const Message* message;
    const FieldDescriptor* field;
  };

  Place Find(const std::string& path) const {
    Place place = {&root_, nullptr};
    for (const absl::string_view name : absl::StrSplit(path, '.')) {
      if (place.field != nullptr) {
        place.message = &place.message->GetReflection()->GetMessage(*place.message, place.field);
      }
      place.field = place.message->GetDescriptor()->FindFieldByName(std::string(name));
      PENSTOCK_CHECK(place.field != nullptr);
    }
    return place;
  }

  absl::Status CheckField(const Message& message, const FieldDescriptor& field,
                          const std::string& key) const {
    if (field.is_repeated()) return CheckList(message, field, key);
    if (field.message_type() != nullptr) return CheckSubMessage(message, field, key);
    const v1::KeyOptions& options = OptionsOf(field);
    const bool is_there = message.GetReflection()->HasField(message, &field);
    // Where defaults are not filled in, what would be read instead is checked.
    const bool may_be_absent =
        field.has_presence() || (!options.words().empty() && options.required().empty());
    if (may_be_absent && !is_there && options.default_().empty()) return absl::OkStatus();
    if (IsNumber(field)) PENSTOCK_RETURN_IF_ERROR(CheckNumber(message, field, -1, key));
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      PENSTOCK_RETURN_IF_ERROR(
          CheckText(message.GetReflection()->GetString(message, &field), field, key));
    }
    return is_there ? CheckOnlyWith(message, field, key) : absl::OkStatus();
  }

  absl::Status CheckSubMessage(const Message& message, const FieldDescriptor& field,
                               const std::string& key) const {
    const bool is_there = message.GetReflection()->HasField(message, &field);
    const Message& sub_message = message.GetReflection()->GetMessage(message, &field);
    const std::string& required = OptionsOf(field).required();
    if (!required.empty() && (!is_there || HasOpenChoice(sub_message))) {
      return InvalidKey(key, absl::StrCat("is missing; expected ", required));
    }
    const bool looked_at = is_there || (field.real_containing_oneof() == nullptr &&
                                        HasDefaults(*field.message_type()));
    return looked_at ? CheckMessage(sub_message, key + ".") : absl::OkStatus();
  }

  absl::Status CheckList(const Message& message, const FieldDescriptor& field,
                         const std::string& key) const {
    const int count = message.GetReflection()->FieldSize(message, &field);
    const int64_t count_max = OptionsOf(field).count_max();
    if (count_max > 0 && count > count_max) {
      return InvalidKey(
          key, absl::StrCat("has ", count, " entries; at most ", count_max, " are possible"));
    }
    for (int i = 0; i < count; ++i) {
      if (IsNumber(field)) PENSTOCK_RETURN_IF_ERROR(CheckNumber(message, field, i, key));
      if (!OptionsOf(field).words().empty()) {
        PENSTOCK_RETURN_IF_ERROR(
            CheckText(message.GetReflection()->GetRepeatedString(message, &field, i), field, key));
      }
      if (field.message_type() == nullptr) continue;
      PENSTOCK_RETURN_IF_ERROR(
          CheckMessage(message.GetReflection()->GetRepeatedMessage(message, &field, i),
                       absl::StrCat(key, "[", i, "].")));
    }
    return absl::OkStatus();
  }

  absl::Status CheckNumber(const Message& message, const FieldDescriptor& field, int index,
                           const std::string& key) const {
    // Kernels compute in single precision: what is infinite there is too large, and what is above a limit, but not
    // there, is not above it.
    constexpr double kMax = std::numeric_limits<float>::max();
    const v1::KeyOptions& options = OptionsOf(field);
    const Number number = NumberOf(message, field, index);
    const bool is_real = field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ||
                         field.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT;
    Number largest = {.value = options.has_max() ? options.max() : is_real ? kMax : HUGE_VAL};
    if (!options.max_key().empty()) largest = LargestOf(options.max_key());
    // Comparisons with what is not a number are false.
    const bool good =
        (!options.has_min() || number.value >= options.min()) &&
        (!options.has_above() || static_cast<float>(number.value) > options.above()) &&
        number.value <= largest.value && (!options.has_below() || number.value < options.below());
    if (good) return absl::OkStatus();
    const bool may_be_missing = number.value == 0.0 && index < 0 && !field.has_presence();
    const bool beyond_single = largest.value == kMax && number.value > kMax;
    return InvalidKey(key, absl::StrCat("is ", number.text, may_be_missing ? " or missing" : "",
                                        "; expected ", ExpectedOf(field, largest.text),
                                        beyond_single ? absl::StrCat(" and at most ", kMax) : ""));
  }

  // The largest number of some keys; its text names the key.
  Number LargestOf(const google::protobuf::RepeatedPtrField<std::string>& paths) const {
    Number largest = {.value = -HUGE_VAL};
    for (const std::string& path : paths) {
      const Place place = Find(path);
      const Number number = NumberOf(*place.message, *place.field, -1);
      if (number.value <= largest.value) continue;
      largest = {.value = number.value, .text = absl::StrCat(number.text, " (", path, ")")};
    }
    return largest;
  }

  absl::Status CheckText(const std::string& text, const FieldDescriptor& field,
                         const std::string& key) const {
    const v1::KeyOptions& options = OptionsOf(field);
    if (text.empty() && !options.required().empty()) {
      return InvalidKey(key, absl::StrCat("is missing; expected ", options.required()));
    }
    if (options.words().empty()) return absl::OkStatus();
    const std::vector<std::string> words = WordsOf(field);
    for (const std::string& word : words) {
      if (word == text) return absl::OkStatus();
    }
    const std::string nearest = NearestName(text, words);
    return InvalidKey(
        key, absl::StrCat("is \"", text, "\"; expected ", ExpectedOf(field),
                          nearest.empty() ? "" : absl::StrCat("; did you mean ", nearest, "?")));
  }

  absl::Status CheckOnlyWith(const Message& message, const FieldDescriptor& field,
                             const std::string& key) const {
    const v1::KeyOptions& options = OptionsOf(field);
    if (!options.has_only_with()) return absl::OkStatus();
    const std::string text = TextOf(message, field);
    if (text == options.default_()) return absl::OkStatus();
    const v1::OnlyWith& wanted = options.only_with();
    const Place other = Find(wanted.key());
    const std::string actual = TextOf(*other.message, *other.field);
    if (actual == wanted.is()) return absl::OkStatus();
    return InvalidKey(
        key, absl::StrCat("is ", text, ", which is only for ", wanted.key(), " ", wanted.is(),
                          ", but that is ", actual, ": ", wanted.because(), "; set ", wanted.key(),
                          " to ", wanted.is(), ", or leave this key out"));
  }

  const Message& root_;
};

}  // namespace

absl::Status CheckKeys(const Message& root) { return KeyChecker(root).CheckMessage(root, ""); }

}  // namespace penstock
