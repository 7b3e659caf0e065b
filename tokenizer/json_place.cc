#include "tokenizer/json_place.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/utf8.h"

namespace penstock {
namespace {

constexpr size_t kShownBytesMax = 80;

const nlohmann::json& Null() {
  static const nlohmann::json null;
  return null;
}

std::string Shown(const nlohmann::json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return absl::StrCat("a list of ", value.size());
  return CleanUtf8(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                   kShownBytesMax);
}

}  // namespace

JsonPlace JsonPlace::At(absl::string_view key) const {
  std::string place = place_.empty() ? std::string(key) : absl::StrCat(place_, ".", key);
  if (!value_->is_object()) return JsonPlace(Null(), std::move(place));
  const auto found = value_->find(std::string(key));
  return JsonPlace(found == value_->end() ? Null() : *found, std::move(place));
}

JsonPlace JsonPlace::At(size_t index) const {
  return JsonPlace((*value_)[index], absl::StrCat(place_, "[", index, "]"));
}

absl::Status JsonPlace::Wrong(absl::string_view expected) const {
  return absl::InvalidArgumentError(absl::StrCat(
      place_.empty() ? "the file" : place_, ": expected ", expected, ", got ", Shown(*value_)));
}

absl::Status JsonPlace::Refuse(absl::string_view what) const {
  return absl::UnimplementedError(
      absl::StrCat(place_, ": ", what,
                   " is not implemented, and without it texts would get other tokens; "
                   "tokenizer/README.md lists what is"));
}

absl::StatusOr<std::string> JsonPlace::Text() const {
  if (!value_->is_string()) return Wrong("a text");
  return value_->get<std::string>();
}

absl::StatusOr<bool> JsonPlace::Truth() const {
  if (!value_->is_boolean()) return Wrong("true or false");
  return value_->get<bool>();
}

absl::StatusOr<int64_t> JsonPlace::Whole(int64_t min, int64_t max) const {
  const bool fits = value_->is_number_integer() &&
                    (!value_->is_number_unsigned() ||
                     value_->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)) &&
                    value_->get<int64_t>() >= min && value_->get<int64_t>() <= max;
  if (!fits) return Wrong(absl::StrCat("a whole number from ", min, " to ", max));
  return value_->get<int64_t>();
}

absl::Status JsonPlace::IsList() const {
  return value_->is_array() ? absl::OkStatus() : Wrong("a list");
}

absl::Status JsonPlace::HasOnly(std::initializer_list<absl::string_view> keys) const {
  if (!value_->is_object()) return Wrong("an object");
  for (const auto& [key, value] : value_->items()) {
    if (key != "type" && std::find(keys.begin(), keys.end(), key) == keys.end()) {
      return At(key).Refuse("the key");
    }
  }
  return absl::OkStatus();
}

}  // namespace penstock
