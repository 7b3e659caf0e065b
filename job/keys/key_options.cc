#include "job/keys/key_options.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "penstock/v1/job.pb.h"
#include "schedule/catalog/catalog.h"

namespace penstock {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

bool IsReal(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_FLOAT;
}

// A limit as it is written: whole numbers without an exponent, unless they are too long to read.
std::string Limit(const FieldDescriptor& field, double limit) {
  constexpr double kDigitsMax = 1e12;
  return IsReal(field) || limit > kDigitsMax ? absl::StrCat(limit)
                                             : absl::StrCat(static_cast<int64_t>(limit));
}

std::string ExpectedNumber(const FieldDescriptor& field, absl::string_view largest) {
  const v1::KeyOptions& options = OptionsOf(field);
  std::string text = IsReal(field) ? "a number" : "a whole number";
  std::string most;
  if (options.has_max()) {
    most = Limit(field, options.max());
  } else if (!options.max_key().empty()) {
    most = largest.empty() ? OneOf({options.max_key().begin(), options.max_key().end()})
                           : std::string(largest);
  }
  if (!IsReal(field) && options.has_min() && !most.empty()) {
    return absl::StrCat(text, " from ", Limit(field, options.min()), " to ", most);
  }
  std::vector<std::string> limits;
  if (options.has_min()) limits.push_back("of at least " + Limit(field, options.min()));
  if (options.has_above()) limits.push_back("above " + Limit(field, options.above()));
  if (!most.empty()) limits.push_back("at most " + most);
  if (options.has_below()) limits.push_back("below " + Limit(field, options.below()));
  return absl::StrCat(text, limits.empty() ? "" : " ", absl::StrJoin(limits, " and "));
}

void AppendKeys(const Descriptor& message, const std::string& prefix, std::vector<JobKey>& keys) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (!field.options().HasExtension(v1::key)) continue;
    keys.push_back({.path = prefix + field.name(), .field = &field});
    if (field.message_type() != nullptr && !field.is_repeated()) {
      AppendKeys(*field.message_type(), prefix + field.name() + ".", keys);
    }
  }
}

// `path` with each part that names a field replaced by what `rename` says.
template <typename Rename>
std::string RenameParts(absl::string_view path, Rename rename) {
  std::vector<std::string> names;
  const Descriptor* message = v1::JobSpec::descriptor();
  for (const absl::string_view name : absl::StrSplit(path, '.')) {
    const FieldDescriptor* field = message == nullptr ? nullptr : FieldNamed(*message, name);
    names.push_back(field == nullptr ? std::string(name) : rename(*field, name));
    message = field == nullptr ? nullptr : field->message_type();
  }
  return absl::StrJoin(names, ".");
}

}  // namespace

const v1::KeyOptions& OptionsOf(const FieldDescriptor& field) {
  return field.options().GetExtension(v1::key);
}

std::vector<std::string> WordsOf(const FieldDescriptor& field) {
  const v1::KeyOptions& options = OptionsOf(field);
  std::vector<std::string> words(options.words().begin(), options.words().end());
  if (options.catalog() == v1::CATALOG_METHODS) {
    for (const Method& method : Methods()) words.emplace_back(method.name);
    words.emplace_back(SearchedMethod().name);
  } else if (options.catalog() == v1::CATALOG_WEIGHTS) {
    for (const Weights* weights : kAllWeights) words.emplace_back(weights->name);
  }
  return words;
}

std::string OneOf(const std::vector<std::string>& words) {
  if (words.size() < 2) return absl::StrJoin(words, "");
  return absl::StrCat(absl::StrJoin(words.begin(), words.end() - 1, ", "), " or ", words.back());
}

std::string ExpectedOf(const FieldDescriptor& field, absl::string_view largest) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "keys and values";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_STRING: {
      const auto& words = OptionsOf(field).words();
      return words.empty() ? "text" : OneOf({words.begin(), words.end()});
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      std::vector<std::string> names;
      names.reserve(field.enum_type()->value_count());
      for (int i = 0; i < field.enum_type()->value_count(); ++i) {
        names.push_back(field.enum_type()->value(i)->name());
      }
      return absl::StrCat("one of ", absl::StrJoin(names, ", "));
    }
    default:
      return ExpectedNumber(field, largest);
  }
}

const FieldDescriptor* FieldNamed(const Descriptor& message, absl::string_view name) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (absl::string_view(field.name()) == name) return &field;
    if (!name.empty() && OptionsOf(field).short_form() == name) return &field;
    for (const std::string& old_name : OptionsOf(field).old_names()) {
      if (old_name == name) return &field;
    }
  }
  return nullptr;
}

std::string PresentJobKey(absl::string_view path) {
  return RenameParts(path, [](const FieldDescriptor& field, absl::string_view name) {
    return OptionsOf(field).short_form() == name ? std::string(name) : field.name();
  });
}

std::string FieldOfJobKey(absl::string_view path) {
  return RenameParts(path,
                     [](const FieldDescriptor& field, absl::string_view) { return field.name(); });
}

bool HasDefaults(const Descriptor& message) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    if (field.is_repeated() || field.real_containing_oneof() != nullptr) continue;
    if (!OptionsOf(field).default_().empty()) return true;
    if (field.message_type() != nullptr && HasDefaults(*field.message_type())) return true;
  }
  return false;
}

const std::vector<JobKey>& JobKeys() {
  static const auto* const keys = [] {
    auto* const made = new std::vector<JobKey>;
    AppendKeys(*v1::JobSpec::descriptor(), "", *made);
    return made;
  }();
  return *keys;
}

int64_t MaxOfJobKey(absl::string_view path) {
  for (const JobKey& key : JobKeys()) {
    if (key.path != path) continue;
    PENSTOCK_CHECK(OptionsOf(*key.field).has_max());
    return static_cast<int64_t>(OptionsOf(*key.field).max());
  }
  PENSTOCK_CHECK(false);
  return 0;
}

}  // namespace penstock
