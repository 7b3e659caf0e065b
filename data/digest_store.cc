#include "data/digest_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/confined_files.h"
#include "base/files.h"
#include "base/full_disk.h"
#include "base/sha256.h"
#include "base/status.h"

namespace penstock {
namespace {

constexpr char kLockFile[] = "lock";
constexpr absl::string_view kPartEnding = ".part";
constexpr size_t kHashedBytes = 1 << 20;  // read at a time

absl::Status CheckSha256(const std::string& sha256) {
  if (IsSha256Hex(sha256)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("sha256 is \"", sha256.substr(0, 80), "\"; expected 64 digits of 0-9 and a-f"));
}

absl::Status RemovedMeanwhile(const std::string& sha256) {
  return absl::AbortedError(absl::StrCat("sha256:", sha256, " was removed meanwhile; begin again"));
}

// What the name of a file in the directory says; nothing of a file that is none of the store's.
std::optional<DigestStore::File> FileNamed(absl::string_view name) {
  if (IsSha256Hex(name)) return DigestStore::File{.sha256 = std::string(name), .whole = true};
  if (!absl::ConsumeSuffix(&name, kPartEnding) || name.size() < 66 || name[64] != '.') {
    return std::nullopt;
  }
  DigestStore::File file = {.sha256 = std::string(name.substr(0, 64))};
  if (!IsSha256Hex(file.sha256) || !absl::SimpleAtoi(name.substr(65), &file.size_bytes)) {
    return std::nullopt;
  }
  return file;
}

absl::StatusOr<std::string> HashOf(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.ok()) return FileError("open", path, errno);
  Sha256 sha256;
  std::vector<char> bytes(kHashedBytes);
  for (;;) {
    const ssize_t size = read(file.get(), bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return FileError("read", path, errno);
    if (size == 0) return sha256.HexDigest();
    sha256.Update(bytes.data(), static_cast<size_t>(size));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<DigestStore>> DigestStore::Open(DigestStoreOptions options) {
  PENSTOCK_RETURN_IF_ERROR(RealFiles().CreateDirectories(options.directory));
  const std::string path = JoinPath(options.directory, kLockFile);
  PENSTOCK_ASSIGN_OR_RETURN(Descriptor lock,
                            OpenOwnFile(path, open(path.c_str(), kOwnFileFlags, kOwnFileMode)));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(options.directory,
                     " is in use by another process; give each a directory of "
                     "its own"));
  }
  std::unique_ptr<DigestStore> store(new DigestStore(std::move(options), std::move(lock)));
  PENSTOCK_RETURN_IF_ERROR(store->TakeUp());
  return store;
}

absl::Status DigestStore::TakeUp() {
  PENSTOCK_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            RealFiles().List(options_.directory));
  std::vector<std::pair<timespec, EntryRef>> found;
  for (const std::string& name : names) {
    const std::optional<File> file = FileNamed(name);
    if (!file.has_value()) continue;
    const std::string path = JoinPath(options_.directory, name);
    struct stat status = {};
    if (lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    auto entry =
        std::make_shared<Entry>(file->sha256, file->whole ? status.st_size : file->size_bytes);
    {
      MutexLock lock(entry->mutex);
      entry->held_bytes = std::min<int64_t>(status.st_size, entry->size_bytes);
      entry->whole = file->whole;
    }
    found.emplace_back(status.st_mtim, std::move(entry));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.tv_sec, a.first.tv_nsec) < std::pair(b.first.tv_sec, b.first.tv_nsec);
  });
  MutexLock lock(mutex_);
  for (const auto& [time, entry] : found) {
    MutexLock entry_lock(entry->mutex);
    entry->used = ++uses_;
    // A whole file beside a part of it: the part is of a process that was killed between.
    EntryRef& known = entries_[entry->sha256];
    if (known == nullptr || entry->whole) known = entry;
  }
  return absl::OkStatus();
}

std::string DigestStore::PathOf(const Entry& entry, bool whole) const {
  return JoinPath(
      options_.directory,
      whole ? entry.sha256 : absl::StrCat(entry.sha256, ".", entry.size_bytes, kPartEnding));
}

DigestStore::EntryRef DigestStore::FindEntry(const std::string& sha256) {
  MutexLock lock(mutex_);
  const auto found = entries_.find(sha256);
  return found == entries_.end() ? nullptr : found->second;
}

int64_t DigestStore::Bytes() const {
  int64_t bytes = 0;
  for (const auto& [sha256, entry] : entries_) bytes += entry->size_bytes;
  return bytes;
}

