// What a planner predicts from a profile of layers against what the workers of a run say themselves.
#include "planner/cost/run_memory.h"

#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "compute/array_bytes.h"
#include "job/defaults.h"
#include "tests/support/status_matchers.h"
#include "tests/support/ticking_clock.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"
#include "worker/layer_profiler.h"

namespace penstock {
namespace {

using ::testing::HasSubstr;

v1::ModelProfile ProfileOf(const ResolvedJob& job, std::vector<int64_t> samples) {
  const auto backend = MakeCpuBackend(1);
  TickingClock clock(1'000'000);
  LayerProfilerOptions options = {.samples = std::move(samples),
                                  .precision = job.precision,
                                  .optimizer = job.optimizer,
                                  .times = false};
  absl::StatusOr<v1::ModelProfile> profile =
      ProfileLayers(**backend, job.model, options, clock,
                    [](const ProfilerProgress&) { return absl::OkStatus(); });
  EXPECT_THAT(profile, IsOk());
  return *std::move(profile);
}

class RunMemory : public ::testing::Test {
 protected:
  RunMemory() { AddTestText(files_); }

  struct OfWorker {
    int64_t total = 0;
    int64_t scratch = 0;
    int64_t rest() const { return total - scratch; }
  };
  // What every worker of a cluster says before it trains.
  std::vector<OfWorker> OfWorkers(const v1::JobSpec& spec, const std::vector<LayerRange>& split) {
    // A coordinator gives edges all the room that workers in recorded order may use.
    const auto widen = [](v1::PrepareRunRequest& request) {
      request.mutable_plan()->set_channel_capacity(kChannelCapacityMax);
    };
    TestCluster cluster({.spec = spec, .layers = split, .edit_request = widen}, files_);
    EXPECT_THAT(cluster.prepared(), IsOk());
    std::vector<OfWorker> workers;
    for (int worker = 0; cluster.prepared().ok() && worker < cluster.size(); ++worker) {
      const v1::StageReport report = cluster.run(worker).Reports().front();
      workers.push_back({report.predicted_memory_bytes(), report.memory().scratch()});
    }
    return workers;
  }

  absl::StatusOr<std::vector<WorkerMemory>> Predict(const v1::JobSpec& spec,
                                                    const std::vector<LayerRange>& split,
                                                    const v1::ModelProfile& profile) {
    PENSTOCK_ASSIGN_OR_RETURN(const ResolvedJob job, ResolveJob(spec));
    const auto stages = static_cast<int64_t>(split.size());
    PENSTOCK_RETURN_IF_ERROR(CheckStages(job, stages));
    const ScheduleOptions schedule = ScheduleOptionsOf(job, TopologyOf(job, stages), split);
    return PredictRunMemory(job, schedule, LayersOfStages(schedule.topology, split), 0,
                            CutsOf(spec, 0, {}), profile, /*own_memory=*/false);
  }

  // Whether the job can have these stages. `scratch`: whether the profile tells it, too.
  bool ExpectEqual(const v1::JobSpec& spec, const std::vector<LayerRange>& split,
                   const v1::ModelProfile& profile, bool scratch = true) {
    const absl::StatusOr<ResolvedJob> job = ResolveJob(spec);
    if (!job.ok() || !CheckStages(*job, static_cast<int64_t>(split.size())).ok()) return false;
    const auto predicted = Predict(spec, split, profile);
    EXPECT_THAT(predicted, IsOk());
    if (!predicted.ok()) return true;
    const std::vector<OfWorker> workers = OfWorkers(spec, split);
    EXPECT_EQ(predicted->size(), workers.size());
    for (size_t worker = 0; worker < std::min(workers.size(), predicted->size()); ++worker) {
      const WorkerMemory& memory = (*predicted)[worker];
      EXPECT_EQ(memory.total() - memory.scratch, workers[worker].rest()) << "worker " << worker;
      if (!scratch) continue;
      EXPECT_EQ(memory.scratch, workers[worker].scratch) << "worker " << worker;
    }
    // An embedding alone has none.
    EXPECT_TRUE(std::any_of(workers.begin(), workers.end(),
                            [](const OfWorker& worker) { return worker.scratch > 0; }));
    return true;
  }

