#include "services/coordinator/disk_threads.h"

#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/confined_files.h"
#include "services/rpc/completion_poller.h"

namespace penstock {
namespace {

// A blank in a path is "\040" there.
std::string Unescape(absl::string_view text) {
  constexpr size_t kDigits = 3;
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const absl::string_view digits = text.substr(i + 1, kDigits);
    if (text[i] != '\\' || digits.size() < kDigits ||
        digits.find_first_not_of("01234567") != absl::string_view::npos) {
      plain += text[i];
      continue;
    }
    plain += static_cast<char>((digits[0] - '0') * 64 + (digits[1] - '0') * 8 + (digits[2] - '0'));
    i += kDigits;
  }
  return plain;
}

}  // namespace

std::string MountPointOf(const std::string& mountinfo, const std::string& path) {
  constexpr size_t kMountPointField = 4;
  std::string longest = "/";
  for (const absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, ' ');
    if (fields.size() <= kMountPointField) continue;
    std::string point = Unescape(fields[kMountPointField]);
    const bool above = path == point || absl::StartsWith(path, absl::StrCat(point, "/"));
    if (above && point.size() > longest.size()) longest = std::move(point);
  }
  return longest;
}

std::string NameDisk(const std::string& directory) {
  std::ifstream file("/proc/self/mountinfo");
  std::ostringstream mountinfo;
  mountinfo << file.rdbuf();
  return MountPointOf(mountinfo.str(), AbsolutePath(directory));
}

DiskThreads::~DiskThreads() { Stop(std::chrono::milliseconds(0)); }

absl::Status DiskThreads::Submit(const std::string& directory, std::function<void()> task) {
  const std::string name = name_disk_(directory);
  MutexLock lock(mutex_);
  if (stopped_) return absl::UnavailableError("the coordinator is shutting down");
  if (workers_.count(name) == 0 && workers_.size() >= kDisksMax && !EndAnIdleOne()) {
    const auto name_of = [](std::string* out, const auto& entry) { out->append(entry.first); };
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot work on ", directory, ": ", kDisksMax,
                     " other disks are at work, which is the limit; see whether one hangs: ",
                     absl::StrJoin(workers_, ", ", name_of)));
  }
  Worker& worker = workers_[name];
  if (worker.disk == nullptr) {
    worker.disk = std::make_shared<Disk>();
    worker.thread = std::thread([disk = worker.disk] { Work(*disk); });
  }
  MutexLock disk_lock(worker.disk->mutex);
  if (worker.disk->tasks.size() >= kTasksMax) {
    return absl::ResourceExhaustedError(absl::StrCat("cannot work on ", directory, ": ", kTasksMax,
                                                     " tasks wait for the disk at ", name,
                                                     ", which is the limit; see whether it hangs"));
  }
  worker.disk->tasks.push_back(std::move(task));
  worker.disk->changed.NotifyAll();
  return absl::OkStatus();
}

bool DiskThreads::Stop(std::chrono::milliseconds patience) {
  const CondVar::Clock::time_point deadline = CondVar::Clock::now() + patience;
  MutexLock lock(mutex_);
  stopped_ = true;
  for (auto& [name, worker] : workers_) AskToEnd(*worker.disk);
  for (auto& [name, worker] : workers_) {
    if (!AwaitEnd(worker, deadline)) none_hangs_ = false;
  }
  workers_.clear();
  return none_hangs_;
}

void DiskThreads::Work(Disk& disk) {
  NameThread("checkpoints");
  while (true) {
    std::function<void()> task;
    {
      MutexLock lock(disk.mutex);
      disk.busy = false;
      while (disk.tasks.empty() && !disk.stopping) disk.changed.Wait(disk.mutex);
      if (disk.tasks.empty()) {
        disk.ended = true;
        disk.changed.NotifyAll();
        return;
      }
      task = std::move(disk.tasks.front());
      disk.tasks.pop_front();
      disk.busy = true;
    }
    task();
  }
}

void DiskThreads::AskToEnd(Disk& disk) {
  MutexLock lock(disk.mutex);
  disk.stopping = true;
  disk.changed.NotifyAll();
}

bool DiskThreads::AwaitEnd(Worker& worker, CondVar::Clock::time_point deadline) {
  std::deque<std::function<void()>> dropped;  // goes when the disk is unlocked
  {
    Disk& disk = *worker.disk;
    MutexLock lock(disk.mutex);
    while (!disk.ended && disk.changed.WaitUntil(disk.mutex, deadline)) {
    }
    if (!disk.ended) {
      disk.tasks.swap(dropped);
      worker.thread.detach();
      return false;
    }
  }
  worker.thread.join();
  return true;
}

bool DiskThreads::EndAnIdleOne() {
  for (auto worker = workers_.begin(); worker != workers_.end(); ++worker) {
    {
      Disk& disk = *worker->second.disk;
      MutexLock lock(disk.mutex);
      if (disk.busy || !disk.tasks.empty()) continue;
      disk.stopping = true;
      disk.changed.NotifyAll();
    }
    worker->second.thread.join();  // it has nothing left to do
    workers_.erase(worker);
    return true;
  }
  return false;
}

}  // namespace penstock
