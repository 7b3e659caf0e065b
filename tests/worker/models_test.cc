// Models other than the GPT through pipelines of workers: every method, random cuts, replicas and recomputation give the
// bits of the serial reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/checkpoint.h"
#include "job/defaults.h"
#include "job/model_graph.h"
#include "job/resolve.h"
#include "job/run/run_schedule.h"
#include "job/yaml/yaml.h"
#include "model/layer_order.h"
#include "planner/cost/run_costs.h"
#include "planner/cost/run_memory.h"
#include "schedule/sent_bytes.h"
#include "tests/model/separate_gpt.h"
#include "tests/support/status_matchers.h"
#include "tests/support/ticking_clock.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"
#include "tests/worker/test_models.h"
#include "worker/layer_profiler.h"

namespace penstock {
namespace {

constexpr char kTiedAwdLm[] = R"(
  awd_lm: {layers: 3, hidden: 9, embedding: 6, context: 5, vocabulary: 19, carried: true}
)";

class Models : public ::testing::TestWithParam<TestModel> {
 protected:
  void ExpectEqual(const v1::JobSpec& spec, const std::vector<LayerRange>& layers) {
    std::vector<int> counts;
    for (const LayerRange& range : layers) counts.push_back(range.count);
    SCOPED_TRACE(absl::StrCat(spec.pipeline().method(), ", layers ", absl::StrJoin(counts, " ")));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec, layers, {}, files_));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                  TrainCluster({.spec = spec, .layers = layers}, files_));
    ExpectSameTraining(cluster, serial);
  }

  int LayersOf(const v1::JobSpec& spec) { return ChainOf(spec).size(); }

  MemoryFiles files_;
  std::mt19937 random_{7};
};

void SetOrder(const std::vector<std::string>& order, v1::JobSpec& spec) {
  spec.mutable_pipeline()->mutable_layer_order()->Assign(order.begin(), order.end());
}

int BranchesIn(const ModelGraph& model) {
  return static_cast<int>(
      std::count_if(model.nodes.begin(), model.nodes.end(), [](const Node& node) {
        return node.op->name == "attention_branch" || node.op->name == "mlp_branch";
      }));
}

TEST(Branches, OfModelsInYaml_AreFusedWhereTheOpsFit) {
  const auto branches = [](absl::string_view name) {
    const absl::Span<const TestModel> models = TestModels();
    const auto model = std::find_if(models.begin(), models.end(),
                                    [&](const TestModel& each) { return each.name == name; });
    return BranchesIn(ChainOf(JobOf(*model, "1f1b")));
  };
  EXPECT_EQ(branches("transformer"), 6);
  EXPECT_EQ(branches("other_transformer"), 0);
}

// The same GPT by its numbers and op by op: the same first weights, and so the same bits from there on, whatever the cut.
TEST(Branches, OfAGptInSeparateOps_TrainAsTheFamily) {
  const GptConfig config = {
      .layers = 2, .width = 8, .heads = 2, .context = 6, .vocabulary = 11, .dropout = 0.25};
  v1::JobSpec family = JobOf({"gpt",
                              "\n  gpt: {layers: 2, width: 8, heads: 2, context: 6, "
                              "vocabulary: 11, dropout: 0.25, tied_head: true}\n"},
                             "1f1b");
  v1::JobSpec listed = family;
  *listed.mutable_model()->mutable_graph() = ToProto(SeparateGpt(config));
  MemoryFiles files;
  std::mt19937 random(3);
  for (const char* precision : {"f32", "bf16"}) {
    family.mutable_training()->set_precision(precision);
    listed.mutable_training()->set_precision(precision);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained expected,
                                  TrainSerially(family, EvenSplit(7, 1), {}, files));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                  TrainSerially(listed, EvenSplit(7, 1), {}, files));
    ExpectSameTraining(serial, expected);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained cut,
        TrainCluster({.spec = listed, .layers = RandomSplit(7, 3, random)}, files));
    ExpectSameTraining(cut, expected);
  }
}

TEST_P(Models, EveryMethodOnFourWorkers_GivesTheReferencesBits) {
  for (const char* method : {"1f1b", "gpipe", "zb-h1", "pipedream", "pipedream-2bw", "paci",
                             "nesterov", "pipemare", "spectrain"}) {
    v1::JobSpec spec = JobOf(GetParam(), method);
    ExpectEqual(spec, RandomSplit(LayersOf(spec), 4, random_));
  }
}

