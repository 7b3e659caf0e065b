#include "services/cli/job_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "job/resolve.h"
#include "job/yaml/yaml.h"
#include "schedule/catalog/catalog.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kJob[] = R"(
name: test
model: {gpt: {layers: 2, width: 32, heads: 2, context: 16}}
data: {text: {path: input.txt, tokenizer: bytes}}
training:
  steps: 10
  batch: 8
  microbatches: 4
  optimizer: {adamw: {learning_rate: 1.0e-3, weight_decay: 0.2}}
validation: {every_steps: 5}
)";

class OverrideTest : public ::testing::Test {
 protected:
  void SetUp() override { PENSTOCK_ASSERT_OK_AND_ASSIGN(spec_, ParseJobYaml(kJob, "job.yaml")); }
  v1::JobSpec spec_;
};

TEST_F(OverrideTest, Number_ReplacesTheValueAndNothingElse) {
  ASSERT_THAT(ApplyOverride("training.steps=25", spec_), IsOk());
  EXPECT_EQ(spec_.training().steps(), 25);
  EXPECT_EQ(spec_.training().batch(), 8);
  EXPECT_EQ(spec_.training().optimizer().adamw().weight_decay(), 0.2);
}

TEST_F(OverrideTest, Zero_CountsAsAValue) {
  ASSERT_THAT(ApplyOverride("validation.every_steps=0", spec_), IsOk());
  EXPECT_EQ(spec_.validation().every_steps(), 0);
  ASSERT_THAT(ApplyOverride("training.optimizer.adamw.weight_decay=0", spec_), IsOk());
  EXPECT_TRUE(spec_.training().optimizer().adamw().has_weight_decay());
  EXPECT_EQ(spec_.training().optimizer().adamw().weight_decay(), 0);
}

TEST_F(OverrideTest, OtherKindOfAChoice_ReplacesTheKind) {
  ASSERT_THAT(ApplyOverride("training.optimizer.sgd.learning_rate=0.1", spec_), IsOk());
  EXPECT_FALSE(spec_.training().optimizer().has_adamw());
  EXPECT_EQ(spec_.training().optimizer().sgd().learning_rate(), 0.1);
}

TEST_F(OverrideTest, WholeMessage_ReplacesIt) {
  ASSERT_THAT(ApplyOverride("training.optimizer={sgd: {learning_rate: 0.5, momentum: 0.9}}", spec_),
              IsOk());
  EXPECT_EQ(spec_.training().optimizer().sgd().momentum(), 0.9);
}

TEST_F(OverrideTest, TextWithSlashesAndEquals_IsTakenAsItIs) {
  ASSERT_THAT(ApplyOverride("data.text.path=/a b/c=d.txt", spec_), IsOk());
  EXPECT_EQ(spec_.data().text().path(), "/a b/c=d.txt");
}

TEST_F(OverrideTest, NameOfTheVersionBefore_IsReadWithANote) {
  std::vector<std::string> notes;
  ASSERT_THAT(ApplyOverride("training.device_graphs=\"on\"", spec_, &notes), IsOk());
  EXPECT_EQ(spec_.training().cuda_graphs(), "on");
  EXPECT_THAT(notes, ::testing::ElementsAre(HasSubstr("is called training.cuda_graphs now")));
  // In a file the note comes with the others.
  const std::string path = testing::TempDir() + "/old_name.yaml";
  std::string text = kJob;
  text.replace(text.find("  steps: 10"), 2, "  device_graphs: \"on\"\n  ");
  std::ofstream(path) << text;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JobDocument document, ReadJob({.path = path}));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::JobSpec complete, CompleteSubmission(document));
  EXPECT_THAT(NotesOf(document, complete),
              HasSubstr("old_name.yaml:6:3: training.device_graphs is called"));
}

