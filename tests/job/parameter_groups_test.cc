#include "job/parameter_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "job/model_graph.h"
#include "job/resolve.h"
#include "job/yaml/yaml.h"
#include "model/describe.h"
#include "tests/job/jobs.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

absl::StatusOr<ResolvedJob> JobWith(const std::string& training, const std::string& model = "") {
  std::string text = GoodJobWith("  seed: 1\n", "  seed: 1\n" + training);
  const std::string gpt = "  gpt: {layers: 6, width: 192, heads: 6, context: 128}\n";
  text.replace(text.find(gpt), gpt.size(), gpt + model);
  const absl::StatusOr<v1::JobSpec> spec = ParseJobYaml(text, "job.yaml");
  if (!spec.ok()) return spec.status();
  return ResolveJob(*spec);
}

std::map<std::string, ParameterSpec> ParametersOf(const ResolvedJob& job) {
  std::map<std::string, ParameterSpec> parameters;
  for (const LayerSpec& layer : job.model.layers) {
    for (const ParameterSpec& parameter : layer.parameters) {
      parameters.emplace(parameter.name, parameter);
    }
  }
  return parameters;
}

TEST(ParameterGroups, TheFirstThatMatches_Counts) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, JobWith(R"(  groups:
  - {parameters: "h.0.*.bias", learning_rate_scale: 0.5}
  - {parameters: "h.0.*", frozen: true}
  - {parameters: "*.bias", weight_decay: 0.25}
)"));
  const std::map<std::string, ParameterSpec> parameters = ParametersOf(job);
  EXPECT_EQ(parameters.at("h.0.ln_1.bias").rate_scale, 0.5);
  EXPECT_FALSE(parameters.at("h.0.ln_1.bias").frozen);
  EXPECT_FALSE(parameters.at("h.0.ln_1.bias").weight_decay.has_value());
  EXPECT_TRUE(parameters.at("h.0.ln_1.weight").frozen);
  EXPECT_EQ(parameters.at("h.1.ln_1.bias").weight_decay, 0.25);
  EXPECT_EQ(parameters.at("h.1.ln_1.bias").rate_scale, 1.0);
  EXPECT_FALSE(parameters.at("wte.weight").frozen);
}

TEST(ParameterGroups, Mistakes_AreNamedWithTheirPlace) {
  EXPECT_THAT(JobWith("  groups:\n  - {parameters: \"*.c_attn.wait\", frozen: true}\n").status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("job.yaml:16:6: training.groups[0].parameters: is "
                                       "\"*.c_attn.wait\", which matches no parameter"),
                             HasSubstr("attn.c_attn.weight"))));
  EXPECT_THAT(JobWith("  groups: [{parameters: \"*\", frozen: true}]\n"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nothing is left to train")));
  EXPECT_THAT(JobWith("  groups: [{frozen: true}]\n"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("training.groups[0].parameters: is missing")));
  EXPECT_THAT(
      JobWith("  groups: [{parameters: \"*\", learning_rate_scale: -1}]\n"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("learning_rate_scale: is -1")));
  EXPECT_THAT(
      JobWith("  groups: [{parameters: \"w*\", weight_decay: 0.1, frozen: true}]\n"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("training.groups[0]: is frozen")));
}

TEST(ParameterGroups, FrozenLayers_AreOtherWorkAndTheSameModel) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob plain, JobWith(""));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job,
                                JobWith("  groups: [{parameters: \"h.0.*\", frozen: true}]\n"));
  const LayerSpec& frozen = job.model.layers[1];
  EXPECT_EQ(Describe(job.model, frozen), Describe(plain.model, plain.model.layers[1]));
  EXPECT_THAT(DescribeWork(job.model, frozen),
              HasSubstr("with frozen parameters 0, 1, 2, 3, 4, 5"));
  EXPECT_EQ(DescribeWork(job.model, job.model.layers[3]),
            DescribeWork(plain.model, plain.model.layers[3]));
  EXPECT_EQ(FirstLayersOfShapes(job.model).size(), FirstLayersOfShapes(plain.model).size() + 2);
}

TEST(Lora, AllElse_IsFrozenUnlessAGroupSaysOtherwise) {
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job,
                                JobWith("  groups: [{parameters: \"ln_f.*\"}, {parameters: "
                                        "\"*lora_B*\", learning_rate_scale: 16}]\n",
                                        "  lora: {rank: 4, targets: [\"*.c_attn\"]}\n"));
  for (const auto& [name, parameter] : ParametersOf(job)) {
    const bool trained = name.find("lora_") != std::string::npos || name.find("ln_f") == 0;
    EXPECT_EQ(parameter.frozen, !trained) << name;
    EXPECT_EQ(parameter.rate_scale, name.find("lora_B") == std::string::npos ? 1.0 : 16.0) << name;
  }
  EXPECT_TRUE(std::holds_alternative<ModelGraph>(StoredModelOf([] {
    v1::JobSpec spec = GoodJob();
    spec.mutable_model()->mutable_lora()->add_targets("*");
    return spec.model();
  }())));
}

TEST(Lora, MistakenTargets_AreNamed) {
  EXPECT_THAT(
      JobWith("", "  lora: {rank: 4}\n"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("model.lora.targets: has none")));
  EXPECT_THAT(JobWith("", "  lora: {targets: [\"*.c_atn\"]}\n"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("matches no linear map"), HasSubstr("attn.c_attn"))));
  EXPECT_THAT(JobWith("", "  lora: {targets: [wte]}\n"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("which matches wte.weight of the op gpt_embedding")));
}

}  // namespace
}  // namespace penstock