TEST_P(Models, RandomCuts_ChangeNoBit) {
  for (const char* method : {"1f1b", "zb-h1"}) {
    const v1::JobSpec spec = JobOf(GetParam(), method);
    const int layers = LayersOf(spec);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                  TrainSerially(spec, EvenSplit(layers, 1), {}, files_));
    for (int cut = 0; cut < 10; ++cut) {
      const int stages = 2 + static_cast<int>(random_() % std::min(layers - 1, 5));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          const Trained cluster,
          TrainCluster({.spec = spec, .layers = RandomSplit(layers, stages, random_)}, files_));
      ExpectSameTraining(cluster, serial);
    }
  }
}

TEST_P(Models, InBf16_RandomCutsChangeNoBit) {
  v1::JobSpec spec = JobOf(GetParam(), "1f1b");
  spec.mutable_training()->set_precision("bf16");
  const int layers = LayersOf(spec);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                TrainSerially(spec, EvenSplit(layers, 1), {}, files_));
  for (int cut = 0; cut < 5; ++cut) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const Trained cluster,
        TrainCluster({.spec = spec, .layers = RandomSplit(layers, 3, random_)}, files_));
    ExpectSameTraining(cluster, serial);
  }
}

TEST_P(Models, Recomputation_ChangesNoBit) {
  v1::JobSpec spec = JobOf(GetParam(), "1f1b");
  const std::vector<LayerRange> layers = RandomSplit(LayersOf(spec), 3, random_);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec, layers, {}, files_));
  spec.mutable_pipeline()->set_recompute("all");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                TrainCluster({.spec = spec, .layers = layers}, files_));
  ExpectSameTraining(cluster, serial);
}

// The first layer has no parameters, and another one without may come first, too. Behind them no gradient flows back.
constexpr char kPrefix[] = R"(
  layers:
    - input: {image: {u8: [8, 8, 1]}, mask: {f32: [8, 8, 1]}, label: {i32: []}}
    - block: {name: pixels, layers: [{image: {of: image}}]}
    - conv2d: {channels: 4, kernel: 3, padding: 1, name: edges}
    - block: {name: small, layers: [{max_pool: {of: mask, kernel: 2, stride: 2}}, flatten]}
    - block: {name: seen, layers: [{flatten: {of: edges}}, {concat: {of: [flatten, small]}}]}
    - linear: {outputs: 6, name: hidden}
    - relu
    - linear: {outputs: 4, name: quarter}
    - cross_entropy: {targets: label}
)";

TEST(LayersWithoutGradient, CutBehindTheNextOne_GiveTheReferencesBits) {
  MemoryFiles files;
  for (const char* method : {"1f1b", "zb-h1", "pipedream"}) {
    SCOPED_TRACE(method);
    v1::JobSpec spec = JobOf({"prefix", kPrefix}, method);
    const auto expect_equal = [&](const std::vector<LayerRange>& layers) {
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial, TrainSerially(spec, layers, {}, files));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                    TrainCluster({.spec = spec, .layers = layers}, files));
      ExpectSameTraining(cluster, serial);
    };
    expect_equal(SplitInto({2, 3, 1}));
    expect_equal(SplitInto({4, 1, 1}));
    SetOrder({"small", "pixels", "edges", "seen", "hidden", "quarter"}, spec);
    expect_equal(SplitInto({3, 2, 1}));
  }
}

// What a coordinator of another build could send.
TEST(LayersWithoutGradient, CutRightBehindThem_IsRefusedBeforeTheRun) {
  MemoryFiles files;
  TestCluster cluster({.spec = JobOf({"prefix", kPrefix}, "1f1b"), .layers = SplitInto({1, 4, 1})},
                      files);
  EXPECT_THAT(cluster.prepared(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::AllOf(testing::HasSubstr("plan: "),
                                      testing::HasSubstr("no layer in front of it has parameters"),
                                      testing::HasSubstr("at least 2 layers"))));
}

// A stage in the middle may have no parameters: it has nothing to add up, to copy or to update.
constexpr char kPoolAlone[] = R"(
  layers:
    - input: {image: {u8: [8, 8, 1]}, label: {i32: []}}
    - image: {of: image}
    - conv2d: {channels: 4, kernel: 3, padding: 1}
    - block: {name: pooled, layers: [{max_pool: {kernel: 2, stride: 2}}, flatten]}
    - linear: {outputs: 6, name: hidden}
    - relu
    - linear: {outputs: 4, name: quarter}
    - cross_entropy: {targets: label}
)";

