#include "job/yaml.h"

#include "base/status.h"
#include "job/defaults.h"
#include "job/yaml_message.h"

namespace penstock {

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
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadYamlFile(path));
  return ParseJobYaml(text, path);
}

}  // namespace penstock