// Its paths start where the job's do.
TEST_F(OverrideTest, DirectoryOfHuggingFace_IsReadAsItsFamily) {
  const std::filesystem::path folder = testing::TempDir() + "/hugging_face";
  std::filesystem::create_directories(folder / "m");
  std::string text = kJob;
  text.replace(text.find("model: "), text.find("\ndata:") - text.find("model: "),
               "model: {hugging_face: {directory: m, context: 4}}");
  std::ofstream(folder / "job.yaml") << text;
  constexpr char kConfig[] =
      R"({"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "n_positions": 9, "vocab_size": 300)";
  std::ofstream(folder / "m" / "config.json") << kConfig << "}";
  const std::string path = folder / "job.yaml";
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JobDocument document, ReadJob({.path = path}));
  EXPECT_EQ(document.spec.model().gpt().context(), 4);
  EXPECT_EQ(document.spec.model().pretrained().directory(), "m");
  EXPECT_THAT(CompleteSubmission(document), IsOk());
  EXPECT_THAT(ReadJob({.path = path, .root = folder / "elsewhere"}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/elsewhere/m/config.json")));
  std::ofstream(folder / "m" / "config.json") << kConfig << R"(, "activation_function": "relu"})";
  EXPECT_THAT(
      ReadJob({.path = path}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("job.yaml:3:"), HasSubstr("activation_function: is \"relu\""))));
}

TEST_F(OverrideTest, UnknownKey_NamesTheNearest) {
  EXPECT_THAT(ApplyOverride("training.stepz=3", spec_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("--set training.stepz=3: "), HasSubstr("steps"))));
}

TEST_F(OverrideTest, WrongType_SaysExpectedAndGot) {
  EXPECT_THAT(ApplyOverride("training.steps=many", spec_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(StartsWith("--set training.steps=many: "), HasSubstr("whole number"),
                             Not(HasSubstr("many:2:")))));
}

TEST_F(OverrideTest, NotKeyAndValue_IsRefused) {
  for (const char* text : {"training.steps", "=3", "a=1\nb=2"}) {
    EXPECT_THAT(ApplyOverride(text, spec_),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("expected KEY=VALUE")))
        << text;
  }
}

TEST_F(OverrideTest, BrokenYaml_IsRefused) {
  for (const char* text : {"training..steps=3", "training.steps={", ".=1", "a b.c=1", "training=3",
                           "training.=3", "training.steps=[1, 2]"}) {
    EXPECT_THAT(ApplyOverride(text, spec_),
                StatusIs(absl::StatusCode::kInvalidArgument, StartsWith("--set ")))
        << text;
  }
}

TEST(ExamplesTest, EveryExample_FitsEveryMethod) {
  int examples = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(PENSTOCK_SOURCE_DIR) + "/examples")) {
    if (entry.path().extension() != ".yaml") continue;
    ++examples;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::JobSpec own, LoadJob({.path = entry.path().string()}));
    // Only methods with an update per step have a moment with the gradient of the whole model.
    const bool clips = own.training().clip().has_global_norm();
    const bool needs_drain = own.model().gpt().tied_head() || clips;
    for (const Method& method : Methods()) {
      if (needs_drain && !method.synchronous) continue;
      if (clips && method.updates_each_microbatch) continue;
      const std::string name(method.name.data(), method.name.size());
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::JobSpec spec,
                                    LoadJob({.path = entry.path().string(), .method = name}));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
      for (int workers = 1; workers <= 4; ++workers) {
        const int stages = workers * job.stages_per_worker;
        if (method.steps_in_rounds && job.microbatches % workers != 0) continue;
        if (stages > job.model.size()) continue;  // every stage needs a layer
        const bool has_buffers =
            std::any_of(job.model.nodes.begin(), job.model.nodes.end(),
                        [](const Node& node) { return !node.buffers.empty(); });
        if (method.placement == Placement::kRoundTrip && workers > 1 && has_buffers) {
          EXPECT_THAT(CheckStages(job, stages),
                      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("through any worker")))
              << entry.path();
          continue;
        }
        EXPECT_THAT(CheckStages(job, stages), IsOk())
            << entry.path() << " with " << name << " on " << stages << " stages";
      }
    }
  }
  EXPECT_GE(examples, 2);
}

