// GoogleMock matchers for absl::Status and StatusOr: IsOk(), StatusIs(code, message matcher),
// IsOkAndHolds(value matcher). Debian's abseil has none.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace penstock {

inline constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

inline const absl::Status& GetStatus(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& GetStatus(const absl::StatusOr<T>& result) {
  return result.status();
}

MATCHER(IsOk, negation ? "is an error" : "is OK") {
  *result_listener << GetStatus(arg).ToString();
  return GetStatus(arg).ok();
}

MATCHER_P2(StatusIs, code, message, "has the given code and message") {
  const absl::Status& status = GetStatus(arg);
  *result_listener << status.ToString();
  return status.code() == code &&
         ::testing::ExplainMatchResult(message, std::string(status.message()), result_listener);
}

MATCHER_P(IsOkAndHolds, value, "is OK and holds the given value") {
  if (!arg.ok()) {
    *result_listener << arg.status().ToString();
    return false;
  }
  return ::testing::ExplainMatchResult(value, *arg, result_listener);
}

// For tests that cannot go on after an error: yields the value or fails the test and returns.
#define PENSTOCK_ASSERT_OK_AND_ASSIGN(target, expression)                                      \
  PENSTOCK_ASSERT_OK_AND_ASSIGN_IMPL(PENSTOCK_TEST_CONCAT(penstock_result_, __LINE__), target, \
                                     expression)
#define PENSTOCK_TEST_CONCAT_INNER(a, b) a##b
#define PENSTOCK_TEST_CONCAT(a, b) PENSTOCK_TEST_CONCAT_INNER(a, b)
#define PENSTOCK_ASSERT_OK_AND_ASSIGN_IMPL(result, target, expression) \
  auto result = (expression);                                          \
  ASSERT_TRUE(result.ok()) << result.status().ToString();              \
  target = std::move(result).value()

}  // namespace penstock
