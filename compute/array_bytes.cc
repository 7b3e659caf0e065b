#include "compute/array_bytes.h"

#include <algorithm>

#include "compute/buffer_layout.h"
#include "compute/buffer_pool.h"
#include "compute/host_stash.h"
#include "compute/optimizer.h"
#include "compute/parameter_arena.h"

namespace penstock {
namespace {

int64_t BlockOf(int64_t numbers, DType dtype) {
  return BufferPool::BlockBytes(numbers * SizeOf(dtype));
}
// Of an array that is not there if it has no numbers. Versions, histories and averages are there in any case.
int64_t BytesOf(int64_t numbers, DType dtype) { return numbers > 0 ? BlockOf(numbers, dtype) : 0; }

}  // namespace

ArrayBytes ArrayBytesOf(const ModelGraph& model, const StageOptions& options) {
  const ParameterArena arena(model, options.layers);
  const bool has_mirror = HasMirror(options.precision);
  const int64_t array = BlockOf(arena.weight_count(), DType::kF32);
  const int64_t mirror = has_mirror ? BlockOf(arena.weight_count(), DType::kBf16) : 0;
  const auto states = static_cast<int64_t>(StateNamesOf(options.optimizer).size());
  const HistoryOptions& history = options.history;
  const int64_t motions = history.momentum_average ? std::max<int64_t>(history.averages_max, 1) : 0;
  ArrayBytes bytes;
  if (!options.borrows_weights && !options.stores_state) bytes.version = array + mirror;
  bytes.frozen = BytesOf(arena.frozen_count(), DType::kF32) +
                 (has_mirror ? BytesOf(arena.frozen_count(), DType::kBf16) : 0);
  if (!options.drops_gradients) bytes.gradients = BytesOf(arena.gradient_count(), DType::kF32);
  const bool has_state = options.updates && !options.stores_state;
  bytes.optimizer = (has_state ? states : 0) * BytesOf(arena.trained_count(), DType::kF32) +
                    (motions + (history.last_update ? 1 : 0) + (history.mean_square ? 1 : 0)) *
                        BlockOf(arena.trained_count(), DType::kF32);
  const bool averages = options.keeps_average && options.updates;
  if (averages) bytes.optimizer += array;
  const BufferLayout buffers = LayOutBuffers(model, options.layers, options.step_samples);
  bytes.buffers = BytesOf(buffers.count, DType::kF32) + BytesOf(buffers.carried(), DType::kF32);
  if (history.updates()) bytes.predicted = array + (history.momentum_average ? mirror : 0);
  if (averages && options.evaluates_average) bytes.predicted += mirror;
  return bytes;
}

StoredBytes StoredBytesOf(const ModelGraph& model, StageOptions options) {
  options.stores_state = false;
  const ArrayBytes arrays = ArrayBytesOf(model, options);
  const ParameterArena arena(model, options.layers);
  const auto states = static_cast<int64_t>(StateNamesOf(options.optimizer).size());
  const int64_t trained = BytesOf(arena.trained_count(), DType::kF32);
  return {.in_file =
              RoomInFile(BlockOf(arena.weight_count(), DType::kF32)) + states * RoomInFile(trained),
          .updated = arrays.version + arrays.optimizer};
}

int64_t DeviceVersionsOf(StashPlace stash, bool own_memory, int64_t versions) {
  const bool elsewhere = stash == StashPlace::kHost && own_memory;
  return elsewhere ? std::min(versions, HostStash::kDeviceVersionsMax) : versions;
}

}  // namespace penstock
