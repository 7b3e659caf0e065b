#include "job/hugging_face/config_keys.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace penstock {
namespace {

using Json = nlohmann::json;

constexpr size_t kShownBytesMax = 64;

// What comes from a file goes into messages shortened, and with bytes that are no text replaced.
std::string Shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kShownBytesMax) text = absl::StrCat(text.substr(0, kShownBytesMax), "...");
  return text;
}

std::optional<int64_t> WholeOf(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  return std::nullopt;
}

}  // namespace

const Json* ConfigKeys::Find(absl::string_view key) const {
  const auto found = object_.find(std::string(key));
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigKeys::is_null(absl::string_view key) const {
  const auto found = object_.find(std::string(key));
  return found != object_.end() && found->is_null();
}

void ConfigKeys::Refuse(absl::string_view key, absl::string_view reason) {
  const Json* value = Find(key);
  status_.Update(absl::InvalidArgumentError(absl::StrCat(
      prefix_, key, ": is ", value == nullptr ? "missing" : Shown(*value), "; ", reason)));
}

void ConfigKeys::Expected(absl::string_view key, absl::string_view what) {
  Refuse(key, absl::StrCat("expected ", what));
}

int64_t ConfigKeys::Integer(absl::string_view key, std::optional<int64_t> otherwise) {
  const Json* value = Find(key);
  if (value == nullptr && otherwise.has_value()) return *otherwise;
  const std::optional<int64_t> number = value == nullptr ? std::nullopt : WholeOf(*value);
  if (!number.has_value()) Expected(key, "a whole number");
  return number.value_or(0);
}

double ConfigKeys::Number(absl::string_view key, double otherwise) {
  const Json* value = Find(key);
  if (value == nullptr) return otherwise;
  if (value->is_number()) return value->get<double>();
  Expected(key, "a number");
  return otherwise;
}

bool ConfigKeys::Flag(absl::string_view key, bool otherwise) {
  const Json* value = Find(key);
  if (value == nullptr) return otherwise;
  if (value->is_boolean()) return value->get<bool>();
  Expected(key, "true or false");
  return otherwise;
}

std::string ConfigKeys::Word(absl::string_view key, absl::string_view otherwise) {
  const Json* value = Find(key);
  if (value == nullptr) return std::string(otherwise);
  if (value->is_string()) return value->get<std::string>();
  Expected(key, "text");
  return std::string(otherwise);
}

std::vector<std::string> ConfigKeys::Words(absl::string_view key) {
  const Json* value = Find(key);
  std::vector<std::string> words;
  if (value == nullptr) return words;
  const bool fits =
      value->is_array() && std::all_of(value->begin(), value->end(),
                                       [](const Json& entry) { return entry.is_string(); });
  if (!fits) {
    Expected(key, "a list of texts");
    return words;
  }
  for (const Json& entry : *value) words.push_back(entry.get<std::string>());
  return words;
}

const Json* ConfigKeys::Object(absl::string_view key) {
  const Json* value = Find(key);
  if (value == nullptr || value->is_object()) return value;
  Expected(key, "an object");
  return nullptr;
}

void ConfigKeys::ExpectFlag(absl::string_view key, bool expected, bool otherwise) {
  if (Flag(key, otherwise) != expected) Expected(key, expected ? "true" : "false");
}

void ConfigKeys::ExpectNumber(absl::string_view key, double expected, double otherwise) {
  if (Number(key, otherwise) != expected) Expected(key, Json(expected).dump());
}

void ConfigKeys::ExpectWord(absl::string_view key, const std::vector<std::string>& expected) {
  const std::string word = Word(key, expected.front());
  if (std::find(expected.begin(), expected.end(), word) != expected.end()) return;
  Expected(key, absl::StrCat("\"", absl::StrJoin(expected, "\" or \""), "\""));
}

void ConfigKeys::ExpectAbsent(absl::string_view key, absl::string_view reason) {
  if (has(key)) Refuse(key, reason);
}

}  // namespace penstock
