#include "services/cli/next_commands.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include "job/defaults.h"
#include "services/cli/shell_word.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class NextCommandsTest : public ::testing::Test {
 protected:
  NextCommandsTest() { Forget(); }
  ~NextCommandsTest() override { Forget(); }
  static void Forget() {
    unsetenv("PENSTOCK_COORDINATOR");
    unsetenv("PENSTOCK_CERTIFICATES");
  }
};

TEST_F(NextCommandsTest, FlagsThatWereGiven_AreRepeated) {
  CoordinatorOptions options = {.address = "node1:7070"};
  options.security.certificates = "my certificates/client";
  EXPECT_EQ(NextCommands("job-7", FlagsOf(options)),
            "  penstock logs job-7 -f --coordinator node1:7070 --certificates 'my "
            "certificates/client'\n"
            "  penstock status job-7 --coordinator node1:7070 --certificates 'my "
            "certificates/client'\n"
            "  penstock timeline job-7 -o trace.json --coordinator node1:7070 --certificates 'my "
            "certificates/client'\n"
            "  penstock cancel job-7 --coordinator node1:7070 --certificates 'my "
            "certificates/client'\n");
}

TEST_F(NextCommandsTest, WhatTheEnvironmentSays_IsLeftOut) {
  setenv("PENSTOCK_COORDINATOR", "node1:7070", 1);
  setenv("PENSTOCK_CERTIFICATES", "/etc/penstock", 1);
  CoordinatorOptions options = {.address = "node1:7070"};
  options.security.certificates = "/etc/penstock";
  EXPECT_EQ(FlagsOf(options), "");
  // A flag that says something else than the environment.
  options.address = "node2:7070";
  EXPECT_EQ(FlagsOf(options), "--coordinator node2:7070");
}

TEST_F(NextCommandsTest, PlainText_IsSaidAgain) {
  CoordinatorOptions options = {.address = kDefaultCoordinator};
  options.security.insecure = true;
  EXPECT_EQ(FlagsOf(options), "--insecure");
  EXPECT_THAT(DetachedText("job-7", FlagsOf(options)),
              HasSubstr("`penstock logs job-7 -f --insecure` watches it"));
  EXPECT_THAT(DetachedText("job-7", ""), Not(HasSubstr("\n")));
}

// A GPT that reads bytes.
v1::GetJobResponse TextJob() {
  v1::GetJobResponse job;
  v1::GptSpec& gpt = *job.mutable_spec()->mutable_model()->mutable_gpt();
  gpt.set_layers(1);
  gpt.set_width(4);
  gpt.set_heads(1);
  gpt.set_context(8);
  FillDefaultsOfAnyMethod(*job.mutable_spec());
  return job;
}

TEST(ModelCommandsTest, TextModelThatWasKept_IsGeneratedFromAndExported) {
  v1::GetJobResponse job = TextJob();
  job.mutable_spec()->mutable_checkpoint()->set_directory("/my models");
  job.mutable_result()->set_checkpoint("/my models/step-6");
  EXPECT_EQ(ModelCommands(job, "/data"),
            "next:\n"
            "  penstock generate '/my models/step-6' --prompt 'The '\n"
            "  penstock export '/my models/step-6' -o model\n");
}

TEST(ModelCommandsTest, AnotherModelThatWasKept_IsEvaluated) {
  v1::GetJobResponse job;
  job.mutable_spec()->mutable_checkpoint()->set_directory("/models");
  job.mutable_result()->set_checkpoint("/models/step-6");
  EXPECT_EQ(ModelCommands(job, "/data"), "next:\n  penstock evaluate /models/step-6 --data PATH\n");
  v1::RecordsSpec& records = *job.mutable_spec()->mutable_data()->mutable_records();
  records.set_path("digits/train");
  EXPECT_EQ(ModelCommands(job, "/data"),
            "next:\n  penstock evaluate /models/step-6 --data /data/digits/train --split "
            "validation\n");
  records.set_validation("digits/test");
  EXPECT_EQ(ModelCommands(job, "/data"),
            "next:\n  penstock evaluate /models/step-6 --data /data/digits/test\n");
}

TEST(ModelCommandsTest, ModelThatWasNotKept_SaysHowToKeepIt) {
  v1::GetJobResponse job = TextJob();
  EXPECT_EQ(ModelCommands(job, "/data"),
            "the model was not kept; --set checkpoint.directory=DIR keeps it, for `penstock "
            "generate DIR --prompt 'The '` and `penstock export DIR -o model`\n");
  job.mutable_result()->set_checkpoint("/where/it/began");
  EXPECT_THAT(ModelCommands(job, "/data"), HasSubstr("was not kept"));
}

TEST(ShellWordTest, WhatAShellWouldTakeApart_IsQuoted) {
  EXPECT_EQ(ShellWord("node1:7070"), "node1:7070");
  EXPECT_EQ(ShellWord(""), "''");
  EXPECT_EQ(ShellWord("$HOME/a b"), "'$HOME/a b'");
  EXPECT_EQ(ShellWord("it's"), "'it'\\''s'");
}

}  // namespace
}  // namespace penstock
