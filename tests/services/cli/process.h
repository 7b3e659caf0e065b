// Process: runs a program as a user would, for tests of whole commands.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace penstock {

struct ProcessResult {
  int exit_code = -1;  // -signal if it was killed
  std::string out;
  std::string err;
};

// A running program. Its output goes to temporary files without names.
class Process {
 public:
  // REQUIRES: `arguments[0]` is the path of a program.
  explicit Process(const std::vector<std::string>& arguments);
  // Kills it if it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  std::string out() const;
  std::string err() const;
  // Waits for its end; kills it, and fails the test, after `timeout`.
  ProcessResult Wait(std::chrono::seconds timeout);

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  bool ended_ = false;
};

// Runs a program to its end, which must come within a minute.
ProcessResult RunProcess(const std::vector<std::string>& arguments);

// Looks again and again until `condition` holds. False after `timeout`.
bool Eventually(const std::function<bool()>& condition,
                std::chrono::seconds timeout = std::chrono::seconds(20));

// What a process says about its address after `before`, a regular expression: for "listens on ", in
// "listens on 127.0.0.1:4000". Waits for it; fails the test, and returns nothing, if it does not come.
std::string AwaitAddress(const Process& process, const std::string& before);

// Living processes (no zombies) whose command line contains `text`.
std::vector<pid_t> FindProcesses(const std::string& text);

// The path of a program of this build.
std::string ProgramPath(const std::string& name);

}  // namespace penstock
