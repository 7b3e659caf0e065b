#include "tests/services/cli/job_directory.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace penstock {
namespace {

// Five blocks of work at most: seven layers, of which a pipeline can have one to seven stages.
constexpr char kJob[] = R"(name: tiny
model:
  gpt: {layers: 2, width: 32, heads: 2, context: 16, tied_head: false}
data:
  text: {path: input.txt, tokenizer: bytes}
training:
  steps: 6
  batch: 16
  microbatches: 4
  optimizer: {adamw: {learning_rate: 1.0e-2}}
  clip: {layer_norm: 1.0}
  seed: 1
validation: {every_steps: 3, batches: 1}
pipeline:
  method: 1f1b
planning: {split: estimated}
)";

std::string Text() {
  std::string text;
  for (int i = 0; i < 600; ++i) {
    text += "Line " + std::to_string(i * 7919 % 600) + " of a text to learn from.\n";
  }
  return text;
}

}  // namespace

JobDirectory::JobDirectory() {
  std::string path = (std::filesystem::temp_directory_path() / "penstock-cli-XXXXXX").string();
  EXPECT_NE(mkdtemp(path.data()), nullptr);
  path_ = path;
  Write("job.yaml", kJob);
  Write("input.txt", Text());
}

JobDirectory::~JobDirectory() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
}

void JobDirectory::Write(const std::string& name, const std::string& text) const {
  std::ofstream(path_ / name, std::ios::binary) << text;
}

void JobDirectory::EditJob(const std::string& from, const std::string& to) const {
  std::ifstream file(job());
  std::stringstream text;
  text << file.rdbuf();
  std::string edited = text.str();
  const size_t at = edited.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  Write("job.yaml", edited.replace(at, from.size(), to));
}

std::vector<std::string> JobDirectory::Train(const std::vector<std::string>& more) const {
  std::vector<std::string> arguments = {ProgramPath("penstock"), "train", job()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

std::vector<std::string> JobDirectory::Checkpoints() const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoints(), error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-")) names.push_back(name);  // no lock file
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace penstock
