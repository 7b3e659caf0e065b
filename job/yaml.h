// Job files: YAML for one JobSpec.
//
// The keys are the message's field names; nothing is listed twice: the reader walks the message's
// own description, so a new field of job.proto is readable at once.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

// Parses, fills in defaults and validates. `file_name` is for messages.
//
// Errors: InvalidArgument as "FILE:LINE:COLUMN: training.stepz: unknown key; did you mean steps?"
// (also: wrong type with expected and got, duplicate key, two kinds of one choice, not YAML, too
// large or deep).
absl::StatusOr<v1::JobSpec> ParseJobYaml(absl::string_view text, const std::string& file_name);

// Takes along the text of pipeline.schedule_file, which is relative to the job's file; does nothing if none is
// named. Errors: those of reading it, starting with the key.
absl::Status ReadScheduleFile(const std::string& job_path, v1::PipelineSpec& pipeline);

// Reads the file and the schedule that it names, then as above. Errors also: InvalidArgument (over 1 MiB, a
// directory, a pipe), NotFound, PermissionDenied.
absl::StatusOr<v1::JobSpec> ReadJobFile(const std::string& path);

}  // namespace penstock
