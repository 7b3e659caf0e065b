#include "job/yaml.h"

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/status.h"
#include "job/defaults.h"
#include "job/yaml_message.h"

namespace penstock {
namespace {

// Puts the place of the key that `error` is about in front of it: messages of the validation start
// with "KEY: ". For a key that is not there it is the place of the mapping that lacks it.
absl::Status WithPlace(const absl::Status& error, const std::string& file_name,
                       const YamlPositions& positions) {
  const std::string message(error.message());
  std::string key = message.substr(0, message.find(": "));
  while (!key.empty()) {
    const auto found = positions.find(key);
    if (found != positions.end()) {
      return Annotate(error, found->second);
    }
    const size_t dot = key.rfind('.');
    key = dot == std::string::npos ? "" : key.substr(0, dot);
  }
  return Annotate(error, file_name);
}

}  // namespace

absl::StatusOr<v1::JobSpec> ParseJobYaml(absl::string_view text, const std::string& file_name) {
  v1::JobSpec spec;
  YamlPositions positions;
  PENSTOCK_RETURN_IF_ERROR(ReadYamlMessage(text, file_name, spec, positions));
  FillDefaults(spec);
  const absl::Status valid = ValidateJob(spec);
  if (!valid.ok()) {
    return WithPlace(valid, file_name, positions);
  }
  return spec;
}

absl::StatusOr<v1::JobSpec> ReadJobFile(const std::string& path) {
  const absl::StatusOr<std::string> text = RealFiles().Read(path, kYamlBytesMax);
  if (absl::IsOutOfRange(text.status()) || absl::IsFailedPrecondition(text.status())) {
    return absl::InvalidArgumentError(text.status().message());
  }
  PENSTOCK_RETURN_IF_ERROR(text.status());
  return ParseJobYaml(*text, path);
}

}  // namespace penstock
