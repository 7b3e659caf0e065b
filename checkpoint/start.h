// Where a job starts: with fresh weights, or from a checkpoint.
//
// The command line asks before it starts anything, the coordinator before it plans, so both answer by
// the same rule.
//
// Thread safety: the function keeps no state. It only reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/files.h"
#include "checkpoint/fingerprint.h"
#include "checkpoint/manifest.h"

namespace penstock {

// checkpoint.resume says that the job goes on from the latest of its own checkpoints.
inline constexpr char kResumeLatest[] = "latest";

struct StartQuery {
  std::string root;         // checkpoint.directory; empty: none
  std::string resume;       // checkpoint.resume: empty, "latest", or a checkpoint's directory
  Fingerprint fingerprint;  // of the job: what the checkpoint must match
  int64_t steps = 0;        // training.steps
};

struct FoundStart {
  std::string checkpoint;  // directory, or empty for fresh weights
  int64_t step = 0;
  int64_t updates = 0;                      // of every stage, up to there
  std::vector<int64_t> layer_updates = {};  // by layer where they differ, as in the manifest
  std::vector<int64_t> extra_cuts;
  std::string method =
      {};  // that trained it, and with which layers of each stage of the model, if that is known
  std::vector<int32_t> stage_layers = {};
  std::vector<std::string> layer_order = {};  // as in the manifest
  std::string schedule = {};                  // as in the manifest
  std::vector<std::string> arithmetics = {};  // as in the manifest
  std::string snapshot =
      {};  // in the memory of workers (SnapshotDirectory), instead of a checkpoint
  std::vector<std::string> notes;  // for the log: newer checkpoints that were passed over
};

// Returns the start at a checkpoint with this manifest, without the place where it is.
FoundStart StartOf(const Manifest& manifest);

// Returns whether checkpoint.resume names a checkpoint by its directory, which may be on another disk than that of the job.
// Without a root, CheckStartNames and FindStart read nothing else of such a job.
bool NamesCheckpoint(const std::string& resume);

// Checks by names alone that a job with these (StartQuery) can start. It reads no checkpoint, so it is quick.
// Errors, all naming the key: NotFound (resume names nothing), FailedPrecondition (a new job must not write among the
// checkpoints of an older one), those of Files.
absl::Status CheckStartNames(Files& files, const std::string& root, const std::string& resume);

// Errors, all naming the key: those of CheckStartNames, NotFound (resume names no checkpoint), DataLoss (there are some, but none
// is whole), InvalidArgument (it is of another model or data, or beyond the job's last step).
absl::StatusOr<FoundStart> FindStart(Files& files, const StartQuery& query);

}  // namespace penstock
