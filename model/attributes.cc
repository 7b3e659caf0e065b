#include "model/attributes.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr absl::string_view kKindNames[] = {"true or false", "a whole number", "a number",
                                            "a word",        "whole numbers",  "numbers"};

const AttributeSpec* FindSpec(absl::Span<const AttributeSpec> specs, absl::string_view name) {
  const auto found = std::find_if(specs.begin(), specs.end(),
                                  [&](const AttributeSpec& spec) { return spec.name == name; });
  return found == specs.end() ? nullptr : &*found;
}

absl::Status Wrong(const AttributeSpec& spec, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(spec.name, ": ", what));
}

// The value as the op wants it, or none if it cannot be read so.
std::optional<AttributeValue> Convert(const AttributeSpec& spec, const AttributeValue& value) {
  const int64_t* integer = std::get_if<int64_t>(&value);
  if (spec.kind == AttributeKind::kNumber && integer != nullptr) {
    return static_cast<double>(*integer);
  }
  if (spec.kind == AttributeKind::kIntegers && integer != nullptr) {
    return std::vector<int64_t>(std::max(spec.sizes, 1), *integer);
  }
  if (spec.kind == AttributeKind::kNumbers) {
    const size_t size = std::max(spec.sizes, 1);
    if (integer != nullptr) return std::vector<double>(size, static_cast<double>(*integer));
    if (const auto* number = std::get_if<double>(&value)) return std::vector<double>(size, *number);
    if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
      return std::vector<double>(integers->begin(), integers->end());
    }
  }
  if (value.index() != static_cast<size_t>(spec.kind)) return std::nullopt;
  return value;
}

absl::Status CheckRange(const AttributeSpec& spec, double value) {
  if (value >= spec.min && value <= spec.max) return absl::OkStatus();
  const bool is_whole =
      spec.kind == AttributeKind::kInteger || spec.kind == AttributeKind::kIntegers;
  if (is_whole) {
    return Wrong(spec, absl::StrFormat("is %.0f; expected a whole number from %.0f to %.0f", value,
                                       spec.min, spec.max));
  }
  return Wrong(
      spec, absl::StrFormat("is %g; expected a number from %g to %g", value, spec.min, spec.max));
}

template <typename T>
absl::Status CheckList(const AttributeSpec& spec, const std::vector<T>& values) {
  if (spec.sizes > 0 && static_cast<int>(values.size()) != spec.sizes) {
    return Wrong(spec, absl::StrFormat("has %d numbers; expected one, or %d of them", values.size(),
                                       spec.sizes));
  }
  for (const T each : values) {
    PENSTOCK_RETURN_IF_ERROR(CheckRange(spec, static_cast<double>(each)));
  }
  return absl::OkStatus();
}

absl::Status CheckValue(const AttributeSpec& spec, const AttributeValue& value) {
  switch (spec.kind) {
    case AttributeKind::kFlag:
      return absl::OkStatus();
    case AttributeKind::kInteger:
      return CheckRange(spec, static_cast<double>(std::get<int64_t>(value)));
    case AttributeKind::kNumber:
      return CheckRange(spec, std::get<double>(value));
    case AttributeKind::kWord:
      if (std::find(spec.words.begin(), spec.words.end(), std::get<std::string>(value)) !=
          spec.words.end()) {
        return absl::OkStatus();
      }
      return Wrong(spec, absl::StrCat("is \"", std::get<std::string>(value), "\"; expected one of ",
                                      absl::StrJoin(spec.words, ", ")));
    case AttributeKind::kIntegers:
      return CheckList(spec, std::get<std::vector<int64_t>>(value));
    case AttributeKind::kNumbers:
      break;
  }
  return CheckList(spec, std::get<std::vector<double>>(value));
}

// Of a default, "0.5" or "[1, 2]".
template <typename T>
std::vector<T> DefaultList(const AttributeSpec& spec, bool (*parse)(absl::string_view, T*)) {
  std::vector<T> values;
  for (absl::string_view text :
       absl::StrSplit(absl::StripSuffix(absl::StripPrefix(spec.otherwise, "["), "]"), ',',
                      absl::SkipWhitespace())) {
    PENSTOCK_CHECK(parse(text, &values.emplace_back()));
  }
  if (values.size() == 1) values.resize(std::max(spec.sizes, 1), values.front());
  return values;
}

