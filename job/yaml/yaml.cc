#include "job/yaml/yaml.h"

#include <filesystem>
#include <utility>

#include "base/files.h"
#include "base/status.h"
#include "job/defaults.h"
#include "job/keys/limits.h"
#include "job/prediction.h"
#include "job/yaml/yaml_message.h"

namespace penstock {
namespace {

absl::StatusOr<JobDocument> ParseDocument(absl::string_view text, const std::string& path) {
  JobDocument document = {.path = path};
  PENSTOCK_RETURN_IF_ERROR(
      ReadYamlMessage(text, path, document.spec, document.positions, &document.notes));
  return document;
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

absl::StatusOr<v1::JobSpec> Complete(JobDocument document) {
  FillDefaults(document.spec);
  DropOtherPrediction(document.spec);
  const absl::Status valid = ValidateJob(document.spec);
  if (!valid.ok()) return WithPlace(valid, document.path, document.positions);
  return std::move(document.spec);
}

}  // namespace

absl::StatusOr<v1::JobSpec> ParseJobYaml(absl::string_view text, const std::string& file_name) {
  PENSTOCK_ASSIGN_OR_RETURN(JobDocument document, ParseDocument(text, file_name));
  return Complete(std::move(document));
}

absl::StatusOr<JobDocument> ReadJobDocument(const std::string& path) {
  PENSTOCK_ASSIGN_OR_RETURN(const std::string text, ReadYamlFile(path));
  return ParseDocument(text, path);
}

absl::Status TakeScheduleFile(JobDocument& document) {
  const absl::Status read = ReadScheduleFile(document.path, *document.spec.mutable_pipeline());
  return read.ok() ? read : WithPlace(read, document.path, document.positions);
}

absl::StatusOr<v1::JobSpec> CompleteJob(JobDocument document) {
  PENSTOCK_RETURN_IF_ERROR(TakeScheduleFile(document));
  return Complete(std::move(document));
}

}  // namespace penstock
