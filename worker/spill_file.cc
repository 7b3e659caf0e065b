#include "worker/spill_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status.h"

namespace penstock {
namespace {

absl::Status SystemError(int error, absl::string_view directory, absl::string_view what) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  return absl::Status(
      full ? absl::StatusCode::kResourceExhausted : absl::ErrnoToStatusCode(error),
      absl::StrCat(directory, ": the file for offloaded stashes: ", what, ": ", strerror(error),
                   full ? "; free space there, give the worker another directory "
                          "(--offload-dir), or let fewer stages offload (pipeline.offload)"
                        : "; give the worker another directory (--offload-dir)"));
}

}  // namespace

void SpillFile::FreeDeleter::operator()(char* data) const { std::free(data); }

absl::StatusOr<std::unique_ptr<SpillFile>> SpillFile::Create(const Options& options,
                                                             BufferPool& pool, Clock& clock) {
  std::string path = absl::StrCat(options.directory, "/penstock-stashes-XXXXXX");
  const int file = mkostemp(path.data(), O_CLOEXEC);
  if (file < 0) return SystemError(errno, options.directory, "cannot be made");
  std::unique_ptr<SpillFile> spill(new SpillFile(options, file, pool, clock));
  if (unlink(path.c_str()) != 0) {
    return SystemError(errno, options.directory, "its name cannot be removed");
  }
  // A filesystem that cannot promise room says so when there is none for a stash.
  const bool reserved = options.bytes_max == 0 || fallocate(file, 0, 0, options.bytes_max) == 0;
  if (!reserved && errno != EOPNOTSUPP && errno != ENOSYS) {
    return SystemError(errno, options.directory,
                       absl::StrCat("there is no room for its ", options.bytes_max, " bytes"));
  }
  spill->direct_ = options.direct && fcntl(file, F_SETFL, fcntl(file, F_GETFL) | O_DIRECT) == 0;
  spill->thread_ = std::thread([raw = spill.get()] { raw->Main(); });
  return spill;
}

SpillFile::SpillFile(const Options& options, int file, BufferPool& pool, Clock& clock)
    : directory_(options.directory),
      bytes_max_(options.bytes_max),
      file_(file),
      pool_(pool),
      clock_(clock),
      buffer_(static_cast<char*>(std::aligned_alloc(kAlignment, kBufferBytes))) {
  PENSTOCK_CHECK(buffer_ != nullptr);
}

SpillFile::~SpillFile() {
  {
    MutexLock lock(mutex_);
    ends_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
  close(file_);
}

absl::StatusOr<int64_t> SpillFile::TakeRoom(int64_t room) {
  std::vector<int64_t>& free = free_[room];
  if (!free.empty()) {
    const int64_t offset = free.back();
    free.pop_back();
    return offset;
  }
  if (end_ + room > bytes_max_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        directory_, ": the file for offloaded stashes has room for ", bytes_max_, " bytes, ", end_,
        " of them are used, and a stash needs ", room, " more than the schedule announced"));
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
  stash.room = RoomOf(bytes);
  PENSTOCK_ASSIGN_OR_RETURN(stash.offset, TakeRoom(stash.room));
  stash.copy = Ask(/*writes=*/true, stash.offset, {blocks.begin(), blocks.end()});
  return stashes_.Add(std::move(stash));
}

absl::StatusOr<CopySpan> SpillFile::FinishOut(int64_t number) {
  Stash& stash = stashes_[number];
  Await(*stash.copy);
  PENSTOCK_RETURN_IF_ERROR(stash.copy->status);
  return stash.copy->span;
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
  stash.copy = Ask(/*writes=*/false, stash.offset, std::move(blocks));
  // Whatever is written there is written after this has been read.
  free_[stash.room].push_back(stash.offset);
  return absl::OkStatus();
}

