// MemoryFiles: a disk in memory that can be made to fail, for tests of what survives.
//
// Every call that changes something is counted; FailFrom(n, ...) makes the n-th and all later ones
// fail, as if the process had died there: what was done before stays. FailReads(...) makes the
// contents of one place unreadable, FailRemovals(...) lets nothing be removed. SetCapacity(...) makes the disk small, so
// that what is left lying there takes the room of what comes later.
//
// A new file's name, or its end, is durable only once its directory is synced. Crash() undoes what is not, as a power failure
// does; Crash(survives) undoes any part of it, for disks keep such changes in whatever order they like. Of a write that failed
// nobody knows what is on the disk, so it counts as not durable.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "base/mutex.h"

namespace penstock {

class MemoryFiles : public Files {
 public:
  // The `n`-th change from now on (0: the next) and all after it return `error`. A write that fails
  // leaves the first half of its file if `tears_writes`.
  void FailFrom(int64_t n, absl::Status error, bool tears_writes = false) {
    MutexLock lock(mutex_);
    fail_from_ = changes_ + n;
    heal_from_ = std::numeric_limits<int64_t>::max();
    error_ = std::move(error);
    tears_writes_ = tears_writes;
  }
  // The `n`-th change from now on returns `error`, later ones work again.
  void FailOnce(int64_t n, absl::Status error) {
    FailFrom(n, std::move(error));
    MutexLock lock(mutex_);
    heal_from_ = fail_from_ + 1;
  }
  // Writes fail as long as all files together would have more than `bytes`, as on a disk that is full.
  void SetCapacity(int64_t bytes) {
    MutexLock lock(mutex_);
    capacity_ = bytes;
  }
  int64_t UsedBytes() {
    MutexLock lock(mutex_);
    return Used();
  }
  // The machine loses power: what is not durable is undone.
  void Crash() {
    Crash([](const std::string&) { return false; });
  }
  // The same, but of the changes that are not durable those stay for which `survives`, asked in their order, says so.
  void Crash(const std::function<bool(const std::string& path)>& survives) {
    MutexLock lock(mutex_);
    std::map<std::string, std::optional<std::string>> left;  // of each path that was changed
    for (const Change& change : std::exchange(unsynced_, {})) {
      const auto entry = left.emplace(change.path, change.before).first;
      if (survives(change.path)) entry->second = change.after;
    }
    for (auto& [path, content] : left) {
      if (content.has_value()) {
        AddDirectories(path.substr(0, path.rfind('/')));  // of a removal that is undone
        files_[path] = *std::move(content);
      } else {
        files_.erase(path);
      }
    }
  }
  // Whether a change has failed since the failures were set.
  bool failed() {
    MutexLock lock(mutex_);
    return changes_ > fail_from_;
  }
  // Reading the file `path`, or any file below it, returns `error`.
  void FailReads(const std::string& path, absl::Status error) {
    MutexLock lock(mutex_);
    unreadable_[path] = std::move(error);
  }
  // Removing `path`, or anything if it is empty, returns `error`.
  void FailRemovals(absl::Status error, const std::string& path = "") {
    MutexLock lock(mutex_);
    removal_error_ = std::move(error);
    unremovable_ = path;
  }
  void Heal() {
    MutexLock lock(mutex_);
    fail_from_ = heal_from_ = std::numeric_limits<int64_t>::max();
    unreadable_.clear();
    removal_error_ = absl::OkStatus();
  }
  int64_t changes() {
    MutexLock lock(mutex_);
    return changes_;
  }
  // The bytes of a file, to be tampered with. REQUIRES: it exists; one thread.
  std::string& Content(const std::string& path) { return files_.at(path); }
  std::vector<std::string> Paths() {
    MutexLock lock(mutex_);
    std::vector<std::string> paths;
    for (const auto& [path, content] : files_) paths.push_back(path);
    return paths;
  }

