#include "worker/state_file.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "job/run/message_bytes.h"
#include "worker/acquire.h"

namespace penstock {
namespace {

constexpr BackgroundFile::Words kStateWords = {
    .what = "the file for weights and optimizer's state",
    .content = "the state of a stage",
    .instead = "keep it in memory (pipeline.stream_weights: on)"};

// One copy after another, as one.
void Extend(CopySpan& span, const CopySpan& copied) {
  if (span.start_ns == 0) span.start_ns = copied.start_ns;
  span.end_ns = copied.end_ns;
}

}  // namespace

int64_t StateFile::BytesOfWeights(Stage& stage) {
  return BufferPool::BlockBytes(stage.weight_shape().elements() * SizeOf(DType::kF32));
}

int64_t StateFile::BytesOfState(Stage& stage) {
  return BufferPool::BlockBytes(stage.state_shape().elements() * SizeOf(DType::kF32));
}

int64_t StateFile::BytesOfSum(Stage& stage) {
  return BufferPool::BlockBytes(SumFloats(stage.gradient_count(), stage.is_last()) *
                                SizeOf(DType::kF32));
}

absl::StatusOr<std::unique_ptr<StateFile>> StateFile::Create(const std::string& directory,
                                                             absl::Span<Stage* const> stages,
                                                             absl::Span<Stage* const> summed,
                                                             BufferPool& pool, Clock& clock) {
  int64_t bytes = 0;
  Rooms state;
  for (Stage* const stage : stages) {
    if (!state.emplace(stage, bytes).second) continue;
    bytes += RoomInFile(BytesOfWeights(*stage)) +
             stage->state_count() * RoomInFile(BytesOfState(*stage));
  }
  Rooms sums;
  for (Stage* const stage : summed) {
    if (!sums.emplace(stage, bytes).second) continue;
    bytes += RoomInFile(BytesOfSum(*stage));
  }
  PENSTOCK_ASSIGN_OR_RETURN(
      std::unique_ptr<BackgroundFile> file,
      BackgroundFile::Create({.directory = directory, .bytes = bytes, .words = kStateWords},
                             clock));
  return std::unique_ptr<StateFile>(
      new StateFile(std::move(file), std::move(state), std::move(sums), pool));
}

absl::StatusOr<StateFile::Reading> StateFile::StartReading(Stage& stage) {
  Reading reading;
  PENSTOCK_ASSIGN_OR_RETURN(reading.weights,
                            AcquireTensor(pool_, DType::kF32, stage.weight_shape()));
  reading.copy = file_->StartReading(state_rooms_.at(&stage), {reading.weights.buffer});
  return reading;
}

absl::StatusOr<CopySpan> StateFile::Finish(const Reading& reading) {
  return file_->Await(*reading.copy);
}

absl::StatusOr<CopySpan> StateFile::BringIn(Stage& stage, What what) {
  CopySpan span;
  if (what.state) {
    std::vector<Tensor> arrays(stage.state_count());
    int64_t offset = state_rooms_.at(&stage) + RoomInFile(BytesOfWeights(stage));
    for (Tensor& array : arrays) {
      PENSTOCK_ASSIGN_OR_RETURN(array, AcquireTensor(pool_, DType::kF32, stage.state_shape()));
      PENSTOCK_ASSIGN_OR_RETURN(const CopySpan copied,
                                file_->Await(*file_->StartReading(offset, {array.buffer})));
      Extend(span, copied);
      offset += RoomInFile(BytesOfState(stage));
    }
    stage.PutState(arrays);
  }
  if (!what.weights) return span;
  PENSTOCK_ASSIGN_OR_RETURN(const Reading reading, StartReading(stage));
  PENSTOCK_ASSIGN_OR_RETURN(const CopySpan copied, Finish(reading));
  PENSTOCK_RETURN_IF_ERROR(stage.PutWeights(stage.version(), reading.weights));
  Extend(span, copied);
  return span;
}

absl::StatusOr<CopySpan> StateFile::PutBack(Stage& stage) {
  CopySpan span;
  int64_t offset = state_rooms_.at(&stage);
  const auto write = [&](const Tensor& array) -> absl::Status {
    PENSTOCK_ASSIGN_OR_RETURN(const CopySpan copied,
                              file_->Await(*file_->StartWriting(offset, {array.buffer})));
    Extend(span, copied);
    return absl::OkStatus();
  };
  if (stage.has_weights()) PENSTOCK_RETURN_IF_ERROR(write(stage.Weights()));
  offset += RoomInFile(BytesOfWeights(stage));
  for (const Tensor& array : stage.State()) {
    PENSTOCK_RETURN_IF_ERROR(write(array));
    offset += RoomInFile(BytesOfState(stage));
  }
  Drop(stage);
  return span;
}

void StateFile::Drop(Stage& stage) {
  stage.DropWeights();
  stage.DropState();
}

absl::StatusOr<CopySpan> StateFile::PutSum(Stage& stage) {
  const std::shared_ptr<BackgroundFile::Copy> copy =
      file_->StartWriting(sum_rooms_.at(&stage), {stage.AccumulatedGradients().buffer});
  PENSTOCK_ASSIGN_OR_RETURN(const CopySpan copied, file_->Await(*copy));
  stage.DropGradients();
  return copied;
}

absl::StatusOr<CopySpan> StateFile::BringSum(Stage& stage, const Tensor& sum) {
  return file_->Await(*file_->StartReading(sum_rooms_.at(&stage), {sum.buffer}));
}

}  // namespace penstock