absl::StatusOr<CopySpan> SpillFile::FinishIn(int64_t number, std::vector<Buffer>& blocks) {
  const std::shared_ptr<Copy> copy = stashes_[number].copy;
  Await(*copy);
  PENSTOCK_RETURN_IF_ERROR(copy->status);
  blocks = std::move(copy->blocks);
  stashes_.Remove(number);
  return copy->span;
}

std::shared_ptr<SpillFile::Copy> SpillFile::Ask(bool writes, int64_t offset,
                                                std::vector<Buffer> blocks) {
  auto copy = std::make_shared<Copy>();
  copy->writes = writes;
  copy->offset = offset;
  copy->blocks = std::move(blocks);
  {
    MutexLock lock(mutex_);
    asked_.push_back(copy);
  }
  changed_.NotifyAll();
  return copy;
}

void SpillFile::Await(const Copy& copy) {
  MutexLock lock(mutex_);
  while (!copy.done) changed_.Wait(mutex_);
}

void SpillFile::Main() {
  while (true) {
    std::shared_ptr<Copy> copy;
    {
      MutexLock lock(mutex_);
      while (asked_.empty() && !ends_) changed_.Wait(mutex_);
      if (asked_.empty()) return;
      copy = std::move(asked_.front());
      asked_.pop_front();
    }
    CopySpan span = {.start_ns = clock_.MonotonicNs()};
    absl::Status status = Perform(*copy);
    span.end_ns = clock_.MonotonicNs();
    {
      MutexLock lock(mutex_);
      copy->status = std::move(status);
      copy->span = span;
      // The memory of what has left is its owner's alone.
      if (copy->writes) copy->blocks.clear();
      copy->done = true;
    }
    changed_.NotifyAll();
  }
}

absl::Status SpillFile::Perform(const Copy& copy) {
  int64_t left = 0;
  for (const Buffer& block : copy.blocks) left += block.size_bytes();
  size_t block = 0;
  int64_t at = 0;  // in the block
  for (int64_t offset = copy.offset; left > 0; offset += kBufferBytes) {
    const int64_t size = std::min(left, kBufferBytes);
    const int64_t room = RoomOf(size);
    if (!copy.writes) PENSTOCK_RETURN_IF_ERROR(ReadBuffer(room, offset));
    for (int64_t filled = 0; filled < size;) {
      const Buffer& data = copy.blocks[block];
      const int64_t part = std::min(size - filled, data.size_bytes() - at);
      char* const in_block = static_cast<char*>(data.data()) + at;
      char* const in_buffer = buffer_.get() + filled;
      std::memcpy(copy.writes ? in_buffer : in_block, copy.writes ? in_block : in_buffer,
                  static_cast<size_t>(part));
      filled += part;
      at += part;
      if (at < data.size_bytes()) continue;
      ++block;
      at = 0;
    }
    if (copy.writes) {
      std::memset(buffer_.get() + size, 0, static_cast<size_t>(room - size));
      PENSTOCK_RETURN_IF_ERROR(WriteBuffer(room, offset));
    }
    left -= size;
  }
  return absl::OkStatus();
}

absl::Status SpillFile::WriteBuffer(int64_t size, int64_t offset) {
  for (int64_t done = 0; done < size;) {
    const ssize_t written =
        pwrite(file_, buffer_.get() + done, static_cast<size_t>(size - done), offset + done);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return SystemError(errno, directory_, "a stash cannot be written");
    if (written == 0) return SystemError(ENOSPC, directory_, "a stash cannot be written");
    done += written;
  }
  return absl::OkStatus();
}

absl::Status SpillFile::ReadBuffer(int64_t size, int64_t offset) {
  for (int64_t done = 0; done < size;) {
    const ssize_t read =
        pread(file_, buffer_.get() + done, static_cast<size_t>(size - done), offset + done);
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return SystemError(errno, directory_, "a stash cannot be read");
    if (read == 0) return SystemError(EIO, directory_, "a stash ends early");
    done += read;
  }
  return absl::OkStatus();
}

}  // namespace penstock
