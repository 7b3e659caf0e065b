// Commands that need no cluster: methods, simulate, schedule, export, generate, compare.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/files.h"
#include "checkpoint/safetensors.h"
#include "tests/services/cli/job_directory.h"
#include "tests/support/status_matchers.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsSubsetOf;
using ::testing::IsSupersetOf;
using ::testing::StartsWith;
using Json = nlohmann::ordered_json;

ProcessResult RunPenstock(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), ProgramPath("penstock"));
  ProcessResult result = RunProcess(arguments);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return result;
}

Json RunJson(std::vector<std::string> arguments) {
  arguments.push_back("--json");
  const ProcessResult result = RunPenstock(arguments);
  return Json::parse(result.out, nullptr, /*allow_exceptions=*/false);
}

std::string ReadText(const std::string& path) { return *RealFiles().Read(path, int64_t{1} << 30); }

TEST(OutputTest, ThatCannotBeWritten_FailsWithTheReason) {
  // The first two fit into a buffer, the third does not.
  for (const char* arguments :
       {"methods", "--help", "schedule show gpipe --stages 8 --microbatches 900"}) {
    const ProcessResult result =
        RunProcess({"/bin/sh", "-c", "\"$0\" $1 > /dev/full", ProgramPath("penstock"), arguments});
    EXPECT_EQ(result.exit_code, 1) << arguments;
    EXPECT_THAT(result.err, HasSubstr("standard output could not be written: No space left"))
        << arguments;
  }
}

// ---------------------------------------------------------------------------------------- model

TEST(ModelTest, WeightsThatAreSharedOrWere_AreListed) {
  JobDirectory directory;
  directory.Write("model.yaml",
                  "model: {gpt: {layers: 1, width: 16, heads: 2, context: 8, vocabulary: 256}}\n");
  const std::string path = directory.path("model.yaml");
  EXPECT_THAT(RunPenstock({"model", "show", path}).out,
              HasSubstr("wte.weight is shared by embedding, head."));
  const Json tied = RunJson({"model", "show", path});
  EXPECT_EQ(tied["shared"],
            Json::array({{{"parameter", "wte.weight"}, {"layers", {"embedding", "head"}}}}));
  EXPECT_TRUE(tied["untied"].empty());
  const Json untied = RunJson({"model", "show", path, "--set", "model.untie=true"});
  EXPECT_TRUE(untied["shared"].empty());
  EXPECT_EQ(untied["untied"],
            Json::array({{{"parameter", "head.wte.weight"}, {"copy_of", "wte.weight"}}}));
  EXPECT_EQ(untied["parameters"].get<int64_t>(), tied["parameters"].get<int64_t>() + 256 * 16);
  EXPECT_THAT(RunPenstock({"model", "show", path, "--set", "model.untie=true"}).out,
              HasSubstr("head.wte.weight was tied to wte.weight"));
}

TEST(ModelTest, Gpt_HasTheLayersAndCostsOfItsNumbers) {
  JobDirectory directory;
  directory.Write("model.yaml",
                  "model: {gpt: {layers: 2, width: 16, heads: 2, context: 8, vocabulary: 256}}\n");
  const Json json = RunJson({"model", "show", directory.path("model.yaml")});
  ASSERT_EQ(json["layers"].size(), 7u);
  EXPECT_EQ(json["architecture"], "gpt");
  EXPECT_EQ(json["inputs"][0],
            Json({{"input", "tokens"}, {"dtype", "i32"}, {"dims", {8}}, {"ids", 256}}));
  const Json& mlp = json["layers"][2];
  EXPECT_EQ(mlp["layer"], "h.0.mlp");
  EXPECT_EQ(mlp["output"], Json({{"dtype", "f32"}, {"dims", {8, 16}}}));
  EXPECT_EQ(mlp["parameters"], 2 * 16 + 2 * 16 * 64 + 64 + 16);
  EXPECT_EQ(mlp["flops"]["forward"], 2 * 2 * 8 * 16 * 64);
  EXPECT_EQ(mlp["live_bytes"], 8 * 16 * 4);
  EXPECT_EQ(mlp["nodes"][0]["op"], "mlp_branch");
  EXPECT_EQ(mlp["nodes"][0]["inputs"], Json({"h.0.attention"}));
  EXPECT_EQ(json["layers"][6]["live_bytes"], 0);
  // The head's weight is the embedding's.
  int64_t sum = 0;
  for (const Json& layer : json["layers"]) sum += layer["parameters"].get<int64_t>();
  EXPECT_EQ(json["parameters"], sum - 256 * 16);
  EXPECT_THAT(RunPenstock({"model", "show", directory.path("model.yaml")}).out,
              AllOf(HasSubstr("LAYER"), ContainsRegex("h.1.mlp +mlp_branch +f32 .8, 16. +2160 ")));
}

// The table tells which of them are fused; parameters have the names of the list.
TEST(ModelTest, BranchesOfATransformer_AreShownAsTheyAreComputed) {
  JobDirectory directory;
  directory.Write("model.yaml", R"(model:
  layers:
    - input: {x: {f32: [4, 8]}, y: {f32: [4, 8]}}
    - block: {name: attention, layers: [{residual: {layers: [
        {layer_norm: {width: 8}}, {linear: {outputs: 24}}, {attention: {heads: 2, causal: true}},
        {linear: {outputs: 8}}]}}]}
    - block: {name: full, layers: [{residual: {layers: [
        {layer_norm: {width: 8}}, {linear: {outputs: 24}}, {attention: {heads: 2}},
        {linear: {outputs: 8}}]}}]}
    - mse: {targets: y}
)");
  EXPECT_THAT(RunPenstock({"model", "show", directory.path("model.yaml")}).out,
              AllOf(ContainsRegex("attention +attention_branch +f32"),
                    ContainsRegex("full +layer_norm, linear, attention, linear and 2 more +f32")));
}

// What a skip keeps alive crosses every cut up to its reader, and the picture shows it.
constexpr char kSkipModel[] = R"(model:
  layers:
    - input: {x: {f32: [4]}, y: {f32: [8]}}
    - linear: {outputs: 4, name: stem}
    - linear: {outputs: 4, name: middle}
    - linear: {outputs: 4, name: top}
    - concat: {of: [top, stem]}
    - mse: {targets: y}
)";

