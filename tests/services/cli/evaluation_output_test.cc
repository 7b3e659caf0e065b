#include "services/cli/evaluation_output.h"

#include <gtest/gtest.h>

#include "tests/support/golden.h"

namespace penstock {
namespace {

EvaluationReport OfText() {
  return {.checkpoint = "checkpoints/step-000000000400",
          .step = 400,
          .data = "input.txt",
          .split = "validation",
          .scores = {.samples = 871,
                     .targets = 111488,
                     .evaluation = {2.1321, {{"accuracy", 0.4013}, {"top5", 0.75}}},
                     .perplexity = 8.43255},
          .bits_per_byte = 3.07597};
}

TEST(EvaluationOutput, OfAText_MatchesGolden) {
  ExpectEqualsGolden("cli/evaluation.txt", EvaluationText(OfText()));
  ExpectEqualsGolden("cli/evaluation.json", EvaluationJson(OfText()).dump(2) + "\n");
}

TEST(EvaluationOutput, OfALossWithoutClasses_HasTheLossAlone) {
  const EvaluationReport report = {.checkpoint = "a",
                                   .step = 1,
                                   .data = "b",
                                   .split = "all",
                                   .scores = {.samples = 2, .targets = 6, .evaluation = {0.5, {}}}};
  EXPECT_EQ(EvaluationText(report),
            "a, step 1\nb, all: 2 samples, 6 targets\n\nMETRIC   VALUE\nloss    0.5000\n");
  const nlohmann::ordered_json json = EvaluationJson(report);
  EXPECT_TRUE(json["perplexity"].is_null());
  EXPECT_TRUE(json["bits_per_byte"].is_null());
  EXPECT_TRUE(json["metrics"].empty());
  EXPECT_TRUE(json["decoded"].is_null());
}

TEST(EvaluationOutput, OfAveragedWeights_SaysSo) {
  EvaluationReport report = OfText();
  report.weights = WeightChoice::kAverage;
  EXPECT_EQ(EvaluationText(report).substr(0, 56),
            "checkpoints/step-000000000400, step 400, averaged weight");
  EXPECT_EQ(EvaluationJson(report)["weights"], "ema");
}

TEST(EvaluationOutput, OfDecodedPairs_SaysWhereTheyAre) {
  EvaluationReport report = {
      .checkpoint = "a",
      .step = 1,
      .data = "b",
      .split = "all",
      .scores = {.samples = 2, .targets = 6, .evaluation = {0.5, {}}},
      .decoded = DecodedPairs{.files = {"s.txt", "r.txt", "h.txt"}, .pairs = 2}};
  EXPECT_EQ(EvaluationText(report),
            "a, step 1\nb, all: 2 samples, 6 targets\n\nMETRIC   VALUE\nloss    0.5000\n\n"
            "wrote h.txt beside r.txt: 2 pairs\n");
  report.decoded->left_out = 3;
  EXPECT_NE(EvaluationText(report).find("2 pairs; 3 are not among them"), std::string::npos);
  EXPECT_EQ(EvaluationJson(report)["decoded"]["sources"], "s.txt");
  EXPECT_EQ(EvaluationJson(report)["decoded"]["left_out"], 3);
}

}  // namespace
}  // namespace penstock
