#include "checkpoint/layout.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace penstock {
namespace {

constexpr absl::string_view kPrefix = "step-";
constexpr absl::string_view kStaging = ".tmp-";
constexpr int kDigits = 12;

bool AllDigits(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c));
  });
}

}  // namespace

std::string StepDirectoryName(int64_t step) { return absl::StrFormat("step-%012d", step); }

std::optional<int64_t> ParseStepDirectoryName(absl::string_view name) {
  int64_t step = 0;
  if (!absl::ConsumePrefix(&name, kPrefix) || name.size() < kDigits || !AllDigits(name) ||
      !absl::SimpleAtoi(name, &step)) {
    return std::nullopt;
  }
  return step;
}

std::string StagingDirectoryName(int64_t step, absl::string_view tag) {
  std::string clean(tag);
  for (char& c : clean) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '-';
  }
  return absl::StrCat(StepDirectoryName(step), kStaging, clean);
}

bool IsStagingDirectoryName(absl::string_view name) {
  return absl::StartsWith(name, kPrefix) && absl::StrContains(name, kStaging);
}

std::string WeightsFileName(int layer, absl::string_view layer_name) {
  return absl::StrFormat("layer-%03d-%s.safetensors", layer, layer_name);
}

std::string OptimizerFileName(int layer, absl::string_view layer_name) {
  return absl::StrFormat("optim-%03d-%s.safetensors", layer, layer_name);
}

}  // namespace penstock