// The default of a spec, whose text is ours.
AttributeValue Default(const AttributeSpec& spec) {
  int64_t integer = 0;
  double number = 0.0;
  switch (spec.kind) {
    case AttributeKind::kFlag:
      return spec.otherwise == "true";
    case AttributeKind::kInteger:
      PENSTOCK_CHECK(absl::SimpleAtoi(spec.otherwise, &integer));
      return integer;
    case AttributeKind::kNumber:
      PENSTOCK_CHECK(absl::SimpleAtod(spec.otherwise, &number));
      return number;
    case AttributeKind::kWord:
      return std::string(spec.otherwise);
    case AttributeKind::kIntegers:
      return DefaultList<int64_t>(
          spec, [](absl::string_view text, int64_t* to) { return absl::SimpleAtoi(text, to); });
    case AttributeKind::kNumbers:
      break;
  }
  return DefaultList<double>(spec, absl::SimpleAtod);
}

template <typename T>
const T& Get(const Attributes& attributes, absl::string_view name) {
  const AttributeValue* value = attributes.Find(name);
  PENSTOCK_CHECK(value != nullptr && std::holds_alternative<T>(*value));
  return std::get<T>(*value);
}

}  // namespace

bool Attributes::flag(absl::string_view name) const { return Get<bool>(*this, name); }
int64_t Attributes::integer(absl::string_view name) const { return Get<int64_t>(*this, name); }
double Attributes::number(absl::string_view name) const { return Get<double>(*this, name); }
const std::string& Attributes::word(absl::string_view name) const {
  return Get<std::string>(*this, name);
}
const std::vector<int64_t>& Attributes::integers(absl::string_view name) const {
  return Get<std::vector<int64_t>>(*this, name);
}

const std::vector<double>& Attributes::numbers(absl::string_view name) const {
  return Get<std::vector<double>>(*this, name);
}

const AttributeValue* Attributes::Find(absl::string_view name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.first == name; });
  return found == entries_.end() ? nullptr : &found->second;
}

void Attributes::Set(absl::string_view name, AttributeValue value) {
  for (Entry& entry : entries_) {
    if (entry.first != name) continue;
    entry.second = std::move(value);
    return;
  }
  entries_.emplace_back(std::string(name), std::move(value));
}

std::string ToString(const AttributeValue& value) {
  struct Writer {
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(int64_t integer) const { return absl::StrCat(integer); }
    std::string operator()(double number) const { return absl::StrFormat("%g", number); }
    std::string operator()(const std::string& word) const { return word; }
    std::string operator()(const std::vector<int64_t>& values) const {
      return absl::StrCat("[", absl::StrJoin(values, ", "), "]");
    }
    std::string operator()(const std::vector<double>& values) const {
      return absl::StrCat("[", absl::StrJoin(values, ", ", Append), "]");
    }
    static void Append(std::string* out, double number) {
      absl::StrAppendFormat(out, "%g", number);
    }
  };
  return std::visit(Writer(), value);
}

bool IsDefault(const AttributeSpec& spec, const AttributeValue& value) {
  return !spec.otherwise.empty() && spec.otherwise != kNoDefault && value == Default(spec);
}

absl::StatusOr<Attributes> Complete(absl::Span<const AttributeSpec> specs,
                                    const Attributes& given) {
  for (const auto& [name, value] : given.entries()) {
    if (FindSpec(specs, name) != nullptr) continue;
    std::vector<absl::string_view> known;
    known.reserve(specs.size());
    for (const AttributeSpec& spec : specs) known.push_back(spec.name);
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": unknown; expected ", known.empty() ? "nothing" : absl::StrJoin(known, ", ")));
  }
  Attributes complete;
  for (const AttributeSpec& spec : specs) {
    const AttributeValue* value = given.Find(spec.name);
    if (value == nullptr) {
      if (spec.otherwise.empty()) {
        return Wrong(
            spec, absl::StrCat("missing; expected ", kKindNames[static_cast<int>(spec.kind)], " (",
                               spec.help, ")"));
      }
      if (spec.otherwise != kNoDefault) complete.Set(spec.name, Default(spec));
      continue;
    }
    std::optional<AttributeValue> converted = Convert(spec, *value);
    if (!converted.has_value()) {
      return Wrong(spec, absl::StrCat("is ", ToString(*value), "; expected ",
                                      kKindNames[static_cast<int>(spec.kind)]));
    }
    PENSTOCK_RETURN_IF_ERROR(CheckValue(spec, *converted));
    complete.Set(spec.name, *std::move(converted));
  }
  return complete;
}

}  // namespace penstock