TEST(StageWithoutParameters, InTheMiddle_GivesTheReferencesBits) {
  MemoryFiles files;
  const auto expect_equal = [&](const v1::JobSpec& spec, const std::vector<int>& layers) {
    SCOPED_TRACE(absl::StrCat(spec.pipeline().method(), ", layers ", absl::StrJoin(layers, " ")));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained serial,
                                  TrainSerially(spec, SplitInto(layers), {}, files));
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cluster,
                                  TrainCluster({.spec = spec, .layers = SplitInto(layers)}, files));
    ExpectSameTraining(cluster, serial);
  };
  for (const char* method : {"1f1b", "zb-h1", "pipedream", "pipedream-2bw", "paci"}) {
    expect_equal(JobOf({"pool", kPoolAlone}, method), {1, 1, 2});
  }
  for (const char* method : {"interleaved-1f1b", "zb-v", "local-sgd"}) {
    expect_equal(JobOf({"pool", kPoolAlone}, method), {1, 1, 1, 1});
  }
  for (const int32_t workers : {2, 4}) {
    v1::JobSpec round = JobOf({"pool", kPoolAlone}, "roundpipe");
    round.mutable_pipeline()->set_stages(3);
    round.mutable_pipeline()->set_workers(workers);
    expect_equal(round, {1, 1, 2});
  }
  for (const char* method : {"1f1b", "pipedream"}) {
    v1::JobSpec replicated = JobOf({"pool", kPoolAlone}, method);
    for (const int replicas : {1, 2, 2}) replicated.mutable_pipeline()->add_replicas(replicas);
    expect_equal(replicated, {1, 1, 2});
  }
}

TEST(TiedModels, WithAMethodThatUpdatesEachStageByItself_AreRefusedByName) {
  const absl::StatusOr<v1::JobSpec> spec = ParseJobYaml(R"(
name: tied
model:
  layers:
    - input: {tokens: {i32: [8]}, targets: {i32: [8]}}
    - embedding: {of: tokens, vocabulary: 256, width: 6, name: table}
    - linear: {outputs: 6, name: middle}
    - linear: {outputs: 256, bias: false, weights_of: table, name: logits}
    - cross_entropy: {targets: targets}
data: {text: {path: /data/text.txt}}
training: {steps: 2, batch: 4, microbatches: 2, optimizer: {sgd: {learning_rate: 0.1}}}
pipeline: {method: 1f1b}
)",
                                                        "job.yaml");
  ASSERT_THAT(spec, IsOk());
  MemoryFiles files;
  AddTestText(files);
  // Drained at every step, both uses get the sum of the two gradients.
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained whole,
                                TrainSerially(*spec, SplitInto({3}), {}, files));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained cut,
                                TrainCluster({.spec = *spec, .layers = SplitInto({1, 2})}, files));
  ExpectSameTraining(cut, whole);
  v1::JobSpec asynchronous = *spec;
  asynchronous.mutable_pipeline()->set_method("pipedream");
  const absl::StatusOr<ResolvedJob> job = ResolveJob(asynchronous);
  ASSERT_THAT(job, IsOk());
  EXPECT_THAT(CheckStages(*job, 2),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::AllOf(testing::HasSubstr("must not share weights for pipedream"),
                                      testing::HasSubstr("table.weight"))));
}

// The table of a tied AWD-LSTM is read by the first layer and the last one, with rows dropped in the first alone.
TEST(TiedModels, AwdLm_DrainedAtEveryStep_GivesTheReferencesBits) {
  const TestModel model = {"awd_lm", kTiedAwdLm};
  MemoryFiles files;
  std::mt19937 random(5);
  const int layers = ChainOf(JobOf(model, "1f1b")).size();
  for (const char* method : {"1f1b", "gpipe", "zb-h1"}) {
    const v1::JobSpec spec = JobOf(model, method);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained whole,
                                  TrainSerially(spec, SplitInto({layers}), {}, files));
    for (int stages = 2; stages <= 4; ++stages) {
      SCOPED_TRACE(absl::StrCat(method, ", stages ", stages));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(
          const Trained cut,
          TrainCluster({.spec = spec, .layers = RandomSplit(layers, stages, random)}, files));
      ExpectSameTraining(cut, whole);
    }
  }
}

TEST(TiedModels, AwdLmWithAMethodThatUpdatesEachStageByItself_IsRefusedByItsTable) {
  for (const char* method : {"pipedream", "pipedream-2bw", "paci", "nesterov"}) {
    const absl::StatusOr<ResolvedJob> job = ResolveJob(JobOf({"awd_lm", kTiedAwdLm}, method));
    ASSERT_THAT(job, IsOk());
    EXPECT_THAT(
        CheckStages(*job, 4),
        StatusIs(
            absl::StatusCode::kInvalidArgument,
            testing::AllOf(testing::HasSubstr(absl::StrCat("must not share weights for ", method)),
                           testing::HasSubstr("encoder.weight"))));
  }
}

