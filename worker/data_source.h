// DataSource: the training text as samples, read by every stage that needs tokens or targets.
//
// No worker feeds another: which bytes sample i is made of is a function of the job's seed and i, so
// the first stage reads the inputs and the last the targets of the same microbatch, each by itself.
//
// A sample is context + 1 consecutive tokens (tokenizer "bytes": every byte is one): the inputs are all
// but the last, the targets all but the first. Training samples start anywhere in the first part of the
// file, sampled uniformly; validation windows are spread evenly over the last part.
//
// The file is read into memory once, so nothing that happens to it later changes a run.
//
// Thread safety: immutable once open.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/files.h"

namespace penstock {

struct TextOptions {
  std::string path;
  std::string sha256;  // of the content; empty accepts any
  double validation_fraction = 0.1;
  int64_t context = 0;             // time steps of a sample
  bool needs_validation = true;    // whether windows will be asked for
  int64_t validation_windows = 0;  // how many there are in all
  uint64_t seed = 0;
  int64_t size_bytes_max = 0;
};

// Inputs of time step t are token t of a sample, targets token t + 1.
enum class TokenRole : uint8_t { kInput = 0, kTarget = 1 };

class DataSource {
 public:
  // Errors: NotFound, PermissionDenied, FailedPrecondition (a directory or pipe), DataLoss (another
  // SHA-256), InvalidArgument (empty, or too short with the bytes needed), OutOfRange (too large).
  static absl::StatusOr<std::unique_ptr<DataSource>> OpenText(Files& files,
                                                              const TextOptions& options);

  // Writes the tokens of the training samples first_sample, first_sample + 1, ... to `tokens`, which is
  // [samples, context]. REQUIRES: its size is a multiple of the context.
  void ReadTraining(int64_t first_sample, TokenRole role, absl::Span<int32_t> tokens) const;
  // Reads validation windows instead. REQUIRES: all are below validation_windows.
  void ReadValidation(int64_t first_window, TokenRole role, absl::Span<int32_t> tokens) const;

  // Where in the file a sample or window starts, in bytes.
  int64_t TrainingOffset(int64_t sample) const;
  int64_t ValidationOffset(int64_t window) const;

 private:
  DataSource(std::string text, const TextOptions& options);
  void CopyTokens(int64_t offset, TokenRole role, int32_t* tokens) const;

  const std::string text_;
  const TextOptions options_;
  const int64_t training_bytes_;  // the first part; the rest is for validation
};

}  // namespace penstock
