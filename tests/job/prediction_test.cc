// What a job says of its own prediction, and when that is of another job.
#include "job/prediction.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "job/defaults.h"
#include "job/fingerprint.h"
#include "job/run/agreement.h"
#include "job/yaml/yaml.h"
#include "job/yaml/yaml_writer.h"
#include "tests/job/jobs.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Of 4 stages on 4 workers.
v1::JobSpec PredictedJob() {
  v1::JobSpec spec = GoodJob();
  v1::PredictionSpec& prediction = *spec.mutable_prediction();
  prediction.set_step_seconds(0.25);
  for (int worker = 0; worker < 4; ++worker) {
    prediction.add_memory_bytes(1'000'000 + worker);
    prediction.add_sent_bytes(1e6 / (worker + 1));
    prediction.mutable_times()->add_speeds(1.0);
  }
  const ResolvedJob job = *ResolveJob(GoodJob());
  for (const LayerSpec& layer : job.model.layers) {
    v1::LayerTimes& times = *prediction.mutable_times()->add_layers();
    times.set_layer(layer.name);
    times.mutable_times()->set_forward_ms(2.5);
  }
  prediction.set_job_sha256(PredictedJobSha256(spec));
  return spec;
}

TEST(Prediction, Job_ComesBackFromYamlWithAllOfIt) {
  const v1::JobSpec spec = PredictedJob();
  ASSERT_THAT(ValidateJob(spec), IsOk());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::JobSpec read,
                                ParseJobYaml(WriteYamlMessage(spec, "planned"), "planned.yaml"));
  EXPECT_EQ(read.SerializeAsString(), spec.SerializeAsString());
}

TEST(Prediction, WhatARunComputes_DoesNotDependOnIt) {
  const v1::JobSpec spec = PredictedJob();
  v1::JobSpec other = GoodJob();
  other.mutable_feedback()->set_drift_bound(0.5);
  other.mutable_feedback()->set_replan("auto");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob with, ResolveJob(spec));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob without, ResolveJob(other));
  EXPECT_EQ(AgreementOf(with), AgreementOf(without));
  EXPECT_EQ(FingerprintOf(spec, with), FingerprintOf(other, without));
}

TEST(Prediction, ChangeThatCostsNoTime_KeepsIt) {
  const std::function<void(v1::JobSpec&)> changes[] = {
      [](v1::JobSpec& spec) { spec.set_name("other"); },
      [](v1::JobSpec& spec) { spec.mutable_model()->mutable_pretrained()->set_directory("m"); },
      [](v1::JobSpec& spec) { spec.mutable_data()->mutable_text()->set_path("b.txt"); },
      [](v1::JobSpec& spec) { spec.mutable_training()->set_steps(7); },
      [](v1::JobSpec& spec) { spec.mutable_training()->set_seed(7); },
      [](v1::JobSpec& spec) {
        spec.mutable_training()->mutable_optimizer()->mutable_adamw()->set_learning_rate(0.5);
      },
      [](v1::JobSpec& spec) {
        spec.mutable_training()->mutable_learning_rate()->set_warmup_steps(3);
      },
      [](v1::JobSpec& spec) { spec.mutable_checkpoint()->set_resume("latest"); },
      [](v1::JobSpec& spec) { spec.mutable_validation()->set_every_steps(0); },
      [](v1::JobSpec& spec) { spec.mutable_feedback()->set_drift_steps(7); },
      [](v1::JobSpec& spec) { spec.mutable_recovery()->set_mode("off"); },
  };
  for (const auto& change : changes) {
    v1::JobSpec spec = PredictedJob();
    change(spec);
    EXPECT_FALSE(DropOtherPrediction(spec));
    EXPECT_TRUE(spec.has_prediction());
  }
}

TEST(Prediction, ChangeThatCostsTime_DropsIt) {
  const std::function<void(v1::JobSpec&)> changes[] = {
      [](v1::JobSpec& spec) { spec.mutable_pipeline()->set_stages(3); },
      [](v1::JobSpec& spec) { spec.mutable_pipeline()->set_method("gpipe"); },
      [](v1::JobSpec& spec) { spec.mutable_pipeline()->set_recompute("all"); },
      [](v1::JobSpec& spec) { spec.mutable_pipeline()->add_stage_layers(15); },
      [](v1::JobSpec& spec) { spec.mutable_training()->set_microbatches(4); },
      [](v1::JobSpec& spec) { spec.mutable_training()->set_batch(64); },
      [](v1::JobSpec& spec) { spec.mutable_training()->set_precision("bf16"); },
      [](v1::JobSpec& spec) { spec.mutable_training()->set_threads(2); },
      [](v1::JobSpec& spec) {
        spec.mutable_training()->mutable_optimizer()->mutable_sgd()->set_learning_rate(0.1);
      },
      [](v1::JobSpec& spec) { spec.mutable_model()->mutable_gpt()->set_layers(5); },
  };
  for (const auto& change : changes) {
    v1::JobSpec spec = PredictedJob();
    change(spec);
    EXPECT_TRUE(DropOtherPrediction(spec));
    EXPECT_FALSE(spec.has_prediction());
  }
}

