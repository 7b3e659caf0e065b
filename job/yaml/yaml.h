// Job files: YAML for one JobSpec.
//
// The keys are the message's field names: the reader walks the message's own description, so a new
// field of job.proto is readable at once.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "job/yaml/yaml_message.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

// Parses, fills in defaults and validates. `file_name` is for messages.
//
// Errors: InvalidArgument as "FILE:LINE:COLUMN: training.stepz: unknown key; did you mean steps?"
// (also: wrong type with expected and got, duplicate key, two kinds of one choice, not YAML, too
// large or deep).
absl::StatusOr<v1::JobSpec> ParseJobYaml(absl::string_view text, const std::string& file_name);

// A job file as written, without defaults, and the place of each key: in the file or in an option.
struct JobDocument {
  v1::JobSpec spec;
  std::string path;
  YamlPositions positions;
  bool had_prediction = false;  // as it was read, whatever was changed since
  std::vector<std::string>
      notes;  // for the user: old names of keys; what options changed beside their own keys
};
// Errors: those of reading it as YAML; InvalidArgument (over 1 MiB, a directory, a pipe), NotFound,
// PermissionDenied.
absl::StatusOr<JobDocument> ReadJobDocument(const std::string& path);
// Takes along the text of pipeline.schedule_file, and does nothing else of CompleteJob: for a job whose model only the coordinator
// can read. Errors: those of reading the schedule, with its place.
absl::Status TakeScheduleFile(JobDocument& document);
// Takes along the text of pipeline.schedule_file, which is relative to the job's file, fills in defaults, leaves out a
// prediction that is of another job (job/prediction.h), and validates. Errors: as ParseJobYaml; those of reading the schedule, starting with the key.
absl::StatusOr<v1::JobSpec> CompleteJob(JobDocument document);

}  // namespace penstock