// Running statistics are those of each replica, and at every cut the mean of all.
TEST_P(Models, ReplicasOfStages_GiveTheReferencesBits) {
  for (const char* method : {"1f1b", "pipedream", "paci"}) {
    for (const std::vector<int>& replicas : {std::vector<int>{2, 1}, {1, 4}, {2, 2}}) {
      v1::JobSpec spec = JobOf(GetParam(), method);
      for (const int of_stage : replicas) spec.mutable_pipeline()->add_replicas(of_stage);
      ExpectEqual(spec, RandomSplit(LayersOf(spec), 2, random_));
    }
  }
}

TEST_P(Models, ReplicasOfTheModel_GiveTheReferencesBits) {
  v1::JobSpec spec = JobOf(GetParam(), "local-sgd");
  ExpectEqual(spec, RandomSplit(LayersOf(spec), 2, random_));
}

// In a random order whose layers come behind those that they read.
std::vector<std::string> RandomOrder(const ModelGraph& model, std::mt19937& random) {
  std::vector<std::string> order;
  std::vector<bool> is_done(model.size(), false);
  while (static_cast<int>(order.size()) < model.size()) {
    std::vector<int> ready;
    for (int layer = 0; layer < model.size(); ++layer) {
      bool is_ready = !is_done[layer];
      for (int n = model.layers[layer].first_node; n < model.layers[layer].end_node(); ++n) {
        for (const int input : model.nodes[n].inputs) {
          if (model.is_port(input)) continue;
          const int from = model.LayerOfNode(model.NodeOf(input));
          is_ready = is_ready && (from == layer || is_done[from]);
        }
      }
      if (is_ready) ready.push_back(layer);
    }
    const int next = ready[random() % ready.size()];
    is_done[next] = true;
    order.push_back(model.layers[next].name);
  }
  return order;
}

// The sums of gradients are all that an order changes: the first step's loss is the same.
TEST_P(Models, OtherLayerOrders_GiveTheReferencesBits) {
  const v1::JobSpec described = JobOf(GetParam(), "1f1b");
  const ModelGraph model = ChainOf(described);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained whole,
                                TrainSerially(described, EvenSplit(model.size(), 1), {}, files_));
  for (const char* method : {"1f1b", "1f1b", "1f1b", "pipedream", "pipedream"}) {
    v1::JobSpec spec = JobOf(GetParam(), method);
    SetOrder(RandomOrder(model, random_), spec);
    SCOPED_TRACE(absl::StrJoin(spec.pipeline().layer_order(), ", "));
    ExpectEqual(spec, RandomSplit(model.size(), 4, random_));
    spec.mutable_pipeline()->set_method("1f1b");
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained ordered,
                                  TrainSerially(spec, EvenSplit(model.size(), 1), {}, files_));
    EXPECT_EQ(ordered.steps.front().loss, whole.steps.front().loss);
  }
}

// Layers are named by their place in the model, whatever the order: a checkpoint has the same bits, and goes on in any.
TEST_P(Models, CheckpointOfOneLayerOrder_ResumesInAnother) {
  v1::JobSpec spec = JobOf(GetParam(), "1f1b");
  spec.mutable_checkpoint()->set_every_steps(2);
  spec.mutable_checkpoint()->set_directory(kCheckpointRoot);
  const ModelGraph model = ChainOf(spec);
  const auto train = [&](const v1::JobSpec& job, const std::string& checkpoint, Trained& trained) {
    TestCluster cluster({.spec = job,
                         .layers = RandomSplit(model.size(), 3, random_),
                         .first_step = checkpoint.empty() ? 0 : 2,
                         .checkpoint = checkpoint},
                        files_);
    EXPECT_THAT(cluster.prepared(), IsOk());
    cluster.Start();
    for (const absl::Status& status : cluster.Join()) EXPECT_THAT(status, IsOk());
    trained = {cluster.Steps(), cluster.Validations(), cluster.WeightsSha256(), {}};
    return checkpoint.empty() ? cluster.CommitCheckpoint(2) : absl::StatusOr<std::string>("");
  };
  SetOrder(RandomOrder(model, random_), spec);
  Trained whole;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::string saved, train(spec, "", whole));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const Manifest manifest, VerifyCheckpoint(files_, saved));
  EXPECT_EQ(manifest.layer_order, LayerOrderOf(ChainOf(spec)));
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ModelGraph stored, BuildModel(spec.model()));
  EXPECT_EQ(std::get<ModelGraph>(*manifest.model).layers, stored.layers);
  for (int layer = 0; layer < model.size(); ++layer) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const LayerState state,
                                  LoadLayer(files_, saved, manifest, layer));
    std::vector<std::string> names;
    for (const NamedArray& array : state.weights) names.push_back(array.name);
    for (const ParameterSpec& parameter : model.layers[layer].parameters) {
      EXPECT_THAT(names, testing::Contains(parameter.name));
    }
  }
  Trained same;
  PENSTOCK_ASSERT_OK_AND_ASSIGN(std::string none, train(spec, saved, same));
  EXPECT_EQ(same.weights_sha256, whole.weights_sha256);
  for (int i = 0; i < 3; ++i) {
    SetOrder(RandomOrder(model, random_), spec);
    SCOPED_TRACE(absl::StrJoin(spec.pipeline().layer_order(), ", "));
    Trained other;
    PENSTOCK_ASSERT_OK_AND_ASSIGN(none, train(spec, saved, other));
    ASSERT_EQ(other.steps.size(), 1u);
    EXPECT_EQ(other.steps.front().loss, whole.steps.back().loss);
  }
}