  absl::StatusOr<std::string> Read(const std::string& path, int64_t size_bytes_max) override {
    MutexLock lock(mutex_);
    for (const auto& [place, error] : unreadable_) {
      if (IsInside(path, place)) return error;
    }
    if (directories_.count(path) > 0) {
      return absl::FailedPreconditionError(absl::StrCat("cannot read ", path, ": is a directory"));
    }
    const auto file = files_.find(path);
    if (file == files_.end()) return absl::NotFoundError(absl::StrCat("cannot open ", path));
    if (static_cast<int64_t>(file->second.size()) > size_bytes_max) {
      return absl::OutOfRangeError(absl::StrCat(path, " is too large"));
    }
    return file->second;
  }

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenRandomAccess(
      const std::string& path) override {
    absl::StatusOr<std::string> content = Read(path, std::numeric_limits<int64_t>::max());
    if (!content.ok()) return content.status();
    return std::make_unique<Opened>(path, *std::move(content));
  }

  absl::Status WriteDurably(const std::string& path,
                            absl::Span<const absl::string_view> pieces) override {
    MutexLock lock(mutex_);
    std::string content;
    for (absl::string_view piece : pieces) absl::StrAppend(&content, piece);
    absl::Status status = Count();
    if (!status.ok()) {
      if (tears_writes_) {
        Put(path, content.substr(0, content.size() / 2), /*is_durable=*/false);
      }
      return status;
    }
    const auto old = files_.find(path);
    const int64_t freed = old == files_.end() ? 0 : static_cast<int64_t>(old->second.size());
    if (Used() - freed + static_cast<int64_t>(content.size()) > capacity_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot write ", path, ": No space left on device"));
    }
    Put(path, std::move(content), /*is_durable=*/old != files_.end());
    return absl::OkStatus();
  }

  absl::Status WriteInParts(const std::string& path,
                            absl::FunctionRef<absl::StatusOr<absl::string_view>()> next) override {
    std::string content;
    while (true) {
      const absl::StatusOr<absl::string_view> piece = next();
      if (!piece.ok()) return piece.status();
      if (piece->empty()) return WriteDurably(path, {content});
      absl::StrAppend(&content, *piece);
    }
  }

  absl::Status WriteEndDurably(const std::string& path, int64_t offset,
                               absl::string_view bytes) override {
    absl::StatusOr<std::string> content = Read(path, std::numeric_limits<int64_t>::max());
    if (absl::IsNotFound(content.status()) && offset == 0) content = std::string();
    if (!content.ok()) return content.status();
    if (static_cast<int64_t>(content->size()) < offset) {
      return absl::OutOfRangeError(absl::StrCat(path, " ends too early"));
    }
    content->resize(static_cast<size_t>(offset));
    absl::StrAppend(&*content, bytes);
    return WriteDurably(path, {*content});
  }

  absl::Status RenameDurably(const std::string& from, const std::string& to) override {
    MutexLock lock(mutex_);
    absl::Status status = Count();
    if (!status.ok()) return status;
    if (directories_.count(to) > 0) return absl::AlreadyExistsError(absl::StrCat(to, " exists"));
    std::map<std::string, std::string> files;
    for (auto& [path, content] : files_) files[Moved(path, from, to)] = std::move(content);
    files_ = std::move(files);
    std::set<std::string> directories;
    for (const std::string& path : directories_) directories.insert(Moved(path, from, to));
    directories_ = std::move(directories);
    for (Change& change : unsynced_) {
      change.path = Moved(change.path, from, to);
      change.entry = Moved(change.entry, from, to);
    }
    Sync(to.substr(0, to.rfind('/')));
    return absl::OkStatus();
  }

  absl::Status SyncDirectory(const std::string& path) override {
    MutexLock lock(mutex_);
    absl::Status status = Count();
    if (status.ok()) Sync(path);
    return status;
  }

  absl::Status CreateDirectories(const std::string& path) override {
    MutexLock lock(mutex_);
    absl::Status status = Count();
    if (!status.ok()) return status;
    AddDirectories(path);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    MutexLock lock(mutex_);
    if (directories_.count(path) == 0) {
      return absl::NotFoundError(absl::StrCat("cannot list ", path));
    }
    std::set<std::string> names;
    const auto add = [&](const std::string& entry) {
      if (!absl::StartsWith(entry, path + "/")) return;
      const std::string rest = entry.substr(path.size() + 1);
      names.insert(rest.substr(0, rest.find('/')));
    };
    for (const auto& [file, content] : files_) add(file);
    for (const std::string& directory : directories_) add(directory);
    return std::vector<std::string>(names.begin(), names.end());
  }

