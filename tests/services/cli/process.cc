#include "tests/services/cli/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>

namespace penstock {
namespace {

std::string ReadAll(int fd) {
  std::string text;
  char piece[4096];
  off_t offset = 0;
  for (ssize_t size; (size = pread(fd, piece, sizeof piece, offset)) > 0; offset += size) {
    text.append(piece, static_cast<size_t>(size));
  }
  return text;
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

Process::Process(const std::vector<std::string>& arguments)
    : out_(memfd_create("out", MFD_CLOEXEC)), err_(memfd_create("err", MFD_CLOEXEC)) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    setpgid(0, 0);  // as a shell does: a signal to the test does not reach it
    dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
    dup2(out_, STDOUT_FILENO);
    dup2(err_, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
}

Process::~Process() {
  if (!ended_) {
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(out_);
  close(err_);
}

void Process::Signal(int signal) const { kill(pid_, signal); }
std::string Process::out() const { return ReadAll(out_); }
std::string Process::err() const { return ReadAll(err_); }

ProcessResult Process::Wait(std::chrono::seconds timeout) {
  int status = 0;
  const bool in_time = Eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, timeout);
  if (!in_time) {
    ADD_FAILURE() << "no end within " << timeout.count() << " s; it said:\n" << err();
    Signal(SIGKILL);
    waitpid(pid_, &status, 0);
  }
  ended_ = true;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status), out(), err()};
}

ProcessResult RunProcess(const std::vector<std::string>& arguments) {
  return Process(arguments).Wait(std::chrono::seconds(60));
}

bool Eventually(const std::function<bool()>& condition, std::chrono::seconds timeout) {
  const auto give_up_at = std::chrono::steady_clock::now() + timeout;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > give_up_at) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

std::string AwaitAddress(const Process& process, const std::string& before) {
  const std::regex pattern(before + "([0-9.]+:[0-9]+)");
  std::string address;
  EXPECT_TRUE(Eventually([&] {
    const std::string said = process.err();
    std::smatch match;
    if (!std::regex_search(said, match, pattern)) return false;
    address = match[1];
    return true;
  })) << process.err();
  return address;
}

std::vector<pid_t> FindProcesses(const std::string& text) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    // A zombie has no command line any more.
    std::string command_line = ReadFile(entry.path() / "cmdline");
    std::replace(command_line.begin(), command_line.end(), '\0', ' ');
    if (command_line.find(text) != std::string::npos) found.push_back(std::stoi(name));
  }
  return found;
}

std::string ProgramPath(const std::string& name) {
  return std::string(PENSTOCK_BIN_DIR) + "/" + name;
}

}  // namespace penstock