TEST(Prediction, FileWhoseJobWasChanged_LosesIt) {
  v1::JobSpec spec = PredictedJob();
  spec.mutable_pipeline()->set_stages(3);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::JobSpec read,
                                ParseJobYaml(WriteYamlMessage(spec, ""), "planned.yaml"));
  EXPECT_FALSE(read.has_prediction());
  EXPECT_EQ(read.pipeline().stages(), 3);
}

TEST(Prediction, WithoutADigest_IsNotLookedAt) {
  v1::JobSpec spec = PredictedJob();
  spec.mutable_prediction()->clear_job_sha256();
  spec.mutable_training()->set_batch(64);
  EXPECT_FALSE(DropOtherPrediction(spec));
}

TEST(Prediction, AnotherMethod_LeavesItBehind) {
  v1::JobSpec spec = PredictedJob();
  SetMethod("1f1b", /*keeps_optimizer=*/false, spec);
  EXPECT_TRUE(spec.has_prediction());
  SetMethod("gpipe", /*keeps_optimizer=*/false, spec);
  EXPECT_FALSE(spec.has_prediction());
}

TEST(Prediction, NumbersThatCannotBe_AreRefusedNamingTheKey) {
  const auto error_of = [](const std::function<void(v1::PredictionSpec&)>& change) {
    v1::JobSpec spec = PredictedJob();
    change(*spec.mutable_prediction());
    return ValidateJob(spec);
  };
  for (const double seconds : {0.0, -1.0, kNaN, std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT(error_of([&](v1::PredictionSpec& p) { p.set_step_seconds(seconds); }),
                StatusIs(kInvalid, StartsWith("prediction.step_seconds: is ")));
  }
  EXPECT_THAT(error_of([](v1::PredictionSpec& p) { p.set_memory_bytes(2, -1); }),
              StatusIs(kInvalid, StartsWith("prediction.memory_bytes: is -1")));
  EXPECT_THAT(error_of([](v1::PredictionSpec& p) { p.add_memory_bytes(1); }),
              StatusIs(kInvalid, AllOf(StartsWith("prediction.memory_bytes: has 5 numbers"),
                                       HasSubstr("4 workers"))));
  EXPECT_THAT(error_of([](v1::PredictionSpec& p) { p.set_sent_bytes(0, kNaN); }),
              StatusIs(kInvalid, StartsWith("prediction.sent_bytes: is nan")));
  EXPECT_THAT(error_of([](v1::PredictionSpec& p) { p.add_sent_bytes(1); }),
              StatusIs(kInvalid, StartsWith("prediction.sent_bytes: has 5 numbers")));
  EXPECT_THAT(error_of([](v1::PredictionSpec& p) { p.mutable_times()->set_speeds(1, -2.0); }),
              StatusIs(kInvalid, StartsWith("prediction.times.speeds: that of worker 1 is -2")));
  EXPECT_THAT(error_of([](v1::PredictionSpec& p) { p.mutable_times()->add_speeds(1.0); }),
              StatusIs(kInvalid, StartsWith("prediction.times.speeds: has 5 numbers")));
  EXPECT_THAT(error_of([](v1::PredictionSpec& p) { p.mutable_times()->clear_layers(); }),
              StatusIs(kInvalid, StartsWith("prediction.times: has no times")));
  EXPECT_THAT(error_of([](v1::PredictionSpec& p) {
                p.mutable_times()->mutable_layers(0)->set_layer("h.9.attention");
              }),
              StatusIs(kInvalid, StartsWith("prediction.times.layers: ")));
  EXPECT_THAT(error_of([](v1::PredictionSpec& p) {
                p.mutable_times()->clear_layers();
                p.mutable_times()->mutable_model()->set_forward_ms(1.0);
              }),
              StatusIs(kInvalid, StartsWith("prediction.times.model: ")));
  EXPECT_THAT(error_of([](v1::PredictionSpec& p) {
                v1::LinkTimes& link = *p.mutable_times()->add_links();
                link.add_workers(0);
                link.add_workers(4);
              }),
              StatusIs(kInvalid, StartsWith("prediction.times.links: joins worker 4")));
}

TEST(Prediction, OfNoNumberOfStages_IsRefused) {
  v1::JobSpec spec = PredictedJob();
  spec.mutable_pipeline()->clear_stages();
  EXPECT_THAT(ValidateJob(spec),
              StatusIs(kInvalid, StartsWith("prediction: needs pipeline.stages")));
}

TEST(PredictedTimes, LinkThatMostPairsHave_StandsOnce) {
  v1::DeviceTimes times;
  for (int one = 0; one < 4; ++one) {
    for (int two = one + 1; two < 4; ++two) {
      v1::LinkTimes& link = *times.add_links();
      link.add_workers(one);
      link.add_workers(two);
      link.set_latency_ms(one == 1 && two == 2 ? 5.0 : 1.0);
    }
  }
  v1::PredictionSpec prediction;
  SetPredictedTimes(times, prediction);
  ASSERT_EQ(prediction.times().links_size(), 2);
  EXPECT_EQ(prediction.times().links(0).workers_size(), 0);
  EXPECT_EQ(prediction.times().links(0).latency_ms(), 1.0);
  EXPECT_EQ(prediction.times().links(1).workers(0), 1);
  EXPECT_EQ(prediction.times().links(1).workers(1), 2);
  EXPECT_EQ(prediction.times().links(1).latency_ms(), 5.0);
}

TEST(PredictedTimes, TooLargeForAJob_AreLeftOut) {
  v1::DeviceTimes times;
  for (int one = 0; one < 300; ++one) {
    for (int two = one + 1; two < 300; ++two) {
      v1::LinkTimes& link = *times.add_links();
      link.add_workers(one);
      link.add_workers(two);
      link.set_latency_ms(one + two);
    }
  }
  v1::PredictionSpec prediction;
  SetPredictedTimes(times, prediction);
  EXPECT_FALSE(prediction.has_times());
}

TEST(Feedback, Defaults_AreATwentyPercentBoundForFiftySteps) {
  const v1::FeedbackSpec feedback = GoodJob().feedback();
  EXPECT_EQ(feedback.drift_bound(), 0.2);
  EXPECT_EQ(feedback.drift_steps(), 50);
  EXPECT_EQ(feedback.replan(), "never");
}

TEST(Feedback, WhatCannotBe_IsRefusedNamingTheKey) {
  const auto error_of = [](const std::function<void(v1::JobSpec&)>& change) {
    v1::JobSpec spec = GoodJob();
    change(spec);
    return ValidateJob(spec);
  };
  for (const double bound : {0.0, -0.1, kNaN, 1e6}) {
    EXPECT_THAT(
        error_of([&](v1::JobSpec& spec) { spec.mutable_feedback()->set_drift_bound(bound); }),
        StatusIs(kInvalid, StartsWith("feedback.drift_bound: is ")));
  }
  for (const int64_t steps : {0, -3, 1'000'000}) {
    EXPECT_THAT(
        error_of([&](v1::JobSpec& spec) { spec.mutable_feedback()->set_drift_steps(steps); }),
        StatusIs(kInvalid, StartsWith("feedback.drift_steps: is ")));
  }
  EXPECT_THAT(error_of([](v1::JobSpec& spec) { spec.mutable_feedback()->set_replan("autp"); }),
              StatusIs(kInvalid, AllOf(StartsWith("feedback.replan: is \"autp\""),
                                       HasSubstr("did you mean auto?"))));
}

TEST(Feedback, ReplanAuto_NeedsAMethodThatDrainsAndCheckpoints) {
  v1::JobSpec spec = GoodJob();
  spec.mutable_feedback()->set_replan("auto");
  EXPECT_THAT(ValidateJob(spec), IsOk());
  v1::JobSpec unsaved = spec;
  unsaved.mutable_checkpoint()->set_every_steps(0);
  EXPECT_THAT(ValidateJob(unsaved), StatusIs(kInvalid, AllOf(StartsWith("feedback.replan: is auto"),
                                                             HasSubstr("checkpoint.every_steps"))));
  v1::JobSpec replicated = spec;
  replicated.mutable_pipeline()->set_stages(2);
  for (const int replicas : {2, 2}) replicated.mutable_pipeline()->add_replicas(replicas);
  EXPECT_THAT(ValidateJob(replicated), IsOk());
  replicated.mutable_pipeline()->set_replicas(1, 1);
  EXPECT_THAT(ValidateJob(replicated),
              StatusIs(kInvalid, AllOf(StartsWith("feedback.replan: is auto"),
                                       HasSubstr("unlike pipeline.replicas"))));
  v1::JobSpec asynchronous = spec;
  asynchronous.mutable_training()->clear_clip();
  asynchronous.mutable_model()->mutable_gpt()->set_tied_head(false);
  asynchronous.mutable_pipeline()->set_method("pipedream");
  EXPECT_THAT(ValidateJob(asynchronous),
              StatusIs(kInvalid, AllOf(StartsWith("feedback.replan: is auto, but with pipedream"),
                                       HasSubstr("1f1b"))));
}

}  // namespace
}  // namespace penstock