// Activations and gradients at every cut, in every order, in half the bytes and compressed.
TEST_P(Models, BytesSent_AreThoseThatArePlanned) {
  for (const char* method : {"1f1b", "pipedream"}) {
    for (const auto& [precision, compress] :
         {std::pair("f32", "off"), {"bf16", "off"}, {"f32", "int8"}, {"bf16", "int8"}}) {
      v1::JobSpec spec = JobOf(GetParam(), method);
      spec.mutable_validation()->clear_every_steps();
      spec.mutable_training()->set_precision(precision);
      spec.mutable_pipeline()->set_compress(compress);
      SetOrder(RandomOrder(ChainOf(spec), random_), spec);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
      const std::vector<LayerRange> layers = RandomSplit(job.model.size(), 4, random_);
      const ScheduleOptions options = ScheduleOptionsOf(job, TopologyOf(job, 4), layers);
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Schedule schedule,
                                    ScheduleOfSteps(job, options, 0, job.steps));
      const std::vector<double> planned =
          SentBytesOf(schedule, TrafficOf(job, options.topology, layers));
      PENSTOCK_ASSERT_OK_AND_ASSIGN(const Trained trained,
                                    TrainCluster({.spec = spec, .layers = layers}, files_));
      for (int stage = 0; stage < 4; ++stage) {
        EXPECT_EQ(static_cast<double>(trained.reports[stage].bytes_sent()), planned[stage])
            << method << " in " << precision << ", " << compress << ", stage " << stage;
      }
    }
  }
}

// With running statistics, scratch memory and values that pass through; layers are profiled one by one.
TEST_P(Models, MemoryOfWorkers_IsWhatAProfileTells) {
  for (const char* precision : {"f32", "bf16"}) {
    SCOPED_TRACE(precision);
    v1::JobSpec spec = JobOf(GetParam(), "1f1b");
    spec.mutable_training()->set_precision(precision);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob described, ResolveJob(spec));
    const auto backend = MakeCpuBackend(1);
    TickingClock clock(1'000'000);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const v1::ModelProfile profile,
        ProfileLayers(**backend, described.model,
                      {.samples = {described.microbatch_samples},
                       .precision = described.precision,
                       .optimizer = described.optimizer,
                       .times = false},
                      clock, [](const ProfilerProgress&) { return absl::OkStatus(); }));
    SetOrder(RandomOrder(described.model, random_), spec);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
    const std::vector<LayerRange> layers = RandomSplit(job.model.size(), 3, random_);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(
        const std::vector<WorkerMemory> planned,
        PredictRunMemory(job, ScheduleOptionsOf(job, TopologyOf(job, 3), layers), layers, 0,
                         CutsOf(spec, 0, {}), profile, /*own_memory=*/false));
    TestCluster cluster({.spec = spec, .layers = layers}, files_);
    ASSERT_THAT(cluster.prepared(), IsOk());
    for (int worker = 0; worker < 3; ++worker) {
      const v1::StageReport report = cluster.run(worker).Reports().front();
      EXPECT_EQ(planned[worker].total(), report.predicted_memory_bytes()) << "worker " << worker;
      EXPECT_EQ(planned[worker].scratch, report.memory().scratch()) << "worker " << worker;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Models, ::testing::ValuesIn(TestModels()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace penstock