void DigestStore::MakeRoom(int64_t size_bytes) {
  std::vector<std::pair<int64_t, EntryRef>> unused;
  for (const auto& [sha256, entry] : entries_) {
    MutexLock lock(entry->mutex);
    if (entry->whole && entry->user.expired()) unused.emplace_back(entry->used, entry);
  }
  std::sort(unused.begin(), unused.end());
  for (const auto& [used, entry] : unused) {
    if (Bytes() + size_bytes <= options_.bytes_max) return;
    MutexLock lock(entry->mutex);
    if (!RemoveFile(*entry).ok()) continue;
    entries_.erase(entry->sha256);
  }
}

absl::StatusOr<DigestStore::EntryRef> DigestStore::EntryFor(const std::string& sha256,
                                                            int64_t size_bytes) {
  if (size_bytes < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("sha256:", sha256, " has ", size_bytes, " bytes; expected 1 or more"));
  }
  MutexLock lock(mutex_);
  if (const auto found = entries_.find(sha256); found != entries_.end()) {
    if (found->second->size_bytes == size_bytes) return found->second;
    return absl::FailedPreconditionError(absl::StrCat(
        "sha256:", sha256, " is there with ", found->second->size_bytes, " bytes, not ", size_bytes,
        "; remove it (`penstock data remove ", sha256, "`), then put the file again"));
  }
  if (options_.removes_unused && size_bytes <= options_.bytes_max) MakeRoom(size_bytes);
  if (const int64_t bytes = Bytes(); size_bytes > options_.bytes_max - bytes) {
    return absl::FailedPreconditionError(absl::StrCat(
        options_.directory, " has no room for ", size_bytes, " bytes of sha256:", sha256,
        ": it may have ", options_.bytes_max, " bytes and has ", bytes,
        "; remove files that are not used any more, or allow it more"));
  }
  auto entry = std::make_shared<Entry>(sha256, size_bytes);
  entries_.emplace(sha256, entry);
  return entry;
}

void DigestStore::Forget(const EntryRef& entry) {
  MutexLock lock(mutex_);
  const auto found = entries_.find(entry->sha256);
  if (found != entries_.end() && found->second == entry) entries_.erase(found);
}

absl::StatusOr<DigestStore::File> DigestStore::Find(const std::string& sha256) {
  PENSTOCK_RETURN_IF_ERROR(CheckSha256(sha256));
  const EntryRef entry = FindEntry(sha256);
  if (entry == nullptr) return File{.sha256 = sha256};
  MutexLock lock(entry->mutex);
  if (entry->removed) return File{.sha256 = sha256};
  return File{sha256, entry->size_bytes, entry->held_bytes, entry->whole};
}

absl::Status DigestStore::Write(Entry& entry, absl::string_view bytes) {
  const bool is_new = entry.held_bytes == 0;
  PENSTOCK_RETURN_IF_ERROR(FinalIfDiskIsFull(
      RealFiles().WriteEndDurably(PathOf(entry, /*whole=*/false), entry.held_bytes, bytes),
      "free space on that disk, then put the file again: it goes on where it stopped"));
  entry.held_bytes += static_cast<int64_t>(bytes.size());
  return is_new ? RealFiles().SyncDirectory(options_.directory) : absl::OkStatus();
}

absl::StatusOr<int64_t> DigestStore::Append(const std::string& sha256, int64_t size_bytes,
                                            int64_t offset, absl::string_view bytes) {
  PENSTOCK_RETURN_IF_ERROR(CheckSha256(sha256));
  if (bytes.empty() || offset < 0 || offset > size_bytes ||
      static_cast<int64_t>(bytes.size()) > size_bytes - offset) {
    return absl::InvalidArgumentError(absl::StrCat("sha256:", sha256, ": ", bytes.size(),
                                                   " bytes at ", offset, " are not within its ",
                                                   size_bytes, " bytes"));
  }
  PENSTOCK_ASSIGN_OR_RETURN(const EntryRef entry, EntryFor(sha256, size_bytes));
  absl::Status written;
  {
    MutexLock lock(entry->mutex);
    if (entry->removed) return RemovedMeanwhile(sha256);
    if (entry->whole || offset != entry->held_bytes) return entry->held_bytes;
    written = Write(*entry, bytes);
    if (written.ok()) return entry->held_bytes;
    if (entry->held_bytes > 0) return written;
    (void)RemoveFile(*entry);  // nothing of it came, so it takes no room
  }
  Forget(entry);
  return written;
}

