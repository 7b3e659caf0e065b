// DataSource: what a model's ports are filled with, read by every stage that needs it.
//
// No worker feeds another: what sample i is made of is a function of the job's seed and i, so the first stage reads the
// inputs and the last the targets of the same microbatch, each by itself.
//
// Thread safety: immutable once open.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "checkpoint/checkpoint.h"

namespace penstock {

// Where samples come from: training samples are numbered without an end, those of validation below a number that is
// known when the source is opened.
enum class Split : uint8_t { kTraining, kValidation };

// What a trained model may be evaluated on.
enum class DataPart : uint8_t { kTraining, kValidation, kAll };

class DataSource {
 public:
  virtual ~DataSource() = default;

  // Fills a port (its number in the model) with samples first_sample, first_sample + 1, ..., as many as `values` has
  // room for. REQUIRES: `values` is whole samples of the port's type; those of validation exist.
  // Errors: those of the disk, for data that are read when they are asked for.
  virtual absl::Status Read(Split split, int64_t first_sample, int port,
                            absl::Span<std::byte> values) const = 0;

  // Whether the sequence of a sample begins with it, or else goes on from that of the same sample of the step before
  // (BufferSpec::kCarried). The same for all samples of a step.
  virtual bool StartsAfresh(Split /*split*/, int64_t /*sample*/) const { return true; }

  // What a model that is trained on it needs later on: its tokenizer. A checkpoint takes it along.
  virtual absl::Span<const AttachedFile> attached_files() const { return {}; }

  // How many samples of Split::kValidation there are.
  virtual int64_t validation_samples() const = 0;
};

}  // namespace penstock
