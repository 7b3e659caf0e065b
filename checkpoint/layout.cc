#include "checkpoint/layout.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
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

std::string CleanTag(absl::string_view tag) {
  std::string clean(tag);
  for (char& c : clean) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '-';
  }
  return clean;
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
  return absl::StrCat(StepDirectoryName(step), kStaging, CleanTag(tag));
}

std::optional<StagingName> ParseStagingDirectoryName(absl::string_view name) {
  const size_t at = name.find(kStaging);
  if (at == absl::string_view::npos) return std::nullopt;
  const std::optional<int64_t> step = ParseStepDirectoryName(name.substr(0, at));
  const absl::string_view tag = name.substr(at + kStaging.size());
  if (!step.has_value() || tag.empty() || tag != CleanTag(tag)) return std::nullopt;
  return StagingName{.step = *step, .tag = std::string(tag)};
}

bool IsStagedFilePath(absl::string_view path) {
  std::vector<absl::string_view> names = absl::StrSplit(path, '/');
  if (names.size() < 2) return false;
  const absl::string_view file = names.back();
  names.pop_back();
  const bool is_file = !file.empty() && file != "." && file != "..";
  return is_file && ParseStagingDirectoryName(names.back()).has_value() &&
         std::none_of(names.begin(), names.end(), [](absl::string_view name) {
           return ParseStepDirectoryName(name).has_value();
         });
}

std::string StagingTag(absl::string_view job_id, int64_t epoch) {
  return absl::StrCat(job_id, "-", epoch);
}

bool IsTagOfJob(absl::string_view tag, absl::string_view job_id) {
  return absl::ConsumePrefix(&tag, absl::StrCat(CleanTag(job_id), "-")) && AllDigits(tag);
}

std::string SnapshotDirectory(absl::string_view job_id, int64_t epoch, int64_t step) {
  return absl::StrFormat("%s/%019d-%012d", job_id, epoch, step);
}

std::string WeightsFileName(int layer, absl::string_view layer_name) {
  return absl::StrFormat("%s%03d-%s.safetensors", kWeightsPrefix, layer, layer_name);
}

std::string OptimizerFileName(int layer, absl::string_view layer_name) {
  return absl::StrFormat("%s%03d-%s.safetensors", kOptimizerPrefix, layer, layer_name);
}

}  // namespace penstock
