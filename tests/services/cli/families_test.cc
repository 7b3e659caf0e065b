// Every family of models through four worker processes over gRPC, at sizes that take a moment: the weights are those of
// the serial reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/services/cli/job_directory.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using Json = nlohmann::ordered_json;

struct FamilyCase {
  const char* name;
  const char* model;
  // What is said where it has no definition; null: it trains.
  const char* asynchronous_refused = nullptr;
  const char* replicas_refused = nullptr;
};

constexpr char kShares[] = "share";
constexpr char kHasBuffers[] = "running statistics";

constexpr FamilyCase kFamilies[] = {
    {"gpt", "gpt: {layers: 2, width: 16, heads: 2, context: 8, tied_head: false, dropout: 0.1}"},
    {"gpt_tied", "gpt: {layers: 1, width: 16, heads: 2, context: 8}", kShares},
    {"vgg", "vgg: {depth: 11, hidden: 16, image: {size: 32, classes: 4}}"},
    {"vgg_bn", "vgg: {depth: 11, batch_norm: true, hidden: 16, image: {size: 32, classes: 4}}",
     nullptr, kHasBuffers},
    {"alexnet", "alexnet: {hidden: 16, image: {size: 63, classes: 4}}"},
    {"alexnet_2012", "alexnet: {variant: \"2012\", hidden: 16, image: {size: 63, classes: 4}}"},
    {"resnet", "resnet: {depth: 18, image: {size: 32, classes: 4}}", nullptr, kHasBuffers},
    {"cifar_resnet", "cifar_resnet: {depth: 8, width: 4, image: {size: 8, classes: 4}}", nullptr,
     kHasBuffers},
    {"lstm_lm", "lstm_lm: {layers: 2, hidden: 8, context: 6, vocabulary: 20}"},
    {"awd_lm", "awd_lm: {hidden: 8, embedding: 6, context: 6, vocabulary: 20, tied: false}"},
    {"awd_lm_tied", "awd_lm: {hidden: 8, embedding: 6, context: 6, vocabulary: 20}", kShares},
    {"gnmt", "gnmt: {layers: 4, hidden: 8, vocabulary: 20, source_time: 6, target_time: 5}"},
    {"s2vt", "s2vt: {vocabulary: 20, frames: 4, words: 3, features: 9, hidden: 8, embedding: 6}"},
};

constexpr char kJobBehindTheModel[] = R"(
data: {synthetic: {}}
training:
  steps: 2
  batch: 8
  microbatches: 4
  optimizer: {sgd: {learning_rate: 0.01, momentum: 0.9, nesterov: true}}
  seed: 3
planning: {split: estimated}
)";

class FamiliesOverGrpc : public ::testing::TestWithParam<FamilyCase> {
 protected:
  FamiliesOverGrpc() {
    job_.Write("job.yaml",
               std::string("name: family\nmodel:\n  ") + GetParam().model + kJobBehindTheModel);
  }

  std::vector<std::string> Train(const std::vector<std::string>& flags) const {
    std::vector<std::string> arguments = job_.Train({"--workers", "4", "--json"});
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return arguments;
  }

  std::string Weights(std::vector<std::string> flags) const {
    const ProcessResult result = RunProcess(Train(flags));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const Json json = Json::parse(result.out, nullptr, /*allow_exceptions=*/false);
    return json.is_object() ? json["weights_sha256"].get<std::string>() : "";
  }

  void ExpectRefused(const std::vector<std::string>& flags, const char* reason) const {
    const ProcessResult result = RunProcess(Train(flags));
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr(reason));
  }

  JobDirectory job_;
};

TEST_P(FamiliesOverGrpc, MethodsThatDrain_GiveTheReferencesWeights) {
  const std::string reference = Weights({"--reference"});
  ASSERT_THAT(reference, SizeIs(64));
  EXPECT_EQ(Weights({"--method", "1f1b"}), reference);
  EXPECT_EQ(Weights({"--method", "zb-h1"}), reference);
}

TEST_P(FamiliesOverGrpc, TwoReplicasOfTwoStages_GiveTheReferencesWeights) {
  const std::string replicas = "pipeline.replicas=2";
  if (GetParam().replicas_refused != nullptr) {
    ExpectRefused({"--set", replicas}, GetParam().replicas_refused);
    return;
  }
  const std::string reference = Weights({"--set", replicas, "--reference"});
  ASSERT_THAT(reference, SizeIs(64));
  EXPECT_EQ(Weights({"--set", replicas}), reference);
}

TEST_P(FamiliesOverGrpc, MethodsThatDoNotDrain_GiveTheirReferencesWeights) {
  for (const char* method : {"pipedream", "pipedream-2bw", "paci", "nesterov"}) {
    SCOPED_TRACE(method);
    if (GetParam().asynchronous_refused != nullptr) {
      ExpectRefused({"--method", method}, GetParam().asynchronous_refused);
      continue;
    }
    const std::string reference = Weights({"--method", method, "--reference"});
    ASSERT_THAT(reference, SizeIs(64));
    EXPECT_EQ(Weights({"--method", method}), reference);
  }
}

INSTANTIATE_TEST_SUITE_P(All, FamiliesOverGrpc, ::testing::ValuesIn(kFamilies),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace penstock
