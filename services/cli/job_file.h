// JobFile: a job as named on the command line: a YAML file and what the options change in it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "job/yaml/yaml.h"
#include "penstock/v1/job.pb.h"

namespace penstock {

struct JobFileOptions {
  std::string path;
  std::vector<std::string> overrides;    // "training.steps=100"
  std::string method;                    // empty: the file's
  std::string method_flag = "--method";  // that names it
  int64_t steps = 0;                     // 0: the file's
  std::string root;    // where the job's relative paths start; empty: the folder of its file
  std::string data;    // instead of the job's; empty: the job's
  std::string resume;  // empty: the file's
  std::optional<double> race_until_loss;  // of a job with an open method; absent: the file's
  // Leaves a model that was put to a cluster to its coordinator, which has its config.json. Else it is refused.
  bool leaves_put_model = false;
};

// Declares JOB.yaml and --set. Returns JOB.yaml, which is required.
CLI::Option* AddJobOption(CLI::App& app, JobFileOptions& options);
// Declares these, --steps and --data. Returns JOB.yaml.
CLI::Option* AddJobSourceOptions(CLI::App& app, JobFileOptions& options);
// Declares these, --method, --resume and --race-until.
void AddJobFileOptions(CLI::App& app, JobFileOptions& options);

// Reads the file and applies the options, and fills in nothing but the family that the config.json of
// model.hugging_face describes. A path given by --data is made absolute. Settings that
// fit the file's training.steps but not --steps are shortened, with a note (NotesOf).
// Errors: InvalidArgument with file, line and column, or naming the option; NotFound (no such file).
absl::StatusOr<JobDocument> ReadJob(const JobFileOptions& options);

// Reads the job, validates it and fills in defaults; returns the draft of a job whose order is open (job/open_job.h).
// Errors: InvalidArgument with file, line and column, or naming the option; NotFound (no such file).
absl::StatusOr<v1::JobSpec> LoadJob(const JobFileOptions& options);

// Data at `path` by what is there: token ids (`.bin`, or a pattern, or a directory with such files), a directory of pairs or of
// records, else a text.
v1::DataSpec DataAt(const std::string& path);

// Completes the job for a coordinator, which makes the open choices: an open method or order stays open. A job whose model the coordinator
// reads stays as it is.
absl::StatusOr<v1::JobSpec> CompleteSubmission(const JobDocument& document);

// The absolute folder of a job's file, where its relative paths start.
std::string FolderOfJob(const std::string& path);

// Returns notes for the user on how `read` became `complete`, a line each: that keys have other names now, that
// settings were shortened to fit an option, and that the job has lost its prediction.
std::string NotesOf(const JobDocument& read, const v1::JobSpec& complete);

// Sets one key: "training.steps=100", the value written as in YAML. A key of another kind of a choice
// (training.optimizer.sgd.momentum where the job has adamw) replaces the kind. `notes`, if somebody asks, gets a line
// for a key that has another name now.
// Errors: InvalidArgument with the override in front.
absl::Status ApplyOverride(const std::string& override_text, v1::JobSpec& spec,
                           std::vector<std::string>* notes = nullptr);

}  // namespace penstock
