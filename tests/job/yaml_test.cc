#include "job/yaml/yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "job/yaml/yaml_message.h"
#include "tests/job/jobs.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

TEST(ParseJobYaml, GoodJob_HasTheValuesOfTheFile) {
  const v1::JobSpec job = GoodJob();
  EXPECT_EQ(job.name(), "shakespeare");
  EXPECT_EQ(job.model().gpt().width(), 192);
  EXPECT_EQ(job.training().optimizer().adamw().learning_rate(), 1e-3);
  EXPECT_EQ(job.validation().batches(), 20);
  EXPECT_EQ(job.checkpoint().directory(), "checkpoints/");
  EXPECT_EQ(job.checkpoint().keep(), 2);
}

// One change to the good job, and what is said about it. The golden file is the list of everything
// a user can read after a mistake.
TEST(ParseJobYaml, Mistakes_GetTheMessagesOfTheGoldenFile) {
  const std::string text =
      "  text: {path: input.txt, tokenizer: bytes, validation_fraction: 0.1}\n";
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"steps: 400", "stepz: 400"},
      {"steps: 400", "momentum: 400"},
      {"steps: 400", "steps: many"},
      {"steps: 400", "steps: 4.5"},
      {"steps: 400", "steps: 1e3"},
      {"steps: 400", "steps: \"400\""},
      {"steps: 400", "steps:"},
      {"steps: 400", "steps: [400]"},
      {"steps: 400", "steps: 99999999999999999999"},
      {"steps: 400", "steps: 0"},
      {"steps: 400", "steps: -1"},
      {"  steps: 400\n", ""},
      {"  steps: 400\n", "  steps: 400\n  steps: 500\n"},
      {"name: shakespeare", "name: Shake Speare"},
      {"name: shakespeare\n", ""},
      {"name: shakespeare", "name: [a]"},
      {"layers: 6", "layers: 0"},
      {"heads: 6", "heads: 5"},
      {"width: 192", "width: wide"},
      {"context: 128", "context: 128, dropout: 1.0"},
      {"context: 128", "context: 128, tied_head: yes"},
      {"context: 128", "context: 128, vocabulary: 100"},
      {"gpt: {layers: 6, width: 192, heads: 6, context: 128}", "gpt:"},
      {"  gpt: {layers: 6, width: 192, heads: 6, context: 128}", "  {}"},
      {"  gpt: {layers: 6, width: 192, heads: 6, context: 128}", "  mixer: {layers: 6}"},
      {"context: 128}\n", "context: 128}\n  ignored_target: 3000000000\n"},
      {"context: 128}\n", "context: 128}\n  separate_documents: true\n"},
      {"gpt: {layers: 6, width: 192, heads: 6, context: 128}\n",
       "llama: {layers: 2, width: 8, heads: 2, hidden: 8, context: 8}\n"
       "  separate_documents: true\n"},
      {"path: input.txt, ", ""},
      {"tokenizer: bytes", "tokenizer: byte"},
      {"validation_fraction: 0.1", "validation_fraction: 0"},
      {"validation_fraction: 0.1", "validation_fraction: 1e400"},
      {"validation_fraction: 0.1", "validation_fraction: .nan"},
      {text, ""},
      {"tokenizer: bytes", "tokenizer: ./gpt2, tokenizer_sha256: \"12\""},
      {text, "  tokens: {order: shuffled}\n"},
      {text, "  tokens: {path: a.bin, format: u64}\n"},
      {text, "  tokens: {path: a.bin, order: backwards}\n"},
      {text, "  tokens: {path: a.bin, sha256: \"12\"}\n"},
      {text, "  tokens: {path: a.bin, validation_fraction: 0}\n"},
      {text, "  tokens: {path: a.bin, validation: b.bin, validation_fraction: 0.5}\n"},
      {text, "  tokens: {path: a.bin, validation_sha256: \"12\"}\n"},
      {text, "  tokens: {path: a.bin, weight: 0}\n"},
      {text, "  tokens: {path: a.bin, mixture: {path: b.bin}}\n"},
      {text, "  tokens: {path: a.bin, mixture: [{weight: 2}]}\n"},
      {text, "  tokens: {path: a.bin, mixture: [{path: b.bin, weigth: 2}]}\n"},
      {text, "  tokens: {path: a.bin, mixture: [{path: b.bin}, {path: c.bin, weight: -1}]}\n"},
      {text, "  tokens: {path: a.bin, mixture: [{path: b.bin, sha256: \"12\"}]}\n"},
      {text, "  tokens: {path: a.bin, order: contiguous, mixture: [{path: b.bin}]}\n"},
      {text, "  tokens: {path: a.bin, validation: v.bin, mixture: [{path: b.bin}]}\n"},
      {text, "  tokens: {path: a.bin, end_of_text: -1}\n"},
      {text, "  tokens: {path: a.bin, masking: {probability: 0}}\n"},
      {text, "  tokens: {path: a.bin, masking: {mask: 4}}\n"},
      {text, "  records: {order: shuffled}\n"},
      {text, "  records: {path: mnist, order: random-ish}\n"},
      {text, "  records: {path: mnist, augment: {crop: -1}}\n"},
      {text, "  records: {path: mnist, augment: {flip: left}}\n"},
      {text, "  records: {path: mnist, validation_fraction: 1.0}\n"},
      {text, "  records: {path: mnist, validation_fraction: 0}\n"},
      {text, "  records: {path: mnist, validation: test, validation_fraction: 0.5}\n"},
      {text, "  records: {path: mnist, validation_sha256: \"12\"}\n"},
      {text, "  records: {path: mnist, sha256: \"12\"}\n"},
      {text, "  records: {path: mnist}\n  synthetic: {}\n"},
      {text, "  synthetic: {seed: 1}\n"},
      {"microbatches: 8", "microbatches: 5"},
      {"microbatches: 8", "microbatches: 64"},
      {"  microbatches: 8\n", ""},
      {"adamw: {", "sgd: {learning_rate: 0.1}, adamw: {"},
      {"adamw: {learning_rate: 1.0e-3", "adamw: {learning_rate: -1.0e-3"},
      {"{adamw: {learning_rate: 1.0e-3, weight_decay: 0.1}}", "{}"},
      {"decay: cosine", "decay: cosin"},
      {"warmup_steps: 20", "warmup_steps: 500"},
      {"clip: {global_norm: 1.0}", "clip: {global_norm: 1.0, layer_norm: 1.0}"},
      {"clip: {global_norm: 1.0}", "clip: {global_norm: 0}"},
      {"precision: f32", "precision: fp32"},
      {"precision: f32", "rounding: stochastic"},
      {"precision: f32", "precision: bf16\n  rounding: random"},
      {"precision: f32", "stash: disk"},
      {"precision: f32", "cuda_graphs: always"},
      {"precision: f32", "deterministic: maybe"},
      {"seed: 1", "seed: -1"},
      {"seed: 1", "threads: 0"},
      {"seed: 1", "threads: 3000000000"},
      {"batches: 20", "batches: 0"},
      {"method: 1f1b", "method: 1f1"},
      {"method: 1f1b", "method: auto"},
      {"method: 1f1b", "method: pipedream"},
      {"  clip: {global_norm: 1.0}\n  precision: f32\n  seed: 1\nvalidation: {every_steps: 100, "
       "batches: "
       "20}\npipeline:\n  method: 1f1b",
       "  seed: 1\npipeline:\n  method: pipedream"},
      {"stages: 4", "stages: 16"},
      {"stages: 4", "stages: 0"},
      {"stages: 4", "stages: 4\n  recompute: first"},
      {"stages: 4", "stages: 4\n  recompute: 1,4"},
      {"stages: 4", "replicas: [3, many]"},
      {"stages: 4", "replicas: {first: 3}"},
      {"stages: 4", "replicas: [2, 0]"},
      {"stages: 4", "replicas: [3, 1]"},
      {"stages: 4", "stages: 4\n  replicas: [2, 1]"},
      {"stages: 4", "stage_layers: [4, all]"},
      {"stages: 4", "stage_layers: [15, 0]"},
      {"stages: 4", "stage_layers: [4, 4, 4]"},
      {"stages: 4", "stage_layers: [14, 9, 5]"},
      {"stages: 4", "stages: 4\n  stage_layers: [5, 5, 5]"},
      {", directory: checkpoints/", ""},
      {"every_steps: 150, directory: checkpoints/", "resume: latest"},
      {"directory: checkpoints/", "directory: checkpoints/, keep: 1"},
      {"pipeline:\n", "pipeline: &p\n"},
      {"seed: 1", "seed: *p"},
      {"seed: 1", "seed: {"},
      {"seed: 1", "\tseed: 1"},
      {"seed: 1", "[seed]: 1"},
      {"pipeline:\n", "---\npipeline:\n"},
      {"name: shakespeare", "name: \"\xff\""},
  };
  std::string messages;
  for (const auto& [from, to] : mistakes) {
    const absl::StatusOr<v1::JobSpec> job = ParseJobYaml(GoodJobWith(from, to), "job.yaml");
    ASSERT_FALSE(job.ok()) << from << " -> " << to;
    EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
    absl::StrAppend(&messages, job.status().message(), "\n");
  }
  ExpectEqualsGolden("job/mistakes.txt", messages);
}