TEST(ModelTest, Layers_TellWhatCrossesEachCut) {
  JobDirectory directory;
  directory.Write("model.yaml", kSkipModel);
  const Json json = RunJson(
      {"model", "show", directory.path("model.yaml"), "--svg", directory.path("model.svg")});
  ASSERT_EQ(json["layers"].size(), 3u);
  EXPECT_EQ(json["architecture"], "layers");
  // Values start at multiples of 16 numbers.
  EXPECT_EQ(json["layers"][0]["live_bytes"], 4 * 4);
  EXPECT_EQ(json["layers"][1]["live_bytes"], (16 + 4) * 4);
  EXPECT_EQ(json["layers"][2]["nodes"].size(), 3u);
  const std::string svg = ReadText(directory.path("model.svg"));
  EXPECT_THAT(svg, AllOf(StartsWith("<svg "), HasSubstr(">middle<"),
                         ContainsRegex("class=\"e s\"[^>]*><title>stem f32 .4.<")));
}

TEST(ModelTest, Mistakes_AreToldWithTheirPlace) {
  JobDirectory directory;
  directory.Write("model.yaml", std::string(kSkipModel) + "    - relu\n");
  const ProcessResult refused =
      RunProcess({ProgramPath("penstock"), "model", "show", directory.path("model.yaml")});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("model.yaml:"));
  directory.Write("empty.yaml", "name: a\n");
  EXPECT_THAT(
      RunProcess({ProgramPath("penstock"), "model", "show", directory.path("empty.yaml")}).err,
      HasSubstr("model: is missing"));
  directory.Write("gpt.yaml", "model: {gpt: {layers: 2, width: 16, heads: 3, context: 8}}\n");
  EXPECT_THAT(
      RunProcess({ProgramPath("penstock"), "model", "show", directory.path("gpt.yaml")}).err,
      HasSubstr("gpt.yaml:1:37: model.gpt.heads: is 3, which does not divide width (16)"));
}

TEST(SimulateTest, Pipedream_UnitTimes_FollowsTheClosedForms) {
  for (const int stages : {1, 2, 3, 8}) {
    const int microbatches = 32;
    const Json json =
        RunJson({"simulate", "--method", "pipedream", "--stages", std::to_string(stages),
                 "--microbatches", std::to_string(microbatches)});
    EXPECT_EQ(json["makespan"], 2 * microbatches + 2 * (stages - 1));
    EXPECT_EQ(json["deadlock"], false);
    EXPECT_EQ(json["block_delay"]["max"], stages == 1 ? 0 : stages * stages - (stages + 1) / 2);
    EXPECT_EQ(json["block_delay"]["mean"], (stages * stages - 1) / 2.0);
    for (int stage = 0; stage < stages; ++stage) {
      EXPECT_EQ(json["per_stage"][stage]["staleness"]["max"], stages - 1 - stage);
    }
  }
}

TEST(SimulateTest, SynchronousMethods_UnitTimes_HaveTheKnownBubble) {
  for (const char* method : {"gpipe", "1f1b"}) {
    const Json json =
        RunJson({"simulate", "--method", method, "--stages", "4", "--microbatches", "8"});
    EXPECT_DOUBLE_EQ(json["bubble_ratio"], 3.0 / 11.0) << method;
  }
}

TEST(SimulateTest, SendEarly_ShortensTheBubble) {
  const std::vector<std::string> equal = {
      "simulate", "--method",         "1f1b", "--stages",          "4", "--microbatches",
      "8",        "--backward-input", "1",    "--backward-weight", "1", "--send-early"};
  EXPECT_DOUBLE_EQ(RunJson(equal)["bubble_ratio"], 0.2);
}

TEST(SimulateTest, Picture_HasTimesWithoutUnit) {
  const std::string picture =
      RunPenstock({"simulate", "--method", "1f1b", "--stages", "4", "--text"}).out;
  EXPECT_THAT(picture, ContainsRegex("a column is [0-9.]+, the whole 22\n"));
}

