#include "worker/spill_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr BackgroundFile::Words kSpillWords = {
    .what = "the file for offloaded stashes",
    .content = "a stash",
    .instead = "let fewer stages offload (pipeline.offload)"};

}  // namespace

absl::StatusOr<std::unique_ptr<SpillFile>> SpillFile::Create(const Options& options,
                                                             BufferPool& pool, Clock& clock) {
  PENSTOCK_ASSIGN_OR_RETURN(std::unique_ptr<BackgroundFile> file,
                            BackgroundFile::Create({.directory = options.directory,
                                                    .bytes = options.bytes_max,
                                                    .direct = options.direct,
                                                    .words = kSpillWords},
                                                   clock));
  return std::unique_ptr<SpillFile>(new SpillFile(std::move(file), pool));
}

absl::StatusOr<int64_t> SpillFile::TakeRoom(int64_t room) {
  std::vector<int64_t>& free = free_[room];
  if (!free.empty()) {
    const int64_t offset = free.back();
    free.pop_back();
    return offset;
  }
  const BackgroundFile::Options& options = file_->options();
  if (end_ + room > options.bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(options.directory, ": the file for offloaded stashes has room for ",
                     options.bytes, " bytes, ", end_, " of them are used, and a stash needs ", room,
                     " more than the schedule announced"));
  }
  return std::exchange(end_, end_ + room);
}

absl::StatusOr<int64_t> SpillFile::StartOut(absl::Span<const Buffer> blocks) {
  Stash stash;
  int64_t bytes = 0;
  for (const Buffer& block : blocks) {
    stash.sizes.push_back(block.size_bytes());
    bytes += block.size_bytes();
  }
  stash.room = RoomInFile(bytes);
  PENSTOCK_ASSIGN_OR_RETURN(stash.offset, TakeRoom(stash.room));
  stash.copy = file_->StartWriting(stash.offset, {blocks.begin(), blocks.end()});
  return stashes_.Add(std::move(stash));
}

absl::StatusOr<CopySpan> SpillFile::FinishOut(int64_t number) {
  return file_->Await(*stashes_[number].copy);
}

absl::Status SpillFile::StartIn(int64_t number) {
  Stash& stash = stashes_[number];
  std::vector<Buffer> blocks;
  for (const int64_t size : stash.sizes) {
    blocks.push_back(pool_.Acquire(size));
    if (blocks.back()) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", size,
                     " more bytes of a stash that comes back; use more stages, smaller "
                     "microbatches, or let more stages offload (pipeline.offload)"));
  }
  stash.copy = file_->StartReading(stash.offset, std::move(blocks));
  // Whatever is written there is written after this has been read.
  free_[stash.room].push_back(stash.offset);
  return absl::OkStatus();
}

absl::StatusOr<CopySpan> SpillFile::FinishIn(int64_t number, std::vector<Buffer>& blocks) {
  const std::shared_ptr<BackgroundFile::Copy> copy = stashes_[number].copy;
  PENSTOCK_ASSIGN_OR_RETURN(const CopySpan span, file_->Await(*copy));
  blocks = copy->TakeBlocks();
  stashes_.Remove(number);
  return span;
}

}  // namespace penstock
