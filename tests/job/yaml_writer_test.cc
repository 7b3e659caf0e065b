#include "job/yaml/yaml_writer.h"

#include <gmock/gmock.h>

#include "google/protobuf/util/message_differencer.h"
#include "job/yaml/yaml_message.h"
#include "penstock/v1/device_times.pb.h"
#include "penstock/v1/job.pb.h"
#include "tests/job/jobs.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

TEST(WriteYamlMessage, PlainMessages_StandOnOneLine) {
  v1::DeviceTimes times;
  times.set_device("12");
  times.mutable_model()->set_forward_ms(0.1);
  times.mutable_model()->set_update_ms(2);
  times.set_jitter_seed(18446744073709551615u);
  EXPECT_EQ(WriteYamlMessage(times, "Said\nbefore."),
            "# Said\n# before.\ndevice: \"12\"\nmodel: {forward_ms: 0.1, update_ms: 2}\n"
            "jitter_seed: 18446744073709551615\n");
}

TEST(WriteYamlMessage, NestedMessagesInLists_ReadBackTheSame) {
  v1::DeviceTimes times;
  for (const char* layer : {"embedding", "h.0.mlp"}) {
    v1::LayerTimes& entry = *times.add_layers();
    entry.set_layer(layer);
    entry.mutable_times()->set_backward_input_ms(0.125);
  }
  v1::DeviceTimes again;
  YamlPositions positions;
  ASSERT_THAT(ReadYamlMessage(WriteYamlMessage(times, ""), "times.yaml", again, positions), IsOk());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(again, times))
      << WriteYamlMessage(times, "");
}

TEST(WriteYamlMessage, AnyJob_ReadsBackTheSame) {
  v1::JobSpec job = GoodJob();
  job.set_name("a \"quoted\": name\nof # two lines");
  job.mutable_training()->mutable_optimizer()->mutable_adamw()->set_epsilon(1e-300);
  job.mutable_training()->mutable_learning_rate()->set_final_fraction(0.1 + 0.2);
  v1::JobSpec again;
  YamlPositions positions;
  ASSERT_THAT(ReadYamlMessage(WriteYamlMessage(job, ""), "job.yaml", again, positions), IsOk());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(again, job))
      << WriteYamlMessage(job, "");
}

}  // namespace
}  // namespace penstock
