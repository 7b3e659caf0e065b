#include "job/yaml.h"

#include <filesystem>
#include <utility>

#include "base/files.h"
#include "base/status.h"
#include "job/defaults.h"
#include "job/limits.h"
#include "job/yaml_message.h"

namespace penstock {
namespace {

absl::StatusOr<v1::JobSpec> Complete(v1::JobSpec spec, const std::string& file_name,
                                     const YamlPositions& positions) {
  FillDefaults(spec);
  const absl::Status valid = ValidateJob(spec);
  if (!valid.ok()) return WithPlace(valid, file_name, positions);
  return spec;
}

}  // namespace

absl::StatusOr<v1::JobSpec> ParseJobYaml(absl::string_view text, const std::string& file_name) {
  v1::JobSpec spec;
  YamlPositions positions;
  PENSTOCK_RETURN_IF_ERROR(ReadYamlMessage(text, file_name, spec, positions));
  return Complete(std::move(spec), file_name, positions);
}

absl::Status ReadScheduleFile(const std::string& job_path, v1::PipelineSpec& pipeline) {
  if (pipeline.schedule_file().empty()) return absl::OkStatus();
  const std::filesystem::path folder = std::filesystem::path(job_path).parent_path();
  const std::string path = (folder / pipeline.schedule_file()).string();
  const absl::StatusOr<std::string> text = RealFiles().Read(path, kScheduleBytesMax);
  if (!text.ok()) return Annotate(text.status(), "pipeline.schedule_file");
  pipeline.set_schedule(*text);
  return absl::OkStatus();
}

absl::StatusOr<v1::JobSpec> ReadJobFile(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadYamlFile(path));
  v1::JobSpec spec;
  YamlPositions positions;
  PENSTOCK_RETURN_IF_ERROR(ReadYamlMessage(text, path, spec, positions));
  if (const absl::Status read = ReadScheduleFile(path, *spec.mutable_pipeline()); !read.ok()) {
    return WithPlace(read, path, positions);
  }
  return Complete(std::move(spec), path, positions);
}

}  // namespace penstock
