// DiskThreads: one thread for the work on each disk, so that a disk that hangs keeps only its own work from going on.
//
// Threads are made when there is work for their disk, and those without work end when another disk needs one. What is
// asked of one disk happens in the order it was asked.
//
// A thread that hangs in the kernel can be neither woken nor ended. Stop leaves it alone: when its call comes back it
// finishes its task and ends, so a task must not use what may be gone by then.
//
// Thread safety: all methods may be called from any thread.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "base/mutex.h"

namespace penstock {

// Names the disk of a directory, which need not exist.
using DiskNamer = std::function<std::string(const std::string& directory)>;

// Returns the mount point that `path`, from the root on, is below, as Linux lists them in /proc/self/mountinfo. Links are
// not followed: to look at one is to wait for the disk that has it. "/" if none fits.
std::string MountPointOf(const std::string& mountinfo, const std::string& path);

// Does so for this process, without asking any disk.
std::string NameDisk(const std::string& directory);

class DiskThreads {
 public:
  static constexpr size_t kDisksMax = 16;
  static constexpr size_t kTasksMax = 1024;  // that wait for one disk

  explicit DiskThreads(DiskNamer name_disk) : name_disk_(std::move(name_disk)) {}
  // Stop(), waiting for nobody.
  ~DiskThreads();
  DiskThreads(const DiskThreads&) = delete;
  DiskThreads& operator=(const DiskThreads&) = delete;

  // Runs `task` on the thread of the directory's disk. Does not wait for a disk.
  // Errors: ResourceExhausted (too much waits for this disk, or too many disks are at work: named), Unavailable (stopped).
  absl::Status Submit(const std::string& directory, std::function<void()> task)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Takes no more tasks, runs those that wait, and returns when all threads have ended, at the latest after `patience`:
  // then tasks that wait are dropped and the threads that hang are left. Returns whether there are none. Idempotent.
  bool Stop(std::chrono::milliseconds patience) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // What a thread and its owner share; it outlives the owner if the thread hangs.
  struct Disk {
    Mutex mutex;
    CondVar changed;
    std::deque<std::function<void()>> tasks ABSL_GUARDED_BY(mutex);
    bool busy ABSL_GUARDED_BY(mutex) = false;
    bool stopping ABSL_GUARDED_BY(mutex) = false;
    bool ended ABSL_GUARDED_BY(mutex) = false;
  };
  struct Worker {
    std::shared_ptr<Disk> disk;
    std::thread thread;
  };

  static void Work(Disk& disk);
  static void AskToEnd(Disk& disk);
  // Waits for the thread, which was asked to end, or leaves it. Returns whether it has ended.
  static bool AwaitEnd(Worker& worker, CondVar::Clock::time_point deadline);
  // Ends a thread that has nothing to do. Returns whether there was one.
  bool EndAnIdleOne() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const DiskNamer name_disk_;
  Mutex mutex_;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool none_hangs_ ABSL_GUARDED_BY(mutex_) = true;
  std::map<std::string, Worker> workers_ ABSL_GUARDED_BY(mutex_);  // by the disk's name
};

}  // namespace penstock
