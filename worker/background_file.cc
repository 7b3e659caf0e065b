#include "worker/background_file.h"

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

absl::Status FileError(const BackgroundFile::Options& options, int error,
                       absl::string_view problem) {
  const bool full = error == ENOSPC || error == EDQUOT || error == EFBIG;
  const BackgroundFile::Words& words = options.words;
  return absl::Status(
      full ? absl::StatusCode::kResourceExhausted : absl::ErrnoToStatusCode(error),
      absl::StrCat(options.directory, ": ", words.what, ": ", problem, ": ", strerror(error),
                   full ? absl::StrCat("; free space there, give the worker another directory "
                                       "(--offload-dir), or ",
                                       words.instead)
                        : "; give the worker another directory (--offload-dir)"));
}

}  // namespace

void BackgroundFile::FreeDeleter::operator()(char* data) const { std::free(data); }

absl::StatusOr<std::unique_ptr<BackgroundFile>> BackgroundFile::Create(const Options& options,
                                                                       Clock& clock) {
  std::string path = absl::StrCat(options.directory, "/penstock-XXXXXX");
  const int descriptor = mkostemp(path.data(), O_CLOEXEC);
  if (descriptor < 0) return FileError(options, errno, "cannot be made");
  std::unique_ptr<BackgroundFile> file(new BackgroundFile(options, descriptor, clock));
  if (unlink(path.c_str()) != 0) return FileError(options, errno, "its name cannot be removed");
  // A filesystem that cannot promise room says so when there is none for a copy.
  const bool reserved =
      options.bytes == 0 || fallocate(descriptor, 0, 0, options.bytes) == 0 ||
      ((errno == EOPNOTSUPP || errno == ENOSYS) && ftruncate(descriptor, options.bytes) == 0);
  if (!reserved) {
    return FileError(options, errno,
                     absl::StrCat("there is no room for its ", options.bytes, " bytes"));
  }
  file->direct_ =
      options.direct && fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_DIRECT) == 0;
  file->thread_ = std::thread([raw = file.get()] { raw->Main(); });
  return file;
}

BackgroundFile::BackgroundFile(const Options& options, int file, Clock& clock)
    : options_(options),
      file_(file),
      clock_(clock),
      buffer_(static_cast<char*>(std::aligned_alloc(kFileAlignment, kBufferBytes))) {
  PENSTOCK_CHECK(buffer_ != nullptr);
}

BackgroundFile::~BackgroundFile() {
  {
    MutexLock lock(mutex_);
    ends_ = true;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
  close(file_);
}

absl::Status BackgroundFile::SystemError(int error, absl::string_view problem) const {
  return FileError(options_, error, absl::StrCat(options_.words.content, " ", problem));
}

std::shared_ptr<BackgroundFile::Copy> BackgroundFile::Ask(bool writes, int64_t offset,
                                                          std::vector<Buffer> blocks) {
  auto copy = std::make_shared<Copy>();
  copy->writes_ = writes;
  copy->offset_ = offset;
  copy->blocks_ = std::move(blocks);
  {
    MutexLock lock(mutex_);
    asked_.push_back(copy);
  }
  changed_.NotifyAll();
  return copy;
}

absl::StatusOr<CopySpan> BackgroundFile::Await(const Copy& copy) {
  MutexLock lock(mutex_);
  while (!copy.done_) changed_.Wait(mutex_);
  PENSTOCK_RETURN_IF_ERROR(copy.status_);
  return copy.span_;
}

void BackgroundFile::Main() {
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
      copy->status_ = std::move(status);
      copy->span_ = span;
      // The memory of what has left is its owner's alone.
      if (copy->writes_) copy->blocks_.clear();
      copy->done_ = true;
    }
    changed_.NotifyAll();
  }
}

absl::Status BackgroundFile::Perform(const Copy& copy) {
  int64_t left = 0;
  for (const Buffer& block : copy.blocks_) left += block.size_bytes();
  size_t block = 0;
  int64_t at = 0;  // in the block
  for (int64_t offset = copy.offset_; left > 0; offset += kBufferBytes) {
    const int64_t size = std::min(left, kBufferBytes);
    const int64_t room = RoomInFile(size);
    if (!copy.writes_) PENSTOCK_RETURN_IF_ERROR(ReadBuffer(room, offset));
    for (int64_t filled = 0; filled < size;) {
      const Buffer& data = copy.blocks_[block];
      const int64_t part = std::min(size - filled, data.size_bytes() - at);
      char* const in_block = static_cast<char*>(data.data()) + at;
      char* const in_buffer = buffer_.get() + filled;
      std::memcpy(copy.writes_ ? in_buffer : in_block, copy.writes_ ? in_block : in_buffer,
                  static_cast<size_t>(part));
      filled += part;
      at += part;
      if (at < data.size_bytes()) continue;
      ++block;
      at = 0;
    }
    if (copy.writes_) {
      std::memset(buffer_.get() + size, 0, static_cast<size_t>(room - size));
      PENSTOCK_RETURN_IF_ERROR(WriteBuffer(room, offset));
    }
    left -= size;
  }
  return absl::OkStatus();
}

absl::Status BackgroundFile::WriteBuffer(int64_t size, int64_t offset) {
  for (int64_t done = 0; done < size;) {
    const ssize_t written =
        pwrite(file_, buffer_.get() + done, static_cast<size_t>(size - done), offset + done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return SystemError(written < 0 ? errno : ENOSPC, "cannot be written");
    done += written;
  }
  return absl::OkStatus();
}

absl::Status BackgroundFile::ReadBuffer(int64_t size, int64_t offset) {
  for (int64_t done = 0; done < size;) {
    const ssize_t read =
        pread(file_, buffer_.get() + done, static_cast<size_t>(size - done), offset + done);
    if (read < 0 && errno == EINTR) continue;
    if (read < 0) return SystemError(errno, "cannot be read");
    if (read == 0) return SystemError(EIO, "ends early");
    done += read;
  }
  return absl::OkStatus();
}

}  // namespace penstock
