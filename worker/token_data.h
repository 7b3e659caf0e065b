// TextData: a text as samples of tokens and targets.
//
// A sample is context + 1 consecutive tokens (tokenizer "bytes": every byte is one): the inputs are all
// but the last, the targets all but the first. Training samples are of the first part of the file, validation
// windows of the last.
//
//   random      training samples start anywhere, sampled uniformly; validation windows are spread evenly
//   contiguous  both parts are read as parallel streams (data/text_streams.h)
//
// To evaluate a model, windows are those of a whole part instead, one after the other without gaps or in streams.
//
// The file is read into memory once, so nothing that happens to it later changes a run.
//
// Thread safety: immutable once open.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/files.h"
#include "data/text_streams.h"
#include "worker/data_source.h"

namespace penstock {

struct TextOptions {
  std::string path;
  std::string sha256;  // of the content; empty accepts any
  double validation_fraction = 0.1;
  int64_t context = 0;             // time steps of a sample
  bool needs_validation = true;    // whether windows will be asked for
  int64_t validation_windows = 0;  // how many there are in all, unless a part is evaluated
  int64_t streams = 0;             // in contiguous order: the samples of a step; 0: random order
  std::optional<DataPart> evaluated = std::nullopt;
  uint64_t seed = 0;
  int64_t size_bytes_max = 0;
};

class TextData : public DataSource {
 public:
  // The ports of a model that this fills, both i32 [context]: time step t has token t, and token t + 1.
  static constexpr int kTokens = 0;
  static constexpr int kTargets = 1;

  // Errors: NotFound, PermissionDenied, FailedPrecondition (a directory or pipe), DataLoss (another
  // SHA-256), InvalidArgument (empty, or too short with the bytes needed), OutOfRange (too large).
  static absl::StatusOr<std::unique_ptr<TextData>> Open(Files& files, const TextOptions& options);

  absl::Status Read(Split split, int64_t first_sample, int port,
                    absl::Span<std::byte> values) const override;
  bool StartsAfresh(Split split, int64_t sample) const override;
  int64_t validation_samples() const override { return windows_; }

  // Where in the file a sample or window starts, in bytes.
  int64_t TrainingOffset(int64_t sample) const;
  int64_t ValidationOffset(int64_t window) const;

 private:
  TextData(std::string text, const TextOptions& options);
  void CopyTokens(int64_t offset, int32_t* tokens) const;

  const std::string text_;
  const TextOptions options_;
  const int64_t training_bytes_;    // the first part; the rest is for validation
  const int64_t validation_first_;  // where windows begin
  const int64_t validation_bytes_;
  const std::optional<TextStreams> training_streams_, validation_streams_;  // in contiguous order
  const int64_t windows_;
};

}  // namespace penstock
