// Every fuzz target with the inputs of its corpus and some hundred mutations of them: what `make fuzz` looks for with a
// fuzzer and for hours, `make test` looks for in seconds and the same way each time.
//
// PENSTOCK_FUZZ_MUTATIONS in the environment: how many mutations of each target instead.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/fuzz/mutator.h"
#include "tests/support/environment.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(PENSTOCK_SOURCE_DIR) / "tests" / "fuzz";

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> CorpusOf(const std::string& target) {
  std::vector<fs::path> paths;
  for (const fs::directory_entry& entry : fs::directory_iterator(kFolder / "corpus" / target)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> inputs;
  inputs.reserve(paths.size());
  for (const fs::path& path : paths) inputs.push_back(ReadAll(path));
  return inputs;
}

// The words of a dictionary in libFuzzer's form: "word" in each line, with escapes; # begins a comment.
std::vector<std::string> WordsOf(const std::string& target) {
  std::vector<std::string> words;
  std::ifstream file(kFolder / "words" / (target + ".dict"));
  for (std::string line; std::getline(file, line);) {
    const size_t begin = line.find('"');
    const size_t end = line.rfind('"');
    if (line.empty() || line[0] == '#' || begin == end) continue;
    std::string& word = words.emplace_back();
    EXPECT_TRUE(absl::CUnescape(line.substr(begin + 1, end - begin - 1), &word)) << line;
  }
  return words;
}

// What runs at the moment. The input of a crash is written from here.
struct Running {
  std::string path;  // where the input is written
  const char* bytes = nullptr;
  size_t size = 0;
};
Running running;

// Calls only what a signal handler may call.
void WriteInput(int signal) {
  const int file = open(running.path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const bool written =
      file >= 0 && write(file, running.bytes, running.size) == static_cast<ssize_t>(running.size);
  constexpr char kText[] = "fuzz_corpus_test: the input is in ";
  const bool told = written && write(STDERR_FILENO, kText, sizeof(kText) - 1) > 0 &&
                    write(STDERR_FILENO, running.path.data(), running.path.size()) > 0 &&
                    write(STDERR_FILENO, "\n", 1) > 0;
  std::signal(signal, SIG_DFL);
  if (!told || raise(signal) != 0) _exit(1);
}

void RunOn(const FuzzTarget& target, const std::string& input) {
  running.bytes = input.data();
  running.size = input.size();
  // A copy of just this size, so that sanitizers see who reads beyond it.
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  ASSERT_EQ(target.run(bytes.data(), bytes.size()), 0);
}

class FuzzCorpus : public ::testing::TestWithParam<FuzzTarget> {
 protected:
  FuzzCorpus() {
    running.path = absl::StrCat(::testing::TempDir(), "fuzz-", GetParam().name, ".input");
    // Sanitizers report these by themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    std::signal(SIGSEGV, WriteInput);
    std::signal(SIGFPE, WriteInput);
#endif
    std::signal(SIGABRT, WriteInput);
  }
  ~FuzzCorpus() override {
    for (const int signal : {SIGSEGV, SIGFPE, SIGABRT}) std::signal(signal, SIG_DFL);
  }
};

TEST_P(FuzzCorpus, InputsAndMutations_HoldWhatTheTargetChecks) {
  const FuzzTarget& target = GetParam();
  const std::vector<std::string> inputs = CorpusOf(target.name);
  ASSERT_FALSE(inputs.empty()) << "tests/fuzz/corpus/" << target.name << " needs inputs";
  fuzz_accepted = 0;
  for (const std::string& input : inputs) {
    ASSERT_LE(input.size(), target.input_bytes_max);
    RunOn(target, input);
  }
  EXPECT_GT(fuzz_accepted, 0) << "the parser takes no input of tests/fuzz/corpus/" << target.name
                              << " any more; add one that it takes";
  RunOn(target, "");
  Mutator mutator(/*seed=*/1, WordsOf(target.name), target.input_bytes_max);
  const int mutations = EnvironmentNumber("PENSTOCK_FUZZ_MUTATIONS", target.mutations);
  for (int i = 0; i < mutations; ++i) RunOn(target, mutator.Mutate(inputs));
}

INSTANTIATE_TEST_SUITE_P(Targets, FuzzCorpus, ::testing::ValuesIn(FuzzTargets()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace penstock
