#include "services/cli/feedback_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/documents/result_json.h"

namespace penstock {
namespace {

using Json = nlohmann::ordered_json;

v1::WorkerUse Use(const std::string& worker, int64_t memory, double sent) {
  v1::WorkerUse use;
  use.set_worker(worker);
  use.set_memory_bytes(memory);
  use.set_sent_bytes_per_step(sent);
  return use;
}

v1::Feedback Sample() {
  v1::Feedback feedback;
  feedback.mutable_predicted()->set_step_seconds(0.1);
  *feedback.mutable_predicted()->add_workers() = Use("alpha", 1 << 20, 2048);
  *feedback.mutable_predicted()->add_workers() = Use("beta", 2 << 20, 0);
  feedback.mutable_measured()->set_step_seconds(0.21);
  *feedback.mutable_measured()->add_workers() = Use("alpha", 1 << 20, 1024);
  feedback.mutable_measured()->add_workers()->set_worker("beta");
  feedback.set_drifts(true);
  feedback.set_drifts_told(1);
  return feedback;
}

TEST(FeedbackText, Sample_StandsSideBySide) {
  EXPECT_EQ(FeedbackText(Sample()),
            "                         PREDICTED  MEASURED  DIFFERENCE\n"
            "step                      100.0 ms  210.0 ms    +110.0 %\n"
            "memory of alpha           1.00 MiB  1.00 MiB      +0.0 %\n"
            "sent in a step by alpha   2.00 KiB  1.00 KiB     -50.0 %\n"
            "memory of beta            2.00 MiB         -           -\n"
            "sent in a step by beta         0 B         -           -\n");
}

TEST(FeedbackText, WithoutAPrediction_IsEmpty) {
  v1::Feedback feedback = Sample();
  feedback.clear_predicted();
  EXPECT_EQ(FeedbackText(feedback), "");
}

TEST(FeedbackJson, WhatIsNotKnown_IsNull) {
  v1::Feedback feedback = Sample();
  feedback.clear_predicted();
  EXPECT_EQ(FeedbackJson(feedback), Json::parse(R"({"predicted": null,
                            "measured": {"step_seconds": 0.21, "workers": [
                              {"worker": "alpha", "memory_bytes": 1048576,
                               "sent_bytes_per_step": 1024.0},
                              {"worker": "beta", "memory_bytes": null,
                               "sent_bytes_per_step": null}]},
                            "drifts": true, "drifts_told": 1, "replans": 0})"));
}

TEST(StepUseText, SaysWhatIsKnown) {
  v1::Feedback feedback;
  EXPECT_EQ(StepUseText(feedback), "");
  feedback.mutable_measured()->set_step_seconds(0.0123);
  EXPECT_EQ(StepUseText(feedback), ", step 12.3 ms");
  feedback.mutable_predicted()->set_step_seconds(0.01);
  EXPECT_EQ(StepUseText(feedback), ", step 12.3 ms, 10.0 ms predicted");
  feedback.clear_measured();
  EXPECT_EQ(StepUseText(feedback), ", 10.0 ms predicted");
}

}  // namespace
}  // namespace penstock