absl::Status DigestStore::Finish(const std::string& sha256) {
  PENSTOCK_RETURN_IF_ERROR(CheckSha256(sha256));
  const EntryRef entry = FindEntry(sha256);
  if (entry == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("nothing has come of sha256:", sha256, "; send its parts first"));
  }
  std::string found;
  {
    MutexLock lock(entry->mutex);
    if (entry->removed) return RemovedMeanwhile(sha256);
    if (entry->whole) return absl::OkStatus();
    if (entry->held_bytes < entry->size_bytes) {
      return absl::FailedPreconditionError(
          absl::StrCat(entry->held_bytes, " of ", entry->size_bytes, " bytes of sha256:", sha256,
                       " have come; send the rest first"));
    }
    const std::string path = PathOf(*entry, /*whole=*/false);
    PENSTOCK_ASSIGN_OR_RETURN(found, HashOf(path));
    if (found == sha256) {
      PENSTOCK_RETURN_IF_ERROR(RealFiles().RenameDurably(path, PathOf(*entry, /*whole=*/true)));
      entry->whole = true;
      entry->used = ++uses_;
      return absl::OkStatus();
    }
    PENSTOCK_RETURN_IF_ERROR(RemoveFile(*entry));
  }
  Forget(entry);
  return absl::DataLossError(absl::StrCat("what came under sha256:", sha256, " has the SHA-256 ",
                                          found, " and was removed; put the file again"));
}

absl::StatusOr<DigestStore::Use> DigestStore::Hold(const std::string& sha256) {
  PENSTOCK_RETURN_IF_ERROR(CheckSha256(sha256));
  const EntryRef entry = FindEntry(sha256);
  if (entry != nullptr) {
    MutexLock lock(entry->mutex);
    if (entry->whole && !entry->removed) {
      Use use = {.path = PathOf(*entry, /*whole=*/true), .holds = entry->user.lock()};
      if (use.holds == nullptr) use.holds = std::make_shared<const int>(0);
      entry->user = use.holds;
      entry->used = ++uses_;
      // So that the next process knows the order, too; where it cannot be said, nothing is lost.
      (void)utimensat(AT_FDCWD, use.path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
      return use;
    }
  }
  return absl::NotFoundError(absl::StrCat(
      "sha256:", sha256, entry == nullptr ? " is not there" : " is not there as a whole"));
}

absl::StatusOr<DigestStore::Part> DigestStore::Read(const std::string& sha256, int64_t offset,
                                                    int64_t bytes_max) {
  PENSTOCK_ASSIGN_OR_RETURN(const Use use, Hold(sha256));
  const Descriptor file(open(use.path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status = {};
  if (!file.ok() || fstat(file.get(), &status) != 0) return FileError("open", use.path, errno);
  if (offset < 0 || offset >= status.st_size) {
    return absl::OutOfRangeError(absl::StrCat("sha256:", sha256, " has ", status.st_size,
                                              " bytes, and was asked for those from ", offset));
  }
  Part part = {.size_bytes = status.st_size};
  part.bytes.resize(static_cast<size_t>(
      std::min<int64_t>(std::max<int64_t>(bytes_max, 1), status.st_size - offset)));
  size_t done = 0;
  while (done < part.bytes.size()) {
    const ssize_t size = pread(file.get(), part.bytes.data() + done, part.bytes.size() - done,
                               offset + static_cast<int64_t>(done));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return FileError("read", use.path, size < 0 ? errno : EIO);
    done += static_cast<size_t>(size);
  }
  return part;
}

absl::Status DigestStore::RemoveFile(Entry& entry) {
  const std::string path = PathOf(entry, entry.whole);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return FileError("remove", path, errno);
  entry.removed = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> DigestStore::Remove(const std::string& sha256) {
  PENSTOCK_RETURN_IF_ERROR(CheckSha256(sha256));
  const EntryRef entry = FindEntry(sha256);
  if (entry == nullptr) return false;
  {
    MutexLock lock(entry->mutex);
    if (entry->removed) return false;
    PENSTOCK_RETURN_IF_ERROR(RemoveFile(*entry));
  }
  Forget(entry);
  return true;
}

std::vector<DigestStore::File> DigestStore::List(const std::string& after_sha256,
                                                 size_t files_max) {
  std::vector<EntryRef> entries;
  {
    MutexLock lock(mutex_);
    for (auto at = entries_.upper_bound(after_sha256);
         at != entries_.end() && entries.size() < files_max; ++at) {
      entries.push_back(at->second);
    }
  }
  std::vector<File> files;
  for (const EntryRef& entry : entries) {
    MutexLock lock(entry->mutex);
    if (entry->removed) continue;
    files.push_back({entry->sha256, entry->size_bytes, entry->held_bytes, entry->whole});
  }
  return files;
}

}  // namespace penstock
