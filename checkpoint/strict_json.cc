#include "checkpoint/strict_json.h"

#include <exception>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace penstock {
namespace {

using Json = nlohmann::json;

// Builds the value from the parser's events; returning false stops the parser.
class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return Put(nullptr); }
  bool boolean(bool value) override { return Put(value); }
  bool number_integer(number_integer_t value) override { return Put(value); }
  bool number_unsigned(number_unsigned_t value) override { return Put(value); }
  bool number_float(number_float_t value, const string_t&) override { return Put(value); }
  bool string(string_t& value) override { return Put(std::move(value)); }
  bool binary(binary_t&) override { return Refuse("binary values are not JSON"); }
  bool start_object(size_t) override { return Open(Json::object()); }
  bool start_array(size_t) override { return Open(Json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }

  bool key(string_t& name) override {
    if (open_.back()->contains(name))
      return Refuse(absl::StrCat("key \"", name, "\" is there twice"));
    key_ = std::move(name);
    return true;
  }

  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    return Refuse(absl::StrCat("not JSON at byte ", position));
  }

  absl::StatusOr<Json> Take() {
    if (!error_.empty()) return absl::InvalidArgumentError(error_);
    return std::move(root_);
  }
  bool Refuse(std::string reason) {
    if (error_.empty()) error_ = std::move(reason);
    return false;
  }

 private:
  // Where the next value goes: the root, an array's end, or an object's key.
  Json* Place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) return &parent.emplace_back(std::move(value));
    return &(parent[key_] = std::move(value));
  }

  bool Put(Json value) {
    if (++values_ > limits_.values_max) {
      return Refuse(absl::StrCat("more than ", limits_.values_max, " values"));
    }
    Place(std::move(value));
    return true;
  }

  bool Open(Json container) {
    if (static_cast<int>(open_.size()) >= limits_.depth_max) {
      return Refuse(absl::StrCat("nested more than ", limits_.depth_max, " deep"));
    }
    if (++values_ > limits_.values_max) {
      return Refuse(absl::StrCat("more than ", limits_.values_max, " values"));
    }
    // Parents do not grow while a child is open, so the pointer stays valid.
    open_.push_back(Place(std::move(container)));
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  Json root_;
  std::vector<Json*> open_;
  std::string key_;
  int64_t values_ = 0;
  std::string error_;
};

template <typename Integer>
Integer WholeNumberOf(const Json& value) {
  constexpr auto kMin = int64_t{std::numeric_limits<Integer>::min()};
  constexpr auto kMax = int64_t{std::numeric_limits<Integer>::max()};
  // Numbers beyond int64_t are unsigned ones.
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() <= static_cast<uint64_t>(kMax)
                        : value.is_number_integer() && value.get<int64_t>() >= kMin &&
                              value.get<int64_t>() <= kMax;
  if (fits) return static_cast<Integer>(value.get<int64_t>());
  throw std::out_of_range(
      absl::StrCat(value.dump(), " is no whole number from ", kMin, " to ", kMax));
}

template <typename Integer>
std::vector<Integer> WholeNumbersOf(const Json& list) {
  if (!list.is_array()) throw std::out_of_range("expected a list of whole numbers");
  std::vector<Integer> numbers;
  numbers.reserve(list.size());
  for (const Json& element : list) numbers.push_back(WholeNumberOf<Integer>(element));
  return numbers;
}

}  // namespace

int64_t WholeNumber(const Json& value) { return WholeNumberOf<int64_t>(value); }
int32_t SmallWholeNumber(const Json& value) { return WholeNumberOf<int32_t>(value); }
std::vector<int64_t> WholeNumbers(const Json& list) { return WholeNumbersOf<int64_t>(list); }
std::vector<int32_t> SmallWholeNumbers(const Json& list) { return WholeNumbersOf<int32_t>(list); }

absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text, const JsonLimits& limits) {
  Builder builder(limits);
  try {
    Json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const std::exception& error) {
    builder.Refuse(absl::StrCat("not JSON: ", error.what()));
  }
  return builder.Take();
}

}  // namespace penstock
