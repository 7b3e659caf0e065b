// penstock evaluate --decode from two texts on: pairs are prepared, a small GNMT is trained through workers, and what it
// translates is known.
#include <gmock/gmock.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/files.h"
#include "tests/services/cli/job_directory.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;
using Strings = std::vector<std::string>;

constexpr int kReversedPairs = 700;
constexpr int kWordsMax = 4;

// The translation: each letter in capitals, from the last one to the first.
std::string TranslationOf(const std::string& source) {
  Strings words = absl::StrSplit(source, ' ');
  std::reverse(words.begin(), words.end());
  for (std::string& word : words) word = absl::AsciiStrToUpper(word);
  return absl::StrJoin(words, " ");
}

// Two to four letters each, no two alike: a seventh of all that there are.
Strings Sources() {
  std::mt19937 random(1);
  std::set<std::string> taken;
  Strings sources;
  while (static_cast<int>(sources.size()) < kReversedPairs) {
    Strings words(2 + random() % (kWordsMax - 1));
    for (std::string& word : words) word = std::string(1, static_cast<char>('a' + random() % 8));
    const std::string source = absl::StrJoin(words, " ");
    if (taken.insert(source).second) sources.push_back(source);
  }
  return sources;
}

constexpr char kReversedJob[] = R"(name: reversed
model:
  gnmt: {layers: 4, hidden: 64, vocabulary: 64, source_time: 6, target_time: 6, dropout: 0,
         label_smoothing: 0}
data: {pairs: {path: pairs/train, validation: pairs/validation}}
training:
  steps: 1500
  batch: 64
  microbatches: 4
  optimizer: {adamw: {learning_rate: 5.0e-3, weight_decay: 0}}
  learning_rate: {warmup_steps: 20, decay: cosine}
  clip: {global_norm: 1}
  seed: 1
validation: {every_steps: 1500, batches: 1}
planning: {split: estimated}
)";

class DecodeTest : public ::testing::Test {
 protected:
  ProcessResult Penstock(Strings arguments) const {
    arguments.insert(arguments.begin(), ProgramPath("penstock"));
    return RunProcess(arguments);
  }
  Strings Lines(const std::string& name) const {
    const absl::StatusOr<std::string> text = RealFiles().Read(folder_.path(name), 1 << 20);
    EXPECT_THAT(text, IsOk());
    return absl::StrSplit(text.value_or(""), '\n', absl::SkipEmpty());
  }
  void Prepare() const {
    std::string sources, targets;
    for (const std::string& source : Sources()) {
      absl::StrAppend(&sources, source, "\n");
      absl::StrAppend(&targets, TranslationOf(source), "\n");
    }
    folder_.Write("sources.txt", sources);
    folder_.Write("targets.txt", targets);
    const ProcessResult made =
        Penstock({"data", "prepare", "pairs", "--source", folder_.path("sources.txt"), "--target",
                  folder_.path("targets.txt"), "-o", folder_.path("pairs"), "--pieces", "48",
                  "--validation", "0.1", "--test", "0.1"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
  }
  void Train() const {
    folder_.Write("job.yaml", kReversedJob);
    const ProcessResult trained = RunProcess(folder_.Train(
        {"--workers", "2", "--set", "checkpoint.directory=" + folder_.checkpoints()}));
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    EXPECT_THAT(trained.out, HasSubstr("tokens/s"));
  }

  JobDirectory folder_;
};

TEST_F(DecodeTest, ATrainedModel_TranslatesWhatItHasNotSeen) {
  ASSERT_NO_FATAL_FAILURE(Prepare());
  ASSERT_NO_FATAL_FAILURE(Train());
  const ProcessResult decoded =
      Penstock({"evaluate", folder_.checkpoints(), "--data", folder_.path("pairs/test"), "--decode",
                folder_.path("decoded"), "--json"});
  ASSERT_EQ(decoded.exit_code, 0) << decoded.err;
  const Json json = Json::parse(decoded.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(json.is_object()) << decoded.out;
  EXPECT_GT(json["metrics"]["accuracy"], 0.99);

  const Strings sources = Lines("decoded/sources.txt");
  ASSERT_GT(sources.size(), kReversedPairs / 20u);
  EXPECT_EQ(json["decoded"]["pairs"], sources.size());
  EXPECT_EQ(json["decoded"]["left_out"], 0);
  Strings expected;
  for (const std::string& source : sources) expected.push_back(TranslationOf(source));
  EXPECT_THAT(Lines("decoded/references.txt"), ElementsAreArray(expected));
  EXPECT_THAT(Lines("decoded/hypotheses.txt"), ElementsAreArray(expected));
}

}  // namespace
}  // namespace penstock
