// TextGenerator: continues a text with a trained byte-level model, in this process.
//
// The model sees the last `context` bytes. Every new byte costs one forward pass over them: simple, and
// quick enough for samples.
//
// Thread-compatible.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "compute/backend.h"
#include "compute/stage.h"
#include "inference/checkpoint_model.h"
#include "inference/sampler.h"

namespace penstock {

// Checks that a TextGenerator can be made of the model. Errors: Unimplemented (not a byte-level model).
absl::Status CheckGeneratesText(const ModelGraph& model);

class TextGenerator {
 public:
  // Loads the weights. Errors: those of CheckGeneratesText; DataLoss (a damaged file), ResourceExhausted.
  static absl::StatusOr<TextGenerator> Create(Files& files, const CheckpointModel& model);

  // The byte that follows `text`, chosen by `sampler`. REQUIRES: `text` is not empty.
  absl::StatusOr<char> Next(const std::string& text, Sampler& sampler);

 private:
  TextGenerator(std::unique_ptr<Backend> backend, int64_t context)
      : backend_(std::move(backend)), context_(context) {}

  std::unique_ptr<Backend> backend_;
  int64_t context_;
  std::unique_ptr<Stage> stage_;  // after the back-end it lives on
};

}  // namespace penstock
