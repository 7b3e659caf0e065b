// ConfigKeys: the keys of a config.json, read one after the other. The first error is kept, so that calls need not be
// checked one by one.
//
// A key that is null counts as absent. Thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace penstock {

class ConfigKeys {
 public:
  // `prefix`: of the keys in messages. REQUIRES: `object` is one and outlives this.
  explicit ConfigKeys(const nlohmann::json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  // Errors: InvalidArgument "hidden_act: is "relu"; expected "silu"".
  const absl::Status& status() const { return status_; }

  bool has(absl::string_view key) const { return Find(key) != nullptr; }
  // Whether the key is there, as null.
  bool is_null(absl::string_view key) const;
  // The value of a key, or `otherwise` where it is absent; without one it has to be there.
  int64_t Integer(absl::string_view key, std::optional<int64_t> otherwise = std::nullopt);
  double Number(absl::string_view key, double otherwise);
  bool Flag(absl::string_view key, bool otherwise);
  std::string Word(absl::string_view key, absl::string_view otherwise);
  // The texts of a list; none where it is absent.
  std::vector<std::string> Words(absl::string_view key);
  // Null where it is absent or no object.
  const nlohmann::json* Object(absl::string_view key);

  // Keys that have to be as they are here, or absent, which counts as `otherwise`.
  void ExpectFlag(absl::string_view key, bool expected, bool otherwise);
  void ExpectNumber(absl::string_view key, double expected, double otherwise);
  void ExpectWord(absl::string_view key, const std::vector<std::string>& expected);
  void ExpectAbsent(absl::string_view key, absl::string_view reason);
  // Notes the error "KEY: is VALUE; REASON".
  void Refuse(absl::string_view key, absl::string_view reason);
  // Notes another reader's error.
  void Take(const absl::Status& status) { status_.Update(status); }

 private:
  const nlohmann::json* Find(absl::string_view key) const;
  void Expected(absl::string_view key, absl::string_view what);

  const nlohmann::json& object_;
  const std::string prefix_;
  absl::Status status_;
};

}  // namespace penstock