  absl::Status RemoveAll(const std::string& path) override {
    MutexLock lock(mutex_);
    absl::Status status = Count();
    if (!status.ok()) return status;
    const auto inside = [&](const std::string& entry) { return IsInside(entry, path); };
    const bool exists =
        std::any_of(directories_.begin(), directories_.end(), inside) ||
        std::any_of(files_.begin(), files_.end(), [&](auto& file) { return inside(file.first); });
    if (exists && (unremovable_.empty() || unremovable_ == path)) {
      if (!removal_error_.ok()) return removal_error_;
    }
    for (const auto& [file, content] : files_) {
      if (inside(file)) unsynced_.push_back({.path = file, .entry = path, .before = content});
    }
    std::erase_if(files_, [&](const auto& file) { return inside(file.first); });
    std::erase_if(directories_, inside);
    return absl::OkStatus();
  }

  bool Exists(const std::string& path) override {
    MutexLock lock(mutex_);
    return files_.count(path) > 0 || directories_.count(path) > 0;
  }

 private:
  class Opened final : public RandomAccessFile {
   public:
    Opened(std::string path, std::string content)
        : path_(std::move(path)), content_(std::move(content)) {}
    int64_t size_bytes() const override { return static_cast<int64_t>(content_.size()); }
    absl::Status Read(int64_t offset, absl::Span<std::byte> bytes) const override {
      if (offset + static_cast<int64_t>(bytes.size()) > size_bytes()) {
        return absl::DataLossError(absl::StrCat(path_, " ends too early"));
      }
      std::memcpy(bytes.data(), content_.data() + offset, bytes.size());
      return absl::OkStatus();
    }

   private:
    const std::string path_;
    const std::string content_;
  };

  // A change of a file that is not durable yet; no content: there is no such file.
  struct Change {
    std::string path;
    std::string
        entry;  // the name that was added or removed: the file's, or that of a directory around it
    std::optional<std::string> before = std::nullopt;
    std::optional<std::string> after = std::nullopt;
  };

  absl::Status Count() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const int64_t change = changes_++;
    return change >= fail_from_ && change < heal_from_ ? error_ : absl::OkStatus();
  }
  int64_t Used() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    int64_t bytes = 0;
    for (const auto& [path, content] : files_) bytes += static_cast<int64_t>(content.size());
    return bytes;
  }
  void Put(const std::string& path, std::string content, bool is_durable)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (Change& change : unsynced_) {
      if (change.path == path && change.after.has_value()) change.after = content;
    }
    if (!is_durable) unsynced_.push_back({.path = path, .entry = path, .after = content});
    files_[path] = std::move(content);
  }
  // Durably, as Files::CreateDirectories.
  void AddDirectories(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (size_t slash = path.find('/', 1); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
      AddDirectory(path.substr(0, slash));
    }
    AddDirectory(path);
  }
  void AddDirectory(const std::string& path) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (directories_.insert(path).second) Sync(path.substr(0, path.rfind('/')));
  }
  // Makes the names in `directory` durable, but not those further down.
  void Sync(const std::string& directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::erase_if(unsynced_, [&](const Change& change) {
      return change.entry.substr(0, change.entry.rfind('/')) == directory;
    });
  }
  static bool IsInside(const std::string& entry, const std::string& path) {
    return entry == path || absl::StartsWith(entry, path + "/");
  }
  static std::string Moved(const std::string& path, const std::string& from,
                           const std::string& to) {
    return IsInside(path, from) ? to + path.substr(from.size()) : path;
  }

  Mutex mutex_;
  std::map<std::string, std::string> files_;
  std::set<std::string> directories_;
  std::vector<Change> unsynced_;  // in their order
  int64_t capacity_ = std::numeric_limits<int64_t>::max();
  int64_t changes_ = 0;
  int64_t fail_from_ = std::numeric_limits<int64_t>::max();
  int64_t heal_from_ = std::numeric_limits<int64_t>::max();
  absl::Status error_;
  std::map<std::string, absl::Status> unreadable_;
  absl::Status removal_error_;
  std::string unremovable_;
  bool tears_writes_ = false;
};

}  // namespace penstock
