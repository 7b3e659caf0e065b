// JsonPlace: a value of a JSON file together with where it is, so that every error says so ("model.merges[3]").
//
// A view; the JSON must outlive it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace penstock {

class JsonPlace {
 public:
  JsonPlace(const nlohmann::json& value, std::string place)
      : value_(&value), place_(std::move(place)) {}

  const std::string& place() const { return place_; }
  const nlohmann::json& value() const { return *value_; }

  // A key of an object; one that is not there is null, and what is no object has none.
  JsonPlace At(absl::string_view key) const;
  // An entry of a list. REQUIRES: it is one, and has it.
  JsonPlace At(size_t index) const;

  bool is_absent() const { return value_->is_null(); }
  absl::Status Wrong(
      absl::string_view expected) const;              // InvalidArgument: has another kind of value
  absl::Status Refuse(absl::string_view what) const;  // Unimplemented: `what` is not known here

  // Errors: Wrong.
  absl::StatusOr<std::string> Text() const;
  absl::StatusOr<bool> Truth() const;
  absl::StatusOr<int64_t> Whole(int64_t min, int64_t max) const;
  absl::Status IsList() const;

  // That it is an object with the type `type` and no keys but "type" and these. Errors: Wrong, Refuse.
  absl::Status HasOnly(std::initializer_list<absl::string_view> keys) const;

 private:
  const nlohmann::json* value_;
  std::string place_;
};

}  // namespace penstock
