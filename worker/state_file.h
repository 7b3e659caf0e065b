// StateFile: where weights, optimizer's state and sums of gradients of a worker's stages live that are not in its memory
// (Topology::weights_in_file), in a bounded file (background_file.h).
//
// Each stage has room for its weights and, behind them, for each array of the optimizer's state. They are read as often as
// need be, and written in place. A stage that nobody has written yet has zeros, as a new optimizer's state.
//
// Thread safety: the thread that owns the back-end.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "compute/stage.h"
#include "worker/background_file.h"

namespace penstock {

class StateFile {
 public:
  // `stages`: those that store their state. `summed`: those whose sums of gradients may wait for their message.
  // REQUIRES: the stages, the pool that they take memory from and the clock outlive the file.
  // Errors: those of BackgroundFile.
  static absl::StatusOr<std::unique_ptr<StateFile>> Create(const std::string& directory,
                                                           absl::Span<Stage* const> stages,
                                                           absl::Span<Stage* const> summed,
                                                           BufferPool& pool, Clock& clock);
  // Weights on their way from the file.
  struct Reading {
    Tensor weights;
    std::shared_ptr<BackgroundFile::Copy> copy;
  };
  // Takes memory for the weights of a stage and begins to read them. Errors: ResourceExhausted.
  absl::StatusOr<Reading> StartReading(Stage& stage);
  // Waits for them, after which they are whole. Errors: of the file, with its directory.
  absl::StatusOr<CopySpan> Finish(const Reading& reading);

  // What is moved between the file and a stage.
  struct What {
    bool weights = true;
    bool state = true;
  };
  // Gives the stage what is in the file. Errors: ResourceExhausted, of the file.
  absl::StatusOr<CopySpan> BringIn(Stage& stage, What what);
  // Writes what is there of the stage, and drops it. Errors: of the file.
  absl::StatusOr<CopySpan> PutBack(Stage& stage);
  // Drops it as it is.
  static void Drop(Stage& stage);

  // Writes the sum of gradients that a stage has accumulated, and drops it; and reads it into the first floats of `sum`.
  // REQUIRES: the stage has gradients; `sum` has the floats of the message (SumFloats). Errors: of the file.
  absl::StatusOr<CopySpan> PutSum(Stage& stage);
  absl::StatusOr<CopySpan> BringSum(Stage& stage, const Tensor& sum);

  int64_t bytes() const { return file_->options().bytes; }
  // Of the weights of a stage, and of one array of its state.
  static int64_t BytesOfWeights(Stage& stage);
  static int64_t BytesOfState(Stage& stage);
  // Of the message with its sum of gradients.
  static int64_t BytesOfSum(Stage& stage);

 private:
  // Where the rooms of stages are in the file.
  using Rooms = std::map<const Stage*, int64_t>;

  StateFile(std::unique_ptr<BackgroundFile> file, Rooms state, Rooms sums, BufferPool& pool)
      : file_(std::move(file)),
        state_rooms_(std::move(state)),
        sum_rooms_(std::move(sums)),
        pool_(pool) {}

  const std::unique_ptr<BackgroundFile> file_;
  const Rooms state_rooms_;
  const Rooms sum_rooms_;
  BufferPool& pool_;
};

}  // namespace penstock
