// A microbatch in the steady state allocates nothing: executor, stage, kernels, data, transport and machine together.
// The transport is the one in memory: over gRPC every chunk costs what gRPC itself allocates for a slice
// and a frame, and nothing of ours (services/transport/gather.h).
#include <gtest/gtest.h>

#include <vector>

#include "data/record_writer.h"
#include "job/defaults.h"
#include "tests/data/pair_directory.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/counting_allocator.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"
#include "tests/worker/test_models.h"

namespace penstock {
namespace {

constexpr int64_t kWarmUpSteps = 6;
constexpr int64_t kCountedSteps = 8;
constexpr double kPerMicrobatchBelow = 0.05;

// How a model is trained.
struct Way {
  const char* method;
  const char* recompute = "none";
  const char* order = "static";
  const char* precision = "f32";
  const char* compress = "off";
};

class Allocations : public ::testing::Test {
 protected:
  Allocations() { AddTestText(files_); }

  // `many`: microbatches of a step that is compared with one of 4.
  void ExpectNonePerMicrobatch(const Way& way, v1::JobSpec spec, int64_t many) {
    SCOPED_TRACE(way.method + std::string(", recompute ") + way.recompute + ", " + way.order +
                 ", " + way.precision + ", " + way.compress);
    spec.mutable_pipeline()->set_recompute(way.recompute);
    spec.mutable_pipeline()->set_order(way.order);
    spec.mutable_training()->set_precision(way.precision);
    spec.mutable_pipeline()->set_compress(way.compress);
    // A step allocates for the event that reports it; that must not grow with its microbatches.
    constexpr int64_t kFew = 4;
    const int64_t of_few = Count(spec, kFew);
    EXPECT_GT(of_few, 0) << "the counter does not count";
    // How many buffers wait at once depends on timing, so a few may still be taken from the system late, and more on a busy
    // machine. What each microbatch allocates is there each time.
    int64_t of_many = 0;
    double per_microbatch = 1;
    for (int attempt = 0; attempt < 3 && per_microbatch >= kPerMicrobatchBelow; ++attempt) {
      of_many = Count(spec, many);
      per_microbatch = static_cast<double>(of_many - of_few) /
                       static_cast<double>(kCountedSteps * (many - kFew));
    }
    EXPECT_LT(per_microbatch, kPerMicrobatchBelow)
        << of_few << " and " << of_many << " allocations";
  }

  MemoryFiles files_;

