// Completion scripts, in the shells they are for.
#include <gmock/gmock.h>

#include <filesystem>
#include <sstream>

#include "tests/services/cli/job_directory.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

class CompletionTest : public ::testing::Test {
 protected:
  std::string Script(const std::string& shell) {
    const ProcessResult made = RunProcess({ProgramPath("penstock"), "completion", shell});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    directory_.Write("script." + shell, made.out);
    return directory_.path("script." + shell);
  }

  // What bash would offer for the last of `words`, which are split as it splits them.
  std::vector<std::string> Bash(const std::vector<std::string>& words) {
    std::vector<std::string> call = {
        "/bin/bash",
        "--norc",
        "-c",
        ("source \"$1\"; shift; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _penstock; "
         "[[ ${#COMPREPLY[@]} == 0 ]] || printf '%s\\n' \"${COMPREPLY[@]}\""),
        "bash",
        Script("bash"),
        "penstock"};
    call.insert(call.end(), words.begin(), words.end());
    const ProcessResult result = RunProcess(call);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return Lines(result.out);
  }

  JobDirectory directory_;
};

TEST_F(CompletionTest, Bash_Commands) {
  EXPECT_THAT(Bash({""}), IsSupersetOf({"train", "submit", "certs", "completion"}));
  EXPECT_THAT(Bash({"sub"}), ElementsAre("submit"));
  EXPECT_THAT(Bash({"--v"}), ElementsAre("--version"));
}

TEST_F(CompletionTest, Bash_Verbs) {
  EXPECT_THAT(Bash({"schedule", ""}), ElementsAre("show", "verify", "search"));
  EXPECT_THAT(Bash({"certs", "ro"}), ElementsAre("rotate"));
}

TEST_F(CompletionTest, Bash_FlagsOfTheCommand) {
  EXPECT_THAT(Bash({"submit", "--no"}), ElementsAre("--no-wait"));
  EXPECT_THAT(Bash({"submit", "job.yaml", "--"}),
              AllOf(IsSupersetOf({"--method", "--coordinator", "--json"}), Not(Contains("--svg"))));
  EXPECT_THAT(Bash({"certs", "issue", "--na"}), ElementsAre("--name"));
}

TEST_F(CompletionTest, Bash_KnownValues) {
  EXPECT_THAT(Bash({"train", "job.yaml", "--method", "zb-"}),
              ElementsAre("zb-h1", "zb-h2", "zb-v"));
  EXPECT_THAT(Bash({"train", "--method", "=", "paci"}), ElementsAre("paci"));
  EXPECT_THAT(Bash({"train", "--method", "="}), Contains("1f1b"));
  EXPECT_THAT(Bash({"compare", "job.yaml", "--methods", "1f1b,gp"}), ElementsAre("1f1b,gpipe"));
  EXPECT_THAT(Bash({"schedule", "show", "dualp"}), ElementsAre("dualpipe-v"));
  EXPECT_THAT(Bash({"plan", "--goal", ""}), ElementsAre("period", "memory"));
  EXPECT_THAT(Bash({"certs", "issue", ""}),
              ElementsAre("client", "worker", "coordinator", "monitor"));
  EXPECT_THAT(Bash({"completion", ""}), ElementsAre("bash", "zsh", "fish"));
}

// Bash splits words at "=", and completes what follows the sign.
TEST_F(CompletionTest, Bash_KeysOfAJobAndTheirWords) {
  EXPECT_THAT(
      Bash({"train", "job.yaml", "--set", "training.optimizer.sgd."}),
      ElementsAre("training.optimizer.sgd.learning_rate=", "training.optimizer.sgd.momentum=",
                  "training.optimizer.sgd.weight_decay=", "training.optimizer.sgd.nesterov=true",
                  "training.optimizer.sgd.nesterov=false"));
  EXPECT_THAT(Bash({"submit", "--set", "training.precision", "="}),
              ElementsAre("f32", "bf16", "fp8"));
  EXPECT_THAT(Bash({"submit", "--set", "training.precision", "=", "b"}), ElementsAre("bf16"));
  EXPECT_THAT(Bash({"plan", "--set", "=", "pipeline.method", "=", "zb-"}),
              ElementsAre("zb-h1", "zb-h2", "zb-v"));
  EXPECT_THAT(Bash({"train", "--set", "model.gpt.tied_head", "="}), ElementsAre("true", "false"));
  EXPECT_THAT(Bash({"train", "--set", "training.steps", "=", "4"}), IsEmpty());
}

TEST_F(CompletionTest, Bash_OtherValues_AreLeftToTheShell) {
  EXPECT_THAT(Bash({"train", ""}), IsEmpty());
  EXPECT_THAT(Bash({"train", "job.yaml", "--data", ""}), IsEmpty());
  EXPECT_THAT(Bash({"status", "job-1", "--certificates", ""}), IsEmpty());
}

TEST_F(CompletionTest, Fish_CommandsFlagsAndValues) {
  if (!std::filesystem::exists("/usr/bin/fish")) GTEST_SKIP() << "fish is not installed";
  const std::string script = Script("fish");
  const auto offered = [&](const std::string& line) {
    const ProcessResult result = RunProcess({"/usr/bin/fish", "--no-config", "-c",
                                             "source " + script + "; complete -C '" + line + "'"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<std::string> words;
    for (const std::string& offer : Lines(result.out))
      words.push_back(offer.substr(0, offer.find('\t')));
    return words;
  };
  EXPECT_THAT(offered("penstock sub"), ElementsAre("submit"));
  EXPECT_THAT(offered("penstock schedule "), IsSupersetOf({"show", "verify", "search"}));
  EXPECT_THAT(offered("penstock submit --no"), ElementsAre("--no-wait"));
  EXPECT_THAT(offered("penstock train job.yaml --method zb-"),
              ElementsAre("zb-h1", "zb-h2", "zb-v"));
}

TEST_F(CompletionTest, Zsh_ReadsTheScript) {
  if (!std::filesystem::exists("/usr/bin/zsh")) GTEST_SKIP() << "zsh is not installed";
  const ProcessResult result =
      RunProcess({"/usr/bin/zsh", "-f", "-c",
                  "autoload -U compinit && compinit -u -D && source " + Script("zsh") +
                      " && print -r -- ${_comps[penstock]}"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, ::testing::HasSubstr("_penstock"));
}

TEST_F(CompletionTest, OtherShell_IsRefused) {
  EXPECT_EQ(RunProcess({ProgramPath("penstock"), "completion", "csh"}).exit_code, 2);
}

TEST_F(CompletionTest, ManualOfJobs_IsTheReferenceOfTheKeys) {
  const ProcessResult made = RunProcess({ProgramPath("penstock"), "manual", "job"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, ::testing::HasSubstr("| `training.seed` | a whole number | `0` |"));
  EXPECT_EQ(RunProcess({ProgramPath("penstock"), "manual", "jobs"}).exit_code, 2);
}

TEST_F(CompletionTest, ManualPage_HasNoWarnings) {
  const ProcessResult made = RunProcess({ProgramPath("penstock"), "manual"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, ::testing::HasSubstr("\n.SS penstock certs issue\n"));
  if (!std::filesystem::exists("/usr/bin/groff")) GTEST_SKIP() << "groff is not installed";
  directory_.Write("penstock.1", made.out);
  const ProcessResult set =
      RunProcess({"/usr/bin/groff", "-man", "-ww", "-Tascii", directory_.path("penstock.1")});
  EXPECT_EQ(set.exit_code, 0);
  EXPECT_EQ(set.err, "");
}

}  // namespace
}  // namespace penstock