// A method's own optimizer and rates come with --method, at the file's rate, unless others are asked for.
TEST(LoadJob, MethodOfTheCommandLine_BringsItsUpdateRules) {
  const std::string path = std::string(PENSTOCK_SOURCE_DIR) + "/examples/shakespeare.yaml";
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::JobSpec own, LoadJob({.path = path}));
  ASSERT_TRUE(own.training().optimizer().has_adamw());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::JobSpec nesterov,
                                LoadJob({.path = path, .method = "nesterov"}));
  ASSERT_TRUE(nesterov.training().optimizer().has_nadamw());
  EXPECT_EQ(nesterov.training().optimizer().nadamw().learning_rate(),
            own.training().optimizer().adamw().learning_rate());
  EXPECT_EQ(nesterov.training().optimizer().nadamw().beta1(), 0.99);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::JobSpec pipemare,
                                LoadJob({.path = path, .method = "pipemare"}));
  EXPECT_TRUE(pipemare.training().optimizer().has_adamw());
  // What the file's own method leaves out is not an answer for another one.
  EXPECT_EQ(own.training().staleness().rescheduled_steps(), 0);
  EXPECT_EQ(pipemare.training().staleness().rescheduled_steps(),
            5 * own.training().learning_rate().warmup_steps());
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::JobSpec constant,
                                LoadJob({.path = path,
                                         .overrides = {"training.staleness.rescheduled_steps=0"},
                                         .method = "pipemare"}));
  EXPECT_EQ(constant.training().staleness().rescheduled_steps(), 0);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(
      const v1::JobSpec asked, LoadJob({.path = path,
                                        .overrides = {"training.optimizer.muon.learning_rate=0.01"},
                                        .method = "nesterov"}));
  EXPECT_TRUE(asked.training().optimizer().has_muon());
}

// A mistake of the file has its place; one of the options has the option.
TEST(LoadJob, Mistake_HasItsPlace) {
  const std::string path = testing::TempDir() + "/mistake.yaml";
  std::string text = kJob;
  text.replace(text.find("microbatches: 4"), 15, "microbatches: 3");
  std::ofstream(path) << text;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(LoadJob({.path = path}),
              StatusIs(kInvalid, HasSubstr("mistake.yaml:8:3: training.microbatches: is 3")));
  EXPECT_THAT(LoadJob({.path = path, .overrides = {"training.microbatches=2"}}), IsOk());
  EXPECT_THAT(LoadJob({.path = path, .overrides = {"training.microbatches=5"}}),
              StatusIs(kInvalid, StartsWith("--set training.microbatches=5: "
                                            "training.microbatches: is 5")));
  EXPECT_THAT(LoadJob({.path = path, .overrides = {"training={steps: 10, batch: 8}"}}),
              StatusIs(kInvalid, StartsWith("--set training={steps: 10, batch: 8}: training.")));
  EXPECT_THAT(LoadJob({.path = path, .overrides = {"pipeline.method=1f2b"}}),
              StatusIs(kInvalid, HasSubstr("mistake.yaml:8:3")))
      << "the first mistake";
  EXPECT_THAT(
      LoadJob({.path = path, .overrides = {"training.microbatches=4"}, .method = "pipedraem"}),
      StatusIs(kInvalid, AllOf(StartsWith("--method pipedraem: pipeline.method: "),
                               HasSubstr("did you mean pipedream?"))));
}

// Written like kJob, with a warm-up of 6 of its 10 steps.
std::string WriteWarmedUpJob() {
  std::string path = testing::TempDir() + "/warm.yaml";
  std::string text = kJob;
  text.replace(text.find("  batch: 8"), 10, "  batch: 8\n  learning_rate: {warmup_steps: 6}");
  std::ofstream(path) << text;
  return path;
}

TEST(ReadJob, FewerStepsThanTheWarmUp_ShortenItWithANote) {
  const std::string path = WriteWarmedUpJob();
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JobDocument document, ReadJob({.path = path, .steps = 4}));
  EXPECT_EQ(document.spec.training().learning_rate().warmup_steps(), 4);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const v1::JobSpec spec, CompleteJob(document));
  EXPECT_EQ(NotesOf(document, spec),
            "--steps 4: training.learning_rate.warmup_steps is shortened from 6 to 4\n");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const JobDocument enough, ReadJob({.path = path, .steps = 6}));
  EXPECT_EQ(NotesOf(enough, enough.spec), "");
}

TEST(ReadJob, FewerStepsThanTheWarmUpElsewhereThanInTheFlag_AreRefused) {
  const std::string path = WriteWarmedUpJob();
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(LoadJob({.path = path, .overrides = {"training.steps=4"}}),
              StatusIs(kInvalid, HasSubstr("warmup_steps: is 6")));
  EXPECT_THAT(
      LoadJob({.path = path, .overrides = {"training.learning_rate.warmup_steps=5"}, .steps = 4}),
      StatusIs(kInvalid, StartsWith("--set training.learning_rate.warmup_steps=5: ")));
}

}  // namespace
}  // namespace penstock