  const v1::ModelProfile& Profile(const v1::JobSpec& spec) {
    const ResolvedJob job = *ResolveJob(spec);
    const std::string key =
        absl::StrCat(job.model.tied(), static_cast<int>(job.precision),
                     job.model.targets_per_sample(), absl::string_view(KindOf(job.optimizer)));
    auto found = profiles_.find(key);
    if (found == profiles_.end()) found = profiles_.emplace(key, ProfileOf(job, {1, 2, 8})).first;
    return found->second;
  }

  MemoryFiles files_;
  std::map<std::string, v1::ModelProfile> profiles_;
};

std::vector<std::vector<LayerRange>> SomeSplits() {
  return {SplitInto({7}), SplitInto({3, 4}), SplitInto({1, 6}), SplitInto({2, 3, 2}),
          SplitInto({1, 1, 4, 1})};
}

TEST_F(RunMemory, EveryMethodAndSplit_FromAProfile_IsWhatTheWorkersSay) {
  for (const Method& method : Methods()) {
    int compared = 0;
    for (const std::vector<LayerRange>& split : SomeSplits()) {
      for (const char* recompute : {"none", "all"}) {
        SCOPED_TRACE(absl::StrCat(method.name, " on ", split.size(), " stages from ",
                                  split.back().first, ", recompute ", recompute));
        v1::JobSpec spec = SmallJob(std::string(method.name));
        spec.mutable_training()->set_steps(5);
        spec.mutable_validation()->set_every_steps(2);
        spec.mutable_pipeline()->set_recompute(recompute);
        if (method.placement == Placement::kRoundTrip) {
          spec.mutable_training()->set_microbatches(12);
          spec.mutable_training()->set_batch(24);
          spec.mutable_pipeline()->clear_recompute();
        }
        if (ExpectEqual(spec, split, Profile(spec))) ++compared;
      }
    }
    EXPECT_GE(compared, 4) << method.name;
  }
}

// Of what is frozen there are no gradients, no states and no versions, and passes keep less for them.
TEST_F(RunMemory, FrozenLayersAndAdapters_FromAProfile_AreWhatTheWorkersSay) {
  for (const char* method : {"1f1b", "pipedream", "pipemare", "nesterov", "roundpipe", "zb-v"}) {
    for (const bool adapts : {false, true}) {
      v1::JobSpec spec = SmallJob(method);
      spec.mutable_training()->set_microbatches(4);
      if (adapts) {
        spec.mutable_model()->mutable_lora()->add_targets("*.c_attn");
      } else {
        for (const char* pattern : {"w*", "h.0.*", "*.bias"}) {
          v1::ParameterGroupSpec& group = *spec.mutable_training()->add_groups();
          group.set_parameters(pattern);
          group.set_frozen(true);
        }
      }
      FillDefaults(spec);
      const v1::ModelProfile profile = ProfileOf(*ResolveJob(spec), {1, 2, 8});
      int compared = 0;
      for (const std::vector<LayerRange>& split : SomeSplits()) {
        SCOPED_TRACE(absl::StrCat(method, " on ", split.size(), ", adapts ", adapts));
        if (ExpectEqual(spec, split, profile)) ++compared;
      }
      EXPECT_GE(compared, 2) << method;
    }
  }
}

TEST_F(RunMemory, WhatAJobMayAskFor_IsPredictedToo) {
  const auto with = [](const std::string& method, auto edit) {
    v1::JobSpec spec = SmallJob(method);
    edit(spec);
    FillDefaults(spec);
    return spec;
  };
  const auto tied = [](v1::JobSpec& spec) {
    spec.mutable_model()->mutable_gpt()->set_tied_head(true);
  };
  const auto bf16 = [](v1::JobSpec& spec) { spec.mutable_training()->set_precision("bf16"); };
  const auto recorded = [](v1::JobSpec& spec) { spec.mutable_pipeline()->set_order("recorded"); };
  const auto on_host = [](v1::JobSpec& spec) { spec.mutable_training()->set_stash("host"); };
  const auto one_recomputes = [](v1::JobSpec& spec) {
    spec.mutable_pipeline()->set_recompute("1");
  };
  const auto sgd = [](v1::JobSpec& spec) {
    spec.mutable_training()->mutable_optimizer()->mutable_sgd()->set_learning_rate(0.01);
  };
  const auto momentum = [](v1::JobSpec& spec) {
    v1::SgdSpec& sgd = *spec.mutable_training()->mutable_optimizer()->mutable_sgd();
    sgd.set_learning_rate(0.01);
    sgd.set_momentum(0.9);
  };
  const auto streamed = [](v1::JobSpec& spec) {
    spec.mutable_pipeline()->set_stream_weights("on");
  };
  const auto streamed_in_bf16 = [&](v1::JobSpec& spec) {
    streamed(spec);
    bf16(spec);
  };
  const auto from_file = [](v1::JobSpec& spec) {
    spec.mutable_pipeline()->set_stream_weights("file");
  };
  const auto from_file_in_bf16 = [&](v1::JobSpec& spec) {
    from_file(spec);
    bf16(spec);
  };
  const auto split_unevenly = [](absl::string_view streams) {
    return [streams = std::string(streams)](v1::JobSpec& spec) {
      spec.mutable_pipeline()->set_stages_per_forward(2);
      spec.mutable_pipeline()->set_stream_weights(streams);
    };
  };
  const auto in_int8 = [](v1::JobSpec& spec) { spec.mutable_pipeline()->set_compress("int8"); };
  const auto of_largest = [](v1::JobSpec& spec) { spec.mutable_pipeline()->set_compress("topk"); };
  const auto bf16_in_int8 = [&](v1::JobSpec& spec) {
    bf16(spec);
    in_int8(spec);
  };
  std::vector<v1::JobSpec> jobs = {with("1f1b", in_int8),
                                   with("pipedream", of_largest),
                                   with("zb-v", of_largest),
                                   with("gpipe", bf16_in_int8),
                                   with("roundpipe", streamed),
                                   with("roundpipe", streamed_in_bf16),
                                   with("roundpipe", from_file),
                                   with("roundpipe", from_file_in_bf16),
                                   with("roundpipe", split_unevenly("off")),
                                   with("roundpipe", split_unevenly("on")),
                                   with("roundpipe", split_unevenly("file")),
                                   with("roundpipe-async", split_unevenly("on")),
                                   with("1f1b", tied),
                                   with("roundpipe", tied),
                                   with("1f1b", bf16),
                                   with("pipedream", bf16),
                                   with("spectrain", bf16),
                                   with("pipedream", recorded),
                                   with("gpipe", recorded),
                                   with("pipedream", on_host),
                                   with("paci", one_recomputes),
                                   with("1f1b", sgd),
                                   with("pipedream", momentum)};
  for (const StalenessCase& rule : StalenessCases()) jobs.push_back(with(rule.method, rule.apply));
  for (const v1::JobSpec& spec : jobs) {
    for (const auto& split : {SplitInto({3, 4}), SplitInto({1, 6}), SplitInto({2, 1, 1, 3})}) {
      SCOPED_TRACE(absl::StrCat(spec.pipeline().ShortDebugString(), " on ", split.size(), "; ",
                                spec.training().ShortDebugString()));
      EXPECT_TRUE(ExpectEqual(spec, split, Profile(spec)));
    }
  }
}

TEST_F(RunMemory, Replicas_ArePredictedWithWhatTheirReductionsTake) {
  for (const std::string method :
       {"1f1b", "pipedream", "pipedream-2bw", "pipemare", "looped-bfs", "dualpipe-v"}) {
    const bool several = StagesPerWorkerMin((*FindMethod(method))->placement) > 1;
    for (const std::vector<int32_t>& replicas :
         std::vector<std::vector<int32_t>>{{2, 1}, {1, 3}, {2, 2}, {3, 1}}) {
      if (several && replicas[0] != replicas[1]) continue;
      v1::JobSpec spec = SmallJob(method);
      spec.mutable_pipeline()->mutable_replicas()->Assign(replicas.begin(), replicas.end());
      spec.mutable_training()->set_microbatches(12);
      spec.mutable_training()->set_batch(24);
      SCOPED_TRACE(absl::StrCat(method, " ", replicas[0], "-", replicas[1]));
      EXPECT_TRUE(ExpectEqual(spec, SplitInto({5, 2}), Profile(spec)));
      if (method == "1f1b") {
        spec.mutable_model()->mutable_gpt()->set_tied_head(true);
        EXPECT_TRUE(ExpectEqual(spec, SplitInto({2, 5}), Profile(spec)));
      }
    }
  }
}

// Profiled are microbatches of 1, 2 and 8 samples.
TEST_F(RunMemory, MicrobatchesBetweenProfiledOnes_AreOnTheLine) {
  for (const int samples : {3, 4, 5, 7}) {
    v1::JobSpec spec = SmallJob("pipedream");
    spec.mutable_training()->set_batch(4 * samples);
    spec.mutable_model()->mutable_gpt()->set_context(16);
    SCOPED_TRACE(samples);
    EXPECT_TRUE(ExpectEqual(spec, SplitInto({3, 4}), Profile(spec), /*scratch=*/false));
    // Passes work in blocks of rows, so their scratch memory grows in steps: it is between those of the sizes around.
    const std::vector<OfWorker> workers = OfWorkers(spec, SplitInto({3, 4}));
    spec.mutable_training()->set_batch(4 * 2);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<WorkerMemory> smaller,
                                  Predict(spec, SplitInto({3, 4}), Profile(spec)));
    spec.mutable_training()->set_batch(4 * 8);
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<WorkerMemory> larger,
                                  Predict(spec, SplitInto({3, 4}), Profile(spec)));
    for (int worker = 0; worker < 2; ++worker) {
      EXPECT_GE(workers[worker].scratch, smaller[worker].scratch);
      EXPECT_LE(workers[worker].scratch, larger[worker].scratch);
    }
  }
  v1::JobSpec spec = SmallJob("pipedream");
  spec.mutable_training()->set_batch(36);
  EXPECT_THAT(Predict(spec, SplitInto({3, 4}), Profile(spec)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nothing is known of 9")));
}

// Eight time steps make half a block of 64 bytes.
TEST_F(RunMemory, FewTimeStepsBetweenProfiledSizes_AreMissedByRoundingAlone) {
  v1::JobSpec spec = SmallJob("pipedream");
  spec.mutable_training()->set_batch(4 * 3);
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<WorkerMemory> memory,
                                Predict(spec, SplitInto({3, 4}), Profile(spec)));
  const std::vector<OfWorker> of_workers = OfWorkers(spec, SplitInto({3, 4}));
  ASSERT_EQ(of_workers.size(), 2u);
  for (int worker = 0; worker < 2; ++worker) {
    EXPECT_NEAR(static_cast<double>(memory[worker].total() - memory[worker].scratch),
                of_workers[worker].rest(), 512);
  }
}

TEST_F(RunMemory, Parts_AreThoseOfTheStage) {
  const v1::JobSpec spec = SmallJob("pipedream");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<WorkerMemory> memory,
                                Predict(spec, SplitInto({2, 3, 2}), Profile(spec)));
  ASSERT_EQ(memory.size(), 3u);
  for (int worker = 0; worker < 3; ++worker) {
    const WorkerMemory& of = memory[worker];
    EXPECT_EQ(of.gradients, of.weights);
    EXPECT_EQ(of.optimizer, 2 * of.weights) << "AdamW's two";
    EXPECT_EQ(of.stashed_weights, (2 - worker) * of.weights);
    EXPECT_EQ(of.predicted_weights, 0);
    EXPECT_GT(of.activations, 0);
    EXPECT_EQ(of.total(), of.held() + of.stashed_weights + of.activations);
  }
}