TEST(SimulateTest, StagesThatRecompute_TakeTheTimeOfTheirForwards) {
  const Json json = RunJson({"simulate", "--method", "1f1b", "--stages", "4", "--microbatches", "8",
                             "--recompute", "all"});
  EXPECT_EQ(json["makespan"], 3 * 8 + 2 * 3);
  EXPECT_THAT(RunPenstock({"schedule", "show", "gpipe", "--stages", "2", "--recompute", "1"}).out,
              HasSubstr(" recompute=1\n"));
  const ProcessResult refused = RunProcess({ProgramPath("penstock"), "simulate", "--method", "1f1b",
                                            "--stages", "2", "--recompute", "2"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--recompute: names stage 2, but the pipeline has 2 stages"));
}

TEST(SimulateTest, Channels_HoldWhatTheScheduleNeedsUnlessTheUserSays) {
  const std::vector<std::string> looped = {"--method", "looped-bfs",     "--stages",
                                           "4",        "--microbatches", "16"};
  std::vector<std::string> arguments = {"simulate"};
  arguments.insert(arguments.end(), looped.begin(), looped.end());
  const Json json = RunJson(arguments);
  EXPECT_EQ(json["channel_capacity_min"], 8);
  EXPECT_EQ(json["deadlock"], false);
  // A stage's own time, two stages on a worker: 16 forwards of 1 and backwards of 1.
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(json["per_stage"][stage]["busy_seconds"], 32.0);
    EXPECT_EQ(json["per_stage"][stage]["idle_seconds"].get<double>(),
              json["makespan"].get<double>() - 32.0);
  }
  RunPenstock(
      {"schedule", "show", "looped-bfs", "--stages", "4", "--microbatches", "16", "--text"});

  arguments.insert(arguments.begin(), ProgramPath("penstock"));
  arguments.insert(arguments.end(), {"--capacity", "4", "--json"});
  const ProcessResult blocked = RunProcess(arguments);
  EXPECT_EQ(blocked.exit_code, 1);
  EXPECT_THAT(Json::parse(blocked.out)["deadlock"].get<std::string>(),
              HasSubstr("--capacity 8 or more would do"));
}

TEST(SimulateTest, Deadlock_IsToldInJson) {
  JobDirectory directory;
  directory.Write("wait.csv", "0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n");
  const ProcessResult blocked = RunProcess(
      {ProgramPath("penstock"), "simulate", "--method", directory.path("wait.csv"), "--json"});
  EXPECT_EQ(blocked.exit_code, 1) << blocked.err;
  const Json json = Json::parse(blocked.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_THAT(json["deadlock"].get<std::string>(), HasSubstr("worker 1 at 1RECV_F1"));
  EXPECT_TRUE(json["makespan"].is_null());
}

TEST(SimulateTest, FlagsOfAMethod_AreRefusedBesideAFile) {
  JobDirectory directory;
  directory.Write("step.csv", "0F0,0B0\n1F0,1B0\n");
  const ProcessResult refused = RunProcess({ProgramPath("penstock"), "simulate", "--method",
                                            directory.path("step.csv"), "--steps", "100"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--steps is of a method"));
}

TEST(SimulateTest, TimesOfStages_AreThoseOfEveryReplica) {
  const Json json = RunJson({"simulate", "--method", "local-sgd", "--stages", "2", "--replicas",
                             "2", "--microbatches", "4", "--forward", "1,3"});
  ASSERT_EQ(json["per_stage"].size(), 4u);
  for (int stage = 0; stage < 4; ++stage) {
    // Two microbatches of each replica, backwards of 1.
    EXPECT_EQ(json["per_stage"][stage]["busy_seconds"], stage % 2 == 0 ? 4.0 : 8.0) << stage;
  }
}

TEST(SimulateTest, LinksBetweenStages_MayEachHaveTheirOwnTimes) {
  const auto makespan = [](const std::string& latency, const std::string& speed) {
    return RunJson({"simulate", "--method", "gpipe", "--stages", "3", "--message-bytes", "6",
                    "--latency", latency, "--bytes-per-second", speed})["makespan"]
        .get<double>();
  };
  EXPECT_EQ(makespan("0.25", "6e9"), makespan("0.25,0.25", "6e9,6e9"));
  // Each is waited for twice, by the first activation and by the last gradient.
  EXPECT_NEAR(makespan("0.25,1", "6e12"), makespan("0.25,0.25", "6e12") + 2 * 0.75, 1e-6);
  EXPECT_NEAR(makespan("0,0", "6e12,12"), makespan("0", "6e12") + 2 * 0.5, 1e-6);
  const ProcessResult refused = RunProcess({ProgramPath("penstock"), "simulate", "--method",
                                            "gpipe", "--stages", "3", "--latency", "1,2,3"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--latency: has 3 numbers; expected one, or one for each of 2 "
                                     "links between stages"));
}

TEST(SimulateTest, ReplicasOfStages_ShareTheMicrobatches) {
  const Json json = RunJson({"simulate", "--method", "pipedream", "--replicas", "3,1",
                             "--microbatches", "6", "--forward", "3,1"});
  EXPECT_EQ(json["stages"], 2);
  ASSERT_EQ(json["per_stage"].size(), 4u);
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(json["per_stage"][stage]["busy_seconds"], stage < 3 ? 8.0 : 12.0) << stage;
    EXPECT_EQ(json["per_stage"][stage]["staleness"]["max"], stage < 3 ? 1 : 0) << stage;
  }
  EXPECT_TRUE(json["block_delay"].is_null());
}

TEST(SimulateTest, LongRange_IsDrawnAsFarAsItIsKeptAndSaysSo) {
  const ProcessResult result =
      RunPenstock({"simulate", "--method", "1f1b", "--steps", "5000", "--text"});
  EXPECT_THAT(result.err, HasSubstr("only the first "));
}

TEST(SimulateTest, Drawings_AreWritten) {
  JobDirectory directory;
  const ProcessResult result =
      RunPenstock({"simulate", "--method", "1f1b", "--svg", directory.path("a.svg"), "--trace",
                   directory.path("a.json"), "--text"});
  EXPECT_THAT(ReadText(directory.path("a.svg")), HasSubstr("<svg"));
  EXPECT_TRUE(Json::accept(ReadText(directory.path("a.json"))));
  EXPECT_THAT(result.out, HasSubstr("worker 3 |"));
}

TEST(ScheduleTest, Show_ThenVerifyAndSimulateTheFile_AgreeWithTheMethod) {
  JobDirectory directory;
  const std::string file = directory.path("schedule.csv");
  RunPenstock({"schedule", "show", "pipedream", "--stages", "3", "--microbatches", "16", "--merge",
               "-o", file});
  const Json of_method =
      RunJson({"schedule", "verify", "pipedream", "--stages", "3", "--microbatches", "16"});
  EXPECT_EQ(RunJson({"schedule", "verify", file}), of_method);
  EXPECT_EQ(RunJson({"simulate", "--method", file})["makespan"], 2 * 16 + 2 * 2);
}

TEST(ScheduleTest, Show_AsCsv_IsPyTorchsFormWhereThatCanHoldIt) {
  JobDirectory directory;
  const std::string file = directory.path("step.csv");
  const ProcessResult written = RunPenstock(
      {"schedule", "show", "zb-h1", "--stages", "3", "--microbatches", "6", "-o", file});
  EXPECT_THAT(written.err, HasSubstr("as PyTorch's pipelining has it"));
  EXPECT_THAT(ReadText(file), StartsWith("0F0,0SEND_F0,"));
  const Json of_method =
      RunJson({"schedule", "verify", "zb-h1", "--stages", "3", "--microbatches", "6"});
  EXPECT_EQ(RunJson({"schedule", "verify", file})["per_stage"], of_method["per_stage"]);

  const ProcessResult stashed =
      RunPenstock({"schedule", "show", "pipedream", "--stages", "3", "-o", file});
  EXPECT_THAT(stashed.err, HasSubstr("with a header: PyTorch's form has no words for weights"));
  EXPECT_THAT(ReadText(file), StartsWith("# penstock schedule 1 name=pipedream"));
}

TEST(ScheduleTest, Search_WritesAFileThatTakesAsLongAsItSays) {
  JobDirectory directory;
  const std::string file = directory.path("searched.csv");
  const std::vector<std::string> costs = {"--forward", "1,2,1",     "--backward-input",
                                          "2,1,1",     "--latency", "0.25"};
  std::vector<std::string> search = {"schedule",       "search", "--stages", "3",
                                     "--microbatches", "6",      "--memory", "4,4,2",
                                     "--moves",        "2000",   "-o",       file};
  search.insert(search.end(), costs.begin(), costs.end());
  const Json found = RunJson(search);
  EXPECT_LE(found["bound"], found["makespan"]);
  EXPECT_LE(found["makespan"], found["catalog_makespan"]);
  std::vector<std::string> simulate = {"simulate", "--method", file};
  simulate.insert(simulate.end(), costs.begin(), costs.end());
  const Json simulated = RunJson(simulate);
  EXPECT_EQ(simulated["makespan"], found["makespan"]);
  EXPECT_LE(simulated["per_stage"][2]["activations_peak"], 2);
  EXPECT_EQ(RunJson({"schedule", "verify", file})["digest"], found["digest"]);
  EXPECT_THAT(RunPenstock(search).out, HasSubstr("worker 2 |"));
}

// Reductions come after the passes of a step: they take nothing here, but replicas wait for each other.
TEST(ScheduleTest, SearchForReplicas_WritesAFileThatSaysThem) {
  JobDirectory directory;
  const std::string file = directory.path("searched.csv");
  const std::vector<std::string> search = {
      "schedule", "search",  "--stages", "2",         "--replicas", "2,1", "--microbatches",
      "6",        "--moves", "500",      "--forward", "2,1",        "-o",  file};
  const Json found = RunJson(search);
  EXPECT_EQ(found["stages"], 2);
  EXPECT_EQ(found["replicas"], Json({2, 1}));
  EXPECT_EQ(found["workers"], 3);
  EXPECT_LE(found["bound"], found["makespan"]);
  EXPECT_GE(found["makespan_with_reductions"], found["makespan"]);
  EXPECT_THAT(ReadText(file), HasSubstr("replicas=2,1"));
  const Json simulated = RunJson({"simulate", "--method", file, "--forward", "2,1"});
  EXPECT_EQ(simulated["makespan"], found["makespan_with_reductions"]);
  EXPECT_THAT(RunPenstock(search).out, HasSubstr("with the reductions, at which replicas wait"));
  std::vector<std::string> refused = search;
  refused[5] = "2,1,1";
  refused.insert(refused.begin(), ProgramPath("penstock"));
  EXPECT_THAT(RunProcess(refused).err, HasSubstr("--replicas has 3 numbers, but --stages is 2"));
  const Json looped = RunJson({"schedule", "search", "--stages", "4", "--stages-per-worker", "2",
                               "--replicas", "2", "--microbatches", "8", "--moves", "500"});
  EXPECT_EQ(looped["workers"], 4);
  EXPECT_EQ(looped["replicas"], Json({2, 2, 2, 2}));
  EXPECT_LE(looped["bound"], looped["makespan"]);
  const ProcessResult large = RunProcess(
      {ProgramPath("penstock"), "schedule", "search", "--stages", "1024", "--replicas", "1024"});
  EXPECT_THAT(large.err, HasSubstr("--replicas takes 1048576 workers; at most 1024 are possible"));
}

TEST(SimulateTest, RoundPipe_HasTheBubbleOfThePaper) {
  const Json json = RunJson({"simulate", "--method", "roundpipe", "--stages", "6", "--workers", "4",
                             "--microbatches", "8", "--forward", "1", "--backward-input", "0",
                             "--backward-weight", "0"});
  // 11 slots of one length, since a backward is its forward again: W (W - 1) of M S + W (W - 1).
  EXPECT_EQ(json["stages"], 6);
  EXPECT_NEAR(json["bubble_ratio"], 12.0 / (8 * 11 + 12), 1e-9);
  EXPECT_EQ(json["per_stage"].size(), 22u);
}

TEST(MethodsTest, Json_NamesTheCatalog) {
  std::vector<std::string> names;
  for (const Json& method : RunJson({"methods"})) names.push_back(method["method"]);
  EXPECT_THAT(names, Contains("gpipe"));
  EXPECT_THAT(names, Contains("1f1b"));
  EXPECT_THAT(names, Contains("pipedream"));
}

TEST(MethodsTest, Json_HasFiguresOfEveryMethodWhereItCanRun) {
  for (const Json& method : RunJson({"methods", "--workers", "4", "--microbatches", "8"})) {
    EXPECT_TRUE(method["refusal"].is_null()) << method;
    if (method["method"] == "local-sgd") {
      EXPECT_DOUBLE_EQ(method["bubble_ratio"], 3.0 / 11);  // (S-1)/(RH+S-1)
      EXPECT_EQ(method["versions_peak"], 1);
      EXPECT_EQ(method["weights_kept"], 4);
    } else if (method["method"] == "roundpipe") {
      // 7 slots go round 4 workers in two places, in which each has slots of three parts.
      EXPECT_EQ(method["versions_peak"], 1);
      EXPECT_EQ(method["weights_kept"], 3);
      EXPECT_LT(method["bubble_ratio"], 3.0 / 11);
    } else if (method["method"] == "roundpipe-async") {
      // Two versions of its own part, and what it has borrowed for two slots.
      EXPECT_EQ(method["versions_peak"], 2);
      EXPECT_EQ(method["weights_kept"], 4);
      EXPECT_EQ(method["staleness_max"], 1);
      EXPECT_LT(method["bubble_ratio"], 3.0 / 11);
    } else {
      EXPECT_EQ(
          method["weights_kept"].get<double>(),
          method["versions_peak"].get<double>() + method["predicted_weight_copies"].get<double>())
          << method;
    }
  }
}

TEST(ProfileTest, Files_HoldEveryLayerAndComeBackAsJson) {
  const JobDirectory directory;
  const std::string profile = directory.path("profile.yaml");
  const std::string times = directory.path("times.yaml");
  const Json json = RunJson({"profile", directory.job(), "--samples", "1,2,4", "--seconds", "0",
                             "--device", "cpu", "-o", profile, "--times", times});
  EXPECT_EQ(json["precision"], "f32");
  EXPECT_EQ(json["layers"].front()["layer"], "embedding");
  EXPECT_EQ(json["layers"].back()["layer"], "head");
  ASSERT_EQ(json["shapes"].size(), 5u);
  for (const Json& shape : json["shapes"]) {
    ASSERT_EQ(shape["sizes"].size(), 3u);
    EXPECT_EQ(shape["sizes"][2]["samples"], 4);
    EXPECT_GT(shape["sizes"][2]["forward"]["ms"], 0.0);
    EXPECT_GT(shape["weight_bytes"], 0);
  }
  EXPECT_THAT(ReadText(profile), HasSubstr("layer: \"h.0.mlp\""));
  EXPECT_THAT(ReadText(times), HasSubstr("layer: \"h.0.mlp\""));
}

TEST(ProfileTest, TimesOfSizesThatWereNotMeasured_AreRefusedBeforeTheWork) {
  const JobDirectory directory;
  const std::string times = directory.path("times.yaml");
  const ProcessResult result = RunProcess(
      {ProgramPath("penstock"), "profile", directory.job(), "--samples", "64", "--times", times});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("--times: the job's microbatches have"));
}

// Two equal halves with a light tensor between them; a node that loads data comes first.
constexpr char kGraph[] =
    "node1 -- Input0 -- forward_compute_time=0.000, backward_compute_time=0.000, "
    "activation_size=0.0, parameter_size=0.000\n"
    "node2 -- Linear -- forward_compute_time=10.000, backward_compute_time=20.000, "
    "activation_size=1000.0, parameter_size=400000000.000\n"
    "node3 -- Linear -- forward_compute_time=10.000, backward_compute_time=20.000, "
    "activation_size=1000.0, parameter_size=400000000.000\n"
    "\tnode1 -- node2\n"
    "\tnode2 -- node3\n";

TEST(PlanTest, GraphOfPipeDream_IsCutWhereThatIsFastest) {
  const JobDirectory directory;
  directory.Write("graph.txt", kGraph);
  const Json json = RunJson({"plan", "--profile", directory.path("graph.txt"), "--workers", "2"});
  EXPECT_EQ(json["replicas"], "1-1");
  EXPECT_DOUBLE_EQ(json["period_seconds"], 0.03);
  EXPECT_EQ(json["optimal"], true);
  EXPECT_EQ(json["binding"], "compute");
  EXPECT_EQ(json["stages"][0]["layers"], Json::array({"node2"}));
  EXPECT_EQ(json["stages"][1]["layers"], Json::array({"node3"}));
  const ProcessResult drawn = RunPenstock({"plan", "--profile", directory.path("graph.txt"),
                                           "--workers", "2", "--svg", directory.path("plan.svg")});
  EXPECT_THAT(drawn.out, HasSubstr("stage 0 x1 |####"));
  EXPECT_THAT(ReadText(directory.path("plan.svg")), HasSubstr("</svg>"));
}

TEST(PlanTest, ProfileOfOurs_PlansItsLayers) {
  const JobDirectory directory;
  const std::string profile = directory.path("profile.yaml");
  RunPenstock({"profile", directory.job(), "--samples", "2,4", "--seconds", "0", "--device", "cpu",
               "-o", profile});
  const Json json = RunJson({"plan", "--profile", profile, "--samples", "3", "--workers", "3",
                             "--gigabits", "100", "--straight"});
  int layers = 0;
  for (const Json& stage : json["stages"]) {
    layers += static_cast<int>(stage["layers"].size());
    EXPECT_EQ(stage["replicas"], 1);
  }
  EXPECT_EQ(layers, 7);
  EXPECT_GT(json["period_seconds"], 0.0);
}

TEST(PlanTest, Topology_PutsStagesOnUnequalWorkers) {
  const JobDirectory directory;
  directory.Write("graph.txt", kGraph);
  // A copy of the first half's 400 MB, its gradients and Adam's two more are 1.49 GiB, a second version
  // 0.37 more.
  directory.Write(
      "net.yaml",
      "hosts:\n"
      "  - {name: box, gigabits: 10, workers: [{memory_gib: 1.9}]}\n"
      "  - {name: rack, gigabits: 10, workers: [{count: 2, speed: 2, memory_gib: 1.6}]}\n"
      "paths: [{hosts: [box, rack], gigabits: 1}]\n");
  const std::vector<std::string> arguments = {"plan", "--profile", directory.path("graph.txt"),
                                              "--cluster", directory.path("net.yaml")};
  const Json json = RunJson(arguments);
  EXPECT_EQ(json["replicas"], "1-1");
  EXPECT_EQ(json["stages"][0]["placed_on"], Json::array({"box/0"}));
  EXPECT_EQ(json["stages"][0]["in_flight"], 2);
  EXPECT_EQ(json["stages"][1]["placed_on"], Json::array({"rack/0"}));
  EXPECT_DOUBLE_EQ(json["period_seconds"], 0.03);
  EXPECT_EQ(json["optimal"], true);
  // With one version of the weights both fit onto the fast host.
  std::vector<std::string> single = arguments;
  single.insert(single.end(), {"--weights", "single"});
  EXPECT_DOUBLE_EQ(RunJson(single)["period_seconds"], 0.015);
  const ProcessResult text = RunPenstock(arguments);
  EXPECT_THAT(text.out, HasSubstr("box/0"));
  EXPECT_THAT(text.out, HasSubstr("; data parallel does not fit into memory"));
}

// Of the directory's job, on this machine.
std::string ProfileOf(const JobDirectory& directory) {
  std::string profile = directory.path("profile.yaml");
  RunPenstock({"profile", directory.job(), "--samples", "1,2,4,8", "--seconds", "0", "--device",
               "cpu", "-o", profile});
  return profile;
}

// The times of a device that is two hundred times as slow: what other programs do meanwhile does not make its passes late.
std::string TwoHundredTimes(const std::string& times) {
  const std::string unit = "_ms: ";
  std::string slower;
  size_t done = 0;
  for (size_t at = times.find(unit); at != std::string::npos; at = times.find(unit, done)) {
    at += unit.size();
    char* end = nullptr;
    const double ms = std::strtod(times.c_str() + at, &end);
    absl::StrAppend(&slower, times.substr(done, at - done), 200.0 * ms);
    done = end - times.c_str();
  }
  return slower + times.substr(done);
}

TEST(PlanTest, Job_IsPlannedWithEveryMethodAndItsFileRuns) {
  const JobDirectory directory;
  const std::string profile = ProfileOf(directory);
  const std::string planned = directory.path("planned.yaml");
  const std::string times = directory.path("times.yaml");
  const Json json =
      RunJson({"plan", directory.job(), "--profile", profile, "--workers", "3", "--methods",
               "1f1b,zb-h2,interleaved-1f1b", "--explain", "-o", planned, "--times", times});
  EXPECT_EQ(json["in_time"], true);
  const Json fastest = json["candidates"][json["fastest"].get<int>()];
  for (const Json& candidate : json["candidates"]) {
    if (candidate.contains("rejected")) continue;
    EXPECT_GE(candidate["step_seconds"], fastest["step_seconds"]);
    EXPECT_EQ(candidate["stage_layers"].size(), candidate["stages"]);
  }
  const Json& reasons = json["reasons"];
  EXPECT_LE(reasons["spread_seconds"], reasons["busiest_seconds"]);
  EXPECT_LE(json["step_bound_seconds"], fastest["step_seconds"]);
  const ProcessResult text =
      RunPenstock({"plan", directory.job(), "--profile", profile, "--workers", "3", "--explain",
                   "--svg", directory.path("plan.svg")});
  EXPECT_THAT(ReadText(directory.path("plan.svg")), HasSubstr("stage 0"));
  EXPECT_THAT(text.out, HasSubstr("by worker, and a microbatch by stage"));
  EXPECT_THAT(text.out, HasSubstr("fastest: "));
  EXPECT_THAT(text.out, HasSubstr("what binds "));
  EXPECT_THAT(text.out, HasSubstr("pipedream-2bw"));
  directory.Write("slower.yaml", TwoHundredTimes(ReadText(times)));
  const Json trained = RunJson({"train", planned, "--set", "training.learning_rate.warmup_steps=0",
                                "--steps", "2", "--emulate", directory.path("slower.yaml")});
  EXPECT_EQ(trained["method"], fastest["method"]);
  EXPECT_EQ(trained["stages"], fastest["stages"]);
  // The file says what was planned, and the run what came of it.
  const Json& predicted = trained["feedback"]["predicted"];
  const Json& measured = trained["feedback"]["measured"];
  EXPECT_EQ(predicted["step_seconds"], fastest["step_seconds"]);
  ASSERT_EQ(predicted["workers"].size(), fastest["workers"].size());
  for (size_t i = 0; i < predicted["workers"].size(); ++i) {
    EXPECT_EQ(predicted["workers"][i]["memory_bytes"], fastest["workers"][i]["memory_bytes"]);
    EXPECT_EQ(trained["per_stage"][i]["predicted_memory_bytes"],
              fastest["workers"][i]["memory_bytes"])
        << "as the worker predicts it for itself";
    // Messages that come early or late make a difference.
    const auto memory = fastest["workers"][i]["memory_bytes"].get<double>();
    EXPECT_NEAR(measured["workers"][i]["memory_bytes"].get<double>(), memory, 0.25 * memory);
    EXPECT_EQ(fastest["workers"][i]["sent_bytes_per_step"],
              predicted["workers"][i]["sent_bytes_per_step"]);
    EXPECT_EQ(measured["workers"][i]["sent_bytes_per_step"],
              predicted["workers"][i]["sent_bytes_per_step"]);
  }
  // What it was planned for is another job.
  const ProcessResult other =
      RunPenstock({"train", planned, "--steps", "1", "--set", "training.microbatches=16", "--set",
                   "training.learning_rate.warmup_steps=0"});
  EXPECT_THAT(other.err, HasSubstr("the job's prediction is left out"));
}

TEST(PlanTest, JobThatFitsNowhere_SaysHowMuchMemoryWouldDo) {
  const JobDirectory directory;
  const std::string profile = ProfileOf(directory);
  directory.Write("small.yaml", "hosts: [{name: a, workers: [{count: 2, memory_gib: 0.00001}]}]\n");
  const ProcessResult plan =
      RunProcess({ProgramPath("penstock"), "plan", directory.job(), "--profile", profile,
                  "--cluster", directory.path("small.yaml"), "--methods", "1f1b"});
  EXPECT_EQ(plan.exit_code, 1);
  EXPECT_THAT(plan.err, ContainsRegex("no candidate can run on these workers; 1f1b, .* would with "
                                      ".*iB on the worker that needs most"));
}

TEST(PlanTest, Race_TrainsTheCandidatesAndChoosesByLoss) {
  const JobDirectory directory;
  const std::string profile = ProfileOf(directory);
  const std::string planned = directory.path("planned.yaml");
  const Json json = RunJson({"plan", directory.job(), "--profile", profile, "--workers", "2",
                             "--methods", "1f1b,gpipe,paci,pipedream", "--race", "--race-steps",
                             "6", "--until", "0.001", "-o", planned});
  const Json& race = json["race"];
  // The two that drain train alike. Whether replicas of stages are worth a candidate depends on the times
  // that were measured.
  std::multiset<std::string> kinds;
  for (const Json& racer : race["racers"]) {
    const Json& candidate = json["candidates"][racer["candidate"].get<int>()];
    const std::string method = candidate["method"];
    const bool drains = method == "1f1b" || method == "gpipe";
    kinds.insert(drains ? "drains" : method + (candidate["replicas"].empty() ? "" : " replicas"));
  }
  EXPECT_THAT(
      kinds,
      AllOf(IsSupersetOf({"drains", "paci", "pipedream"}),
            IsSubsetOf({"drains", "paci", "paci replicas", "pipedream", "pipedream replicas"})));
  for (const Json& racer : race["racers"]) {
    EXPECT_EQ(racer["failed"], "");
    EXPECT_GE(racer["steps"], 4);
    EXPECT_TRUE(racer["reached_seconds"].is_null());
    EXPECT_GT(racer["loss"], 0.0);
  }
  const Json winner = json["candidates"][race["winner"].get<int>()];
  EXPECT_THAT(ReadText(planned), HasSubstr(winner["method"].get<std::string>()));
}

TEST(PlanTest, WrongInput_IsNamed) {
  const JobDirectory directory;
  directory.Write("graph.txt", kGraph);
  directory.Write("bad.txt", std::string(kGraph) + "\tnode3 -- node9\n");
  directory.Write("bad.yaml", "shapes: 1\n");
  const std::string graph = directory.path("graph.txt");
  const auto refused = [&](std::vector<std::string> arguments, const std::string& expected) {
    arguments.insert(arguments.begin(), {ProgramPath("penstock"), "plan", "--profile"});
    const ProcessResult result = RunProcess(arguments);
    EXPECT_EQ(result.exit_code, 2) << expected;
    EXPECT_THAT(result.err, HasSubstr(expected));
  };
  refused({directory.path("none.txt")}, "none.txt");
  refused({directory.path("bad.txt")}, "node9");
  refused({directory.path("bad.yaml")}, "bad.yaml:1:");
  refused({graph, "--workers", "4x"}, "--workers: is 4x");
  refused({graph, "--workers", "4x2"}, "--gigabits: has 1 numbers; expected one for each of the 2");
  refused({graph, "--samples", "2"}, "--samples: ");
  refused({graph, "--model", "pipedraem"}, "--model");
  directory.Write("net.yaml", "hosts: [{name: a, workers: [{memory_gib: 0.5}]}]\n");
  directory.Write("bad_net.yaml", "hosts: [{name: a, workers: [{speed: -1}]}]\n");
  refused({graph, "--cluster", directory.path("bad_net.yaml")},
          "bad_net.yaml:1:30: hosts[0].workers[0].speed: is -1");
  refused({graph, "--cluster", directory.path("net.yaml"), "--workers", "3"}, "--workers");
  refused({graph, "--weights", "single"}, "--cluster");
  // Its name before, for one version.
  refused({graph, "--topology", directory.path("bad_net.yaml")},
          "--topology is called --cluster now");
  refused({graph, "--topology=" + directory.path("bad_net.yaml")}, "speed: is -1");
  refused({graph, "--methods", "1f1b"}, "JOB.yaml");
  refused({graph, directory.job()}, "graph.txt");
}

class CheckpointCommandsTest : public ::testing::Test {
 protected:
  void Train(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"train",   job_.job(),
                                          "--steps", "20",
                                          "--set",   "validation.every_steps=0",
                                          "--set",   "checkpoint.every_steps=20",
                                          "--set",   "checkpoint.directory=" + job_.checkpoints()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    result_ = RunJson(arguments);
  }
  JobDirectory job_;
  Json result_;
};

TEST_F(CheckpointCommandsTest, Generate_SameSeed_SameText) {
  Train();
  const std::vector<std::string> arguments = {
      "generate", job_.checkpoints(), "--prompt", "Line ", "--tokens", "40", "--seed", "3"};
  const Json once = RunJson(arguments);
  EXPECT_EQ(once, RunJson(arguments));
  EXPECT_EQ(once["step"], 20);
  EXPECT_EQ(once["prompt"], "Line ");
  const ProcessResult plain = RunPenstock(arguments);
  EXPECT_EQ(plain.out.size(), 5u + 40u + 1u);
}

TEST_F(CheckpointCommandsTest, Evaluate_AText_IsTheSameInAnyBatches) {
  Train();
  const std::string text = job_.path("input.txt");
  const Json whole = RunJson({"evaluate", job_.checkpoints(), "--data", text});
  const auto samples = static_cast<int64_t>(ReadText(text).size() - 1) / 16;
  EXPECT_EQ(whole["step"], 20);
  EXPECT_EQ(whole["data"], text);
  EXPECT_EQ(whole["split"], "all");
  EXPECT_EQ(whole["samples"], samples);
  EXPECT_EQ(whole["targets"], 16 * samples);
  const double loss = whole["loss"];
  EXPECT_GT(loss, 0);
  EXPECT_DOUBLE_EQ(whole["perplexity"], std::exp(loss));
  EXPECT_DOUBLE_EQ(whole["bits_per_byte"], loss / std::log(2.0));
  EXPECT_GT(whole["metrics"]["accuracy"], 0);
  EXPECT_GE(whole["metrics"]["top5"], whole["metrics"]["accuracy"]);

  // One that does not divide the samples.
  const std::string batch = std::to_string(samples / 2 + 1);
  const Json halves = RunJson({"evaluate", job_.checkpoints(), "--data", text, "--batch", batch});
  EXPECT_EQ(halves["targets"], whole["targets"]);
  EXPECT_NEAR(halves["loss"], loss, 1e-5);
  EXPECT_NEAR(halves["metrics"]["accuracy"], whole["metrics"]["accuracy"], 1e-3);
}

TEST_F(CheckpointCommandsTest, Evaluate_OnAJobsData_TakesWhatItKeepsForValidation) {
  Train();
  const Json part = RunJson({"evaluate", job_.checkpoints(), "--data", job_.job()});
  EXPECT_EQ(part["split"], "validation");
  const Json first =
      RunJson({"evaluate", job_.checkpoints(), "--data", job_.job(), "--samples", "1"});
  EXPECT_EQ(first["samples"], 1);
  EXPECT_GT(part["samples"], 1);
  const Json rest =
      RunJson({"evaluate", job_.checkpoints(), "--data", job_.job(), "--split", "training"});
  EXPECT_GT(rest["samples"], part["samples"]);

  const auto refused = [](std::vector<std::string> arguments, const char* because) {
    arguments.insert(arguments.begin(), ProgramPath("penstock"));
    const ProcessResult result = RunProcess(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.err, HasSubstr(because));
  };
  refused({"evaluate", job_.checkpoints()}, "--data: is missing");
  refused({"evaluate", job_.job()}, "checkpoint.directory: is missing");
  refused({"evaluate", job_.checkpoints(), "--data", job_.path("none.txt")}, "none.txt");
}

TEST_F(CheckpointCommandsTest, Export_UntiedHead_HasTheNamesHuggingFaceExpects) {
  Train();
  const Json exported = RunJson({"export", job_.checkpoints(), "-o", job_.path("model")});
  EXPECT_EQ(exported["weights_sha256"], result_["weights_sha256"]);
  const Json config = Json::parse(ReadText(job_.path("model/config.json")));
  EXPECT_EQ(config["model_type"], "gpt2");
  EXPECT_EQ(config["n_layer"], 2);
  EXPECT_EQ(config["n_head"], 2);
  EXPECT_EQ(config["n_embd"], 32);
  EXPECT_EQ(config["n_positions"], 16);
  EXPECT_EQ(config["vocab_size"], 256);
  EXPECT_EQ(config["tie_word_embeddings"], false);
  const std::string file = ReadText(job_.path("model/model.safetensors"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SafetensorsView view, ParseSafetensors(file));
  EXPECT_EQ(view.metadata.at("format"), "pt");
  std::vector<std::string> names;
  int64_t parameters = 0;
  for (const TensorView& tensor : view.tensors) {
    names.push_back(tensor.name);
    parameters += static_cast<int64_t>(tensor.bytes.size()) / 4;
  }
  EXPECT_THAT(names, ::testing::SizeIs(2 + 2 * 12 + 2 + 1));
  for (const char* name :
       {"transformer.wte.weight", "transformer.wpe.weight", "transformer.h.0.ln_1.weight",
        "transformer.h.1.attn.c_attn.weight", "transformer.h.1.mlp.c_proj.bias",
        "transformer.ln_f.bias", "lm_head.weight"}) {
    EXPECT_THAT(names, Contains(name));
  }
  EXPECT_EQ(exported["parameters"], parameters);
}

// A step with such a rate changes no weight.
TEST_F(CheckpointCommandsTest, Export_TrainedAgain_HasTheBitsThatItWasReadWith) {
  Train();
  RunPenstock({"export", job_.checkpoints(), "-o", job_.path("model")});
  const Json trained =
      RunJson({"train", job_.job(), "--steps", "1", "--workers", "3", "--set",
               "validation.every_steps=0", "--set", "model.hugging_face={directory: model}",
               "--set", "training.optimizer={sgd: {learning_rate: 1.0e-45}}", "--set",
               "checkpoint.every_steps=1", "--set", "checkpoint.directory=" + job_.path("again")});
  EXPECT_EQ(trained["weights_sha256"], result_["weights_sha256"]);
  const Json exported = RunJson({"export", job_.path("again"), "-o", job_.path("same")});
  EXPECT_EQ(ReadText(job_.path("same/model.safetensors")),
            ReadText(job_.path("model/model.safetensors")));
  EXPECT_EQ(ReadText(job_.path("same/config.json")), ReadText(job_.path("model/config.json")));
  EXPECT_EQ(exported["others"], Json::array({job_.path("same/generation_config.json")}));
}

TEST_F(CheckpointCommandsTest, Train_FromACheckpoint_StartsWithItsWeights) {
  Train({"--workers", "2"});
  const std::string base = job_.checkpoints() + "/" + job_.Checkpoints().back();
  const Json trained =
      RunJson({"train", job_.job(), "--steps", "1", "--workers", "3", "--set",
               "validation.every_steps=0", "--set", "model.pretrained={directory: " + base + "}",
               "--set", "training.optimizer={sgd: {learning_rate: 1.0e-45}}"});
  EXPECT_EQ(trained["weights_sha256"], result_["weights_sha256"]);
  const ProcessResult deeper =
      RunProcess({ProgramPath("penstock"), "train", job_.job(), "--steps", "1", "--set",
                  "model.gpt.layers=3", "--set", "model.pretrained={directory: " + base + "}"});
  EXPECT_NE(deeper.exit_code, 0);
  EXPECT_THAT(deeper.err, HasSubstr("which layer h.2.attention reads"));
}

TEST_F(CheckpointCommandsTest, Export_TiedHead_IsStoredOnce) {
  Train({"--set", "model.gpt.tied_head=true", "--workers", "2"});
  const std::string output = job_.path("out.safetensors");
  RunPenstock({"export", job_.checkpoints(), "-o", output});
  EXPECT_EQ(Json::parse(ReadText(job_.path("config.json")))["tie_word_embeddings"], true);
  const std::string file = ReadText(output);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SafetensorsView view, ParseSafetensors(file));
  int heads = 0;
  for (const TensorView& tensor : view.tensors) {
    heads += tensor.name == "lm_head.weight" || tensor.name == "transformer.wte.weight";
  }
  EXPECT_EQ(heads, 1);
  RunPenstock({"generate", job_.checkpoints(), "--tokens", "5"});
}

// The head was tied and is a tensor of its own now, which any reader of such files finds under its usual name.
TEST_F(CheckpointCommandsTest, Export_HeadThatModelUntieCopied_IsStoredAndSaid) {
  Train({"--set", "model.gpt.tied_head=true", "--set", "model.untie=true", "--set",
         "pipeline.method=pipedream", "--set", "pipeline.stages=2", "--workers", "2"});
  const Json exported = RunJson({"export", job_.checkpoints(), "-o", job_.path("model")});
  EXPECT_EQ(exported["untied"], true);
  EXPECT_EQ(Json::parse(ReadText(job_.path("model/config.json")))["tie_word_embeddings"], false);
  const std::string file = ReadText(job_.path("model/model.safetensors"));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const SafetensorsView view, ParseSafetensors(file));
  std::vector<std::string> names;
  for (const TensorView& tensor : view.tensors) names.push_back(tensor.name);
  EXPECT_THAT(names, Contains("lm_head.weight"));
  EXPECT_THAT(names, Contains("transformer.wte.weight"));
  EXPECT_THAT(RunPenstock({"export", job_.checkpoints(), "-o", job_.path("again")}).out,
              HasSubstr("weights that were tied are copies of their own now"));
  RunPenstock({"generate", job_.checkpoints(), "--tokens", "5"});
}

// The text's last tenth is 17 contexts long, so that the 16 windows that the job spreads over it are those that evaluate
// reads one after the other.
TEST_F(CheckpointCommandsTest, WeightsEma_AreTheAveragesThatTheJobValidated) {
  job_.Write("input.txt", ReadText(job_.path("input.txt")).substr(0, 10 * 17 * 16));
  Train({"--set", "training.ema.decay=0.9", "--set", "validation.every_steps=20", "--set",
         "validation.weights=ema", "--workers", "2"});
  const auto evaluate = [&](const char* weights) {
    return RunJson({"evaluate", job_.checkpoints(), "--data", job_.job(), "--weights", weights});
  };
  const Json current = evaluate("current"), average = evaluate("ema");
  EXPECT_EQ(average["weights"], "ema");
  EXPECT_EQ(average["samples"], 16);
  EXPECT_NEAR(average["loss"], result_["validation_loss"], 1e-5);
  EXPECT_GT(std::abs(current["loss"].get<double>() - average["loss"].get<double>()), 1e-3);

  // Tokens are chosen by the weights.
  const auto generate = [&](const char* weights) {
    return RunJson(
        {"generate", job_.checkpoints(), "--tokens", "60", "--seed", "3", "--weights", weights});
  };
  EXPECT_NE(generate("current")["text"], generate("ema")["text"]);

  // What was exported is the average, down to its loss after a step that changes nothing.
  RunJson({"export", job_.checkpoints(), "-o", job_.path("model"), "--weights", "ema"});
  const Json again =
      RunJson({"train", job_.job(), "--steps", "1", "--set", "validation.every_steps=1", "--set",
               "model.hugging_face={directory: model}", "--set",
               "training.optimizer={sgd: {learning_rate: 1.0e-45}}"});
  EXPECT_NEAR(again["validation_loss"], result_["validation_loss"], 1e-5);
}

TEST_F(CheckpointCommandsTest, WeightsEma_OfACheckpointWithoutAverages_IsRefused) {
  Train();
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{"evaluate", "--data", job_.job()},
                                             {"generate"},
                                             {"export", "-o", job_.path("model")}}) {
    std::vector<std::string> arguments = {ProgramPath("penstock")};
    arguments.insert(arguments.end(), command.begin(), command.end());
    arguments.insert(arguments.end(), {job_.checkpoints(), "--weights", "ema"});
    const ProcessResult result = RunProcess(arguments);
    EXPECT_NE(result.exit_code, 0) << command.front();
    EXPECT_THAT(result.err, HasSubstr("has no average of wte.weight")) << command.front();
    EXPECT_THAT(result.err, HasSubstr("training.ema")) << command.front();
  }
}

TEST_F(CheckpointCommandsTest, Export_FileThatExists_IsNotReplaced) {
  Train();
  RunPenstock({"export", job_.checkpoints(), "-o", job_.path("model")});
  const ProcessResult again =
      RunProcess({ProgramPath("penstock"), "export", job_.checkpoints(), "-o", job_.path("model")});
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.err, HasSubstr("exists"));
}

TEST_F(CheckpointCommandsTest, Compare_TwoResults_StandSideBySide) {
  Train();
  job_.Write("a.json", result_.dump());
  result_["method"] = "pipedream";
  job_.Write("b.json", result_.dump());
  const ProcessResult result =
      RunPenstock({"compare", "--results", job_.path("a.json"), job_.path("b.json")});
  EXPECT_THAT(result.out, HasSubstr("\n1f1b"));
  EXPECT_THAT(result.out, HasSubstr("\npipedream"));
}

}  // namespace
}  // namespace penstock
