// JobDirectory: a temporary directory with a tiny job and a text for it, for tests of whole commands.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/services/cli/process.h"

namespace penstock {

class JobDirectory {
 public:
  JobDirectory();
  ~JobDirectory();
  JobDirectory(const JobDirectory&) = delete;
  JobDirectory& operator=(const JobDirectory&) = delete;

  std::string path(const std::string& name = "") const { return (path_ / name).string(); }
  std::string job() const { return path("job.yaml"); }
  std::string checkpoints() const { return path("checkpoints"); }

  // Writes a file, replacing an old one.
  void Write(const std::string& name, const std::string& text) const;
  // Replaces `from`, which must be there, by `to` in the job file.
  void EditJob(const std::string& from, const std::string& to) const;

  // The arguments of `penstock train` for the job, and these.
  std::vector<std::string> Train(const std::vector<std::string>& more = {}) const;
  // Names of checkpoints, finished or not, in the checkpoint directory, sorted.
  std::vector<std::string> Checkpoints() const;
  // Processes that work on this job.
  std::vector<pid_t> Processes() const { return FindProcesses(path_.string()); }

 private:
  std::filesystem::path path_;
};

}  // namespace penstock