TEST_F(RunMemory, StashOnTheHost_LeavesThreeVersionsOnADeviceWithItsOwnMemory) {
  v1::JobSpec spec = SmallJob("pipedream");
  spec.mutable_training()->set_stash("host");
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const ResolvedJob job, ResolveJob(spec));
  const ScheduleOptions schedule = ScheduleOptionsOf(job, TopologyOf(job, kLayers));
  for (const bool own_memory : {false, true}) {
    PENSTOCK_ASSERT_OK_AND_ASSIGN(const std::vector<WorkerMemory> memory,
                                  PredictRunMemory(job, schedule, EvenSplit(kLayers, kLayers), 0,
                                                   CutsOf(spec, 0, {}), Profile(spec), own_memory));
    EXPECT_EQ(memory[0].stashed_weights, (own_memory ? 2 : 6) * memory[0].weights);
  }
}

TEST_F(RunMemory, ProfileOfSomethingElse_IsRefused) {
  v1::JobSpec spec = SmallJob("1f1b");
  const v1::ModelProfile profile = Profile(spec);
  spec.mutable_training()->set_precision("bf16");
  EXPECT_THAT(Predict(spec, SplitInto({3, 4}), profile),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("the profile is in f32, the job in bf16")));
  spec = SmallJob("1f1b");
  spec.mutable_model()->mutable_gpt()->set_width(32);
  EXPECT_THAT(Predict(spec, SplitInto({3, 4}), profile),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("of another model")));
}

}  // namespace
}  // namespace penstock