 private:
  // Allocations of all workers during kCountedSteps of `microbatches` microbatches of 2 samples each.
  int64_t Count(v1::JobSpec spec, int64_t microbatches) {
    spec.mutable_training()->set_steps(kWarmUpSteps + kCountedSteps + 2);
    spec.mutable_training()->set_batch(2 * microbatches);
    spec.mutable_training()->set_microbatches(microbatches);
    ClusterOptions options = {.spec = spec, .layers = EvenSplit(ChainOf(spec).size(), 3)};
    options.on_event = [](int, const v1::RunEvent& event) {
      if (!event.has_step_done()) return;
      if (event.step_done().step() == kWarmUpSteps) StartCountingAllocations();
      if (event.step_done().step() == kWarmUpSteps + kCountedSteps) StopCountingAllocations();
    };
    EXPECT_THAT(TrainCluster(options, files_), IsOk());
    return CountedAllocations();
  }
};

TEST_F(Allocations, PerMicrobatchOfAGpt_AreNone) {
  if (!CountsAllocations()) GTEST_SKIP() << "a sanitizer owns malloc";
  for (const Way& way : {Way{"1f1b"},
                         {"gpipe"},
                         {"pipedream"},
                         {"spectrain"},
                         {"pipemare"},
                         {"1f1b", "all"},
                         {"pipedream", "0,1"},
                         {"1f1b", "none", "recorded"},
                         {"1f1b", "all", "recorded"},
                         {"pipedream", "none", "recorded"},
                         {"1f1b", "none", "static", "f32", "int8"},
                         {"pipedream", "none", "static", "bf16", "topk"}}) {
    v1::JobSpec spec = SmallJob(way.method);
    if (spec.pipeline().method() == "1f1b") {
      spec.mutable_training()->mutable_clip()->set_global_norm(0.5);
      spec.mutable_model()->mutable_gpt()->set_tied_head(true);
    }
    if (spec.pipeline().method() == "spectrain") {
      spec.mutable_training()->mutable_optimizer()->mutable_muon()->set_learning_rate(0.001);
      FillDefaults(spec);
    }
    ExpectNonePerMicrobatch(way, spec, 64);
  }
}

// Families that are not among TestModels(), and each kind of data.
constexpr TestModel kMoreModels[] = {
    {"gpt",
     "\n  gpt: {layers: 2, width: 16, heads: 2, context: 8, dropout: 0.1, tied_head: false}\n",
     "text: {path: /data/text.txt}"},
    {"alexnet", "\n  alexnet: {hidden: 16, image: {size: 63, classes: 4}}\n"},
    {"alexnet_2012",
     "\n  alexnet: {variant: \"2012\", hidden: 16, image: {size: 63, classes: 4}}\n"},
    {"resnet", "\n  resnet: {depth: 18, image: {size: 32, classes: 4}}\n"},
    {"cifar_resnet_on_records",
     "\n  cifar_resnet: {depth: 8, width: 4, image: {size: 8, classes: 10}}\n",
     "records: {path: /data/images, augment: {flip: true, crop: 2}}"},
    {"lstm_lm_on_text", "\n  lstm_lm: {hidden: 6, context: 8, tied: false}\n",
     "text: {path: /data/text.txt}"},
    {"awd_lm_on_text",
     "\n  awd_lm: {hidden: 9, embedding: 6, context: 8, tied: false, carried: true}\n",
     "text: {path: /data/text.txt, order: contiguous}"},
    {"gnmt_on_pairs",
     "\n  gnmt: {layers: 4, hidden: 5, vocabulary: 20, source_time: 7, target_time: 6}\n",
     "pairs: {path: /data/pairs, validation: /data/pairs, buckets: 3}"},
};

std::vector<TestModel> AllModels() {
  std::vector<TestModel> models(TestModels().begin(), TestModels().end());
  models.insert(models.end(), std::begin(kMoreModels), std::end(kMoreModels));
  return models;
}

class AllocationsOfModels : public Allocations, public ::testing::WithParamInterface<TestModel> {
 protected:
  void SetUp() override {
    if (!CountsAllocations()) GTEST_SKIP() << "a sanitizer owns malloc";
    WriteImages();
    std::vector<PiecePair> pairs;
    for (int32_t i = 0; i < 300; ++i) {
      pairs.push_back({std::vector<int32_t>(1 + i % 6, 4 + i % 16),
                       std::vector<int32_t>(1 + i % 5, 4 + i % 15)});
    }
    WritePairDirectory(files_, "/data/pairs", pairs, /*pieces=*/20);
  }

 private:
  void WriteImages() {
    auto writer = RecordWriter::Create(files_, "/data/images",
                                       {{"image", "U8", {8, 8, 3}}, {"label", "I32", {}}}, 1 << 14);
    ASSERT_THAT(writer, IsOk());
    for (int32_t i = 0; i < 100; ++i) {
      const std::vector<std::byte> image(8 * 8 * 3, static_cast<std::byte>(i));
      const int32_t label = i % 10;
      ASSERT_THAT((*writer)->Add(
                      {image, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&label), 4)}),
                  IsOk());
    }
    ASSERT_THAT((*writer)->Finish(), IsOk());
  }
};

// Each method, precision and kind of recomputation once: what allocates in one of them does so whatever the others are.
TEST_P(AllocationsOfModels, PerMicrobatch_AreNone) {
  for (const Way& way : {Way{.method = "1f1b", .recompute = "all", .precision = "bf16"},
                         Way{.method = "pipedream"}}) {
    v1::JobSpec spec = JobOf(GetParam(), way.method);
    spec.clear_validation();
    FillDefaults(spec);
    ExpectNonePerMicrobatch(way, spec, 20);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AllocationsOfModels, ::testing::ValuesIn(AllModels()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace penstock