TEST(ParseJobYaml, NoMapping_IsRefused) {
  for (const char* text : {"", "# only a comment\n", "---\n", "~", "[]", "text", "{", "\"",
                           "- a\n- b", "a: b: c", "%YAML 9.9\n---\n"}) {
    EXPECT_THAT(ParseJobYaml(text, "job.yaml"),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("job.yaml")))
        << text;
  }
}

TEST(ReadJobDocument, MissingFile_IsNotFound) {
  EXPECT_THAT(ReadJobDocument("/nonexistent/job.yaml"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nonexistent/job.yaml")));
}

TEST(ReadJobDocument, TooLargeOrNoFile_IsBadInput) {
  const std::string path = absl::StrCat(::testing::TempDir(), "penstock-large-", getpid(), ".yaml");
  std::ofstream(path) << std::string(kYamlBytesMax + 1, '#');
  EXPECT_THAT(ReadJobDocument(path),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1048577 bytes")));
  std::filesystem::remove(path);
  EXPECT_THAT(ReadJobDocument(::testing::TempDir()),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("is a directory")));
  EXPECT_THAT(ReadJobDocument("/dev/null"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("pipe or device")));
}

TEST(CompleteJob, Examples_AreValid) {
  int examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(PENSTOCK_SOURCE_DIR "/examples")) {
    if (entry.path().extension() != ".yaml") {
      continue;
    }
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const JobDocument document,
                                  ReadJobDocument(entry.path().string()));
    EXPECT_THAT(CompleteJob(document), IsOk());
    ++examples;
  }
  EXPECT_GE(examples, 2);
}

}  // namespace
}  // namespace penstock
