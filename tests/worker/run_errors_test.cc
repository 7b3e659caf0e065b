// What can go wrong with a run: each gives one clear error, and nothing hangs.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/test_cluster.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class RunErrors : public ::testing::Test {
 protected:
  RunErrors() { AddTestText(files_); }

  absl::Status PrepareEdited(std::function<void(v1::PrepareRunRequest&)> edit,
                             v1::JobSpec spec = SmallJob("1f1b")) {
    TestCluster cluster(
        {.spec = std::move(spec), .layers = EvenSplit(kLayers, 2), .edit_request = std::move(edit)},
        files_);
    return cluster.prepared();
  }

  MemoryFiles files_;
};

TEST_F(RunErrors, Prepare_OtherScheduleDigest_NamesBoth) {
  EXPECT_THAT(PrepareEdited([](v1::PrepareRunRequest& request) {
                request.mutable_plan()->set_schedule_digest("0123abcd");
              }),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("0123abcd"), HasSubstr("same build"))));
}

TEST_F(RunErrors, Prepare_OtherCuts_IsFoundByTheDigest) {
  EXPECT_THAT(PrepareEdited([](v1::PrepareRunRequest& request) { request.add_extra_cuts(1); }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("derives the schedule")));
}

TEST_F(RunErrors, Prepare_PlanThatMakesNoSense_SaysWhat) {
  const auto edited = [&](const std::function<void(v1::Plan&)>& edit) {
    return PrepareEdited([edit](v1::PrepareRunRequest& request) { edit(*request.mutable_plan()); });
  };
  const auto invalid = [](const char* what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
  };
  EXPECT_THAT(edited([](v1::Plan& plan) { plan.clear_stages(); }), invalid("no stages"));
  EXPECT_THAT(edited([](v1::Plan& plan) { plan.mutable_stages(1)->set_first_layer(4); }),
              invalid("the next of the model's 7 layers is 3"));
  EXPECT_THAT(edited([](v1::Plan& plan) { plan.mutable_stages(1)->set_layers(3); }),
              invalid("have 6 layers"));
  EXPECT_THAT(edited([](v1::Plan& plan) { plan.mutable_stages(1)->set_layers(2'000'000'000); }),
              invalid("2000000000 layers"));
  EXPECT_THAT(edited([](v1::Plan& plan) { plan.mutable_stages(0)->set_layers(0); }),
              invalid("0 layers"));
  EXPECT_THAT(edited([](v1::Plan& plan) { plan.mutable_stages(0)->set_worker_index(-1); }),
              invalid("worker -1"));
  EXPECT_THAT(edited([](v1::Plan& plan) { plan.mutable_stages(0)->set_stage(5); }),
              invalid("is stage 5"));
  for (const int64_t capacity :
       {int64_t{-2}, int64_t{1025}, int64_t{2'147'483'647}, (int64_t{1} << 32) + 4}) {
    EXPECT_THAT(edited([=](v1::Plan& plan) { plan.set_channel_capacity(capacity); }),
                invalid("channel_capacity"));
  }
  EXPECT_THAT(PrepareEdited([](v1::PrepareRunRequest& request) { request.set_worker_index(9); }),
              invalid("worker 9 has no stage"));
  EXPECT_THAT(PrepareEdited([](v1::PrepareRunRequest& request) { request.set_first_step(4); }),
              invalid("after step 4 of 3"));
  EXPECT_THAT(PrepareEdited([](v1::PrepareRunRequest& request) { request.set_first_step(2); }),
              invalid("without a checkpoint or a snapshot"));
}

TEST_F(RunErrors, Prepare_OtherLayersThanTheJobLists_SaysWhichStage) {
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_pipeline()->set_stages(2);
  for (const int32_t layers : {2, 5}) spec.mutable_pipeline()->add_stage_layers(layers);
  EXPECT_THAT(PrepareEdited([](v1::PrepareRunRequest&) {}, spec),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("stage 0 has 3 layers, the job's stage_layers 2")));
}

TEST_F(RunErrors, Prepare_PlanWithWrongReplicas_SaysWhat) {
  v1::JobSpec spec = SmallJob("local-sgd");
  spec.mutable_pipeline()->add_replicas(2);
  const auto edited = [&](const std::function<void(v1::Plan&)>& edit) {
    return PrepareEdited([edit](v1::PrepareRunRequest& request) { edit(*request.mutable_plan()); },
                         spec);
  };
  const auto invalid = [](const char* what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
  };
  EXPECT_THAT(edited([](v1::Plan&) {}), IsOk());
  EXPECT_THAT(edited([](v1::Plan& plan) { plan.clear_pipelines(); }), invalid("plan: "));
  EXPECT_THAT(edited([](v1::Plan& plan) { plan.set_pipelines(3); }),
              invalid("cannot make 3 pipelines"));
  EXPECT_THAT(edited([](v1::Plan& plan) { plan.set_pipelines(4); }),
              invalid("has 4 pipelines of 1 stages, the job has 2"));
  EXPECT_THAT(edited([](v1::Plan& plan) {
                plan.mutable_stages(2)->set_layers(2);
                plan.mutable_stages(3)->set_first_layer(2);
                plan.mutable_stages(3)->set_layers(5);
              }),
              invalid("stage 2 has 2 layers from 0, but it is a replica of stage 0"));
  EXPECT_THAT(edited([](v1::Plan& plan) {
                plan.mutable_stages()->DeleteSubrange(2, 2);
                plan.clear_pipelines();
              }),
              invalid("has 1 pipelines of 2 stages, the job has 2"));
}

TEST_F(RunErrors, Prepare_BadJob_NamesTheKey) {
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_training()->set_microbatches(3);
  EXPECT_THAT(PrepareEdited(nullptr, spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("training.microbatches")));
}

TEST_F(RunErrors, Prepare_TextMissingOrChanged_NamesIt) {
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_data()->mutable_text()->set_sha256(std::string(64, 'a'));
  EXPECT_THAT(PrepareEdited(nullptr, spec),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr(kTextPath)));
  spec.mutable_data()->mutable_text()->set_path("elsewhere.txt");
  EXPECT_THAT(PrepareEdited(nullptr, spec),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/elsewhere.txt")));
}

TEST_F(RunErrors, LossNotFinite_StopsWithStepAndStage) {
  for (const std::string method : {"1f1b", "pipedream"}) {
    v1::JobSpec spec = SmallJob(method);
    spec.mutable_training()->set_steps(20);
    spec.mutable_training()->mutable_learning_rate()->set_warmup_steps(0);
    spec.mutable_training()->mutable_optimizer()->mutable_sgd()->set_learning_rate(1e30);
    TestCluster cluster({.spec = spec, .layers = EvenSplit(kLayers, 3)}, files_);
    ASSERT_THAT(cluster.prepared(), IsOk());
    cluster.Start();
    const std::vector<absl::Status> results = cluster.Join();
    EXPECT_THAT(results[2], StatusIs(absl::StatusCode::kFailedPrecondition,
                                     AllOf(HasSubstr("stage 2: the loss is"),
                                           AnyOf(HasSubstr("step 1"), HasSubstr("step 2")))));
    for (int w = 0; w < 2; ++w) {
      // The others end because of it, and pass the reason on.
      EXPECT_THAT(results[w], StatusIs(absl::StatusCode::kAborted, HasSubstr("the loss is")));
    }
    const v1::RunFailed& failed = cluster.events(2).back().run_failed();
    EXPECT_EQ(failed.code(), static_cast<int>(absl::StatusCode::kFailedPrecondition));
    EXPECT_TRUE(failed.peer().empty());
  }
}

TEST_F(RunErrors, GradientNotFinite_EveryWorkerNamesTheSameLayer) {
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_training()->set_steps(20);
  spec.mutable_training()->mutable_learning_rate()->set_warmup_steps(0);
  // Weights so large that the loss is still finite but the gradient of the first layers is not.
  spec.mutable_training()->mutable_optimizer()->mutable_sgd()->set_learning_rate(3e12);
  spec.mutable_training()->mutable_clip()->set_global_norm(1e30);
  TestCluster cluster({.spec = spec, .layers = EvenSplit(kLayers, 3)}, files_);
  ASSERT_THAT(cluster.prepared(), IsOk());
  cluster.Start();
  const std::vector<absl::Status> results = cluster.Join();
  // Those who found it themselves and those who were told say the same: from the step on, word for word.
  std::set<std::string> reasons;
  for (const absl::Status& status : results) {
    EXPECT_FALSE(status.ok());
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr(": the gradient of layer "));
    reasons.insert(message.substr(std::min(message.size(), message.find("step "))));
  }
  EXPECT_EQ(reasons.size(), 1u) << absl::StrJoin(reasons, "\n");
}

// A worker's process dies in mid-run, at several moments and places.
TEST_F(RunErrors, PeerDies_OthersEndWithItsName) {
  for (const std::string method : {"1f1b", "gpipe", "pipedream"}) {
    for (int victim = 0; victim < 3; ++victim) {
      SCOPED_TRACE(absl::StrCat(method, ", worker ", victim));
      v1::JobSpec spec = SmallJob(method);
      spec.mutable_training()->set_steps(1000);
      TestCluster* cluster = nullptr;
      ClusterOptions options = {.spec = spec, .layers = EvenSplit(kLayers, 3)};
      options.on_event = [&](int, const v1::RunEvent& event) {
        if (event.has_step_done() && event.step_done().step() == 2 + victim) {
          cluster->network().Disconnect(victim);
        }
      };
      TestCluster made(options, files_);
      cluster = &made;
      ASSERT_THAT(made.prepared(), IsOk());
      made.Start();
      const std::vector<absl::Status> results = made.Join();
      const std::string name = absl::StrCat("worker-", victim);
      bool someone_names_it = false;
      for (int w = 0; w < 3; ++w) {
        EXPECT_FALSE(results[w].ok());
        if (w == victim) continue;
        EXPECT_THAT(std::string(results[w].message()), HasSubstr(name));
        const v1::RunFailed& failed = made.events(w).back().run_failed();
        someone_names_it |= failed.peer() == name &&
                            failed.code() == static_cast<int>(absl::StatusCode::kUnavailable);
      }
      EXPECT_TRUE(someone_names_it);
    }
  }
}

TEST_F(RunErrors, PeerStandsStill_EndsAtTheReceiveTimeout) {
  ClusterOptions options = {.spec = SmallJob("1f1b"), .layers = EvenSplit(kLayers, 2)};
  options.limits.work_timeout = absl::Milliseconds(50);
  options.limits.checkpoint_timeout = absl::Milliseconds(50);
  options.limits.hold_timeout = absl::Milliseconds(50);
  Mutex mutex;
  CondVar changed;
  bool released = false;
  options.on_event = [&](int worker, const v1::RunEvent& event) {
    MutexLock lock(mutex);
    if (event.has_run_failed()) {
      released = true;
      changed.NotifyAll();
    }
    if (worker != 1 || !event.has_step_done()) return;
    while (!released) changed.Wait(mutex);  // worker 1 is stuck until worker 0 gave up
  };
  TestCluster cluster(options, files_);
  ASSERT_THAT(cluster.prepared(), IsOk());
  cluster.Start();
  const std::vector<absl::Status> results = cluster.Join();
  EXPECT_THAT(results[0], StatusIs(absl::StatusCode::kDeadlineExceeded,
                                   AnyOf(HasSubstr("RECV_B"), HasSubstr("SEND_F"))));
  EXPECT_FALSE(results[1].ok());
}

TEST_F(RunErrors, Stop_InMidRun_AbortsAllWithTheReason) {
  v1::JobSpec spec = SmallJob("pipedream");
  spec.mutable_training()->set_steps(100'000);
  TestCluster* cluster = nullptr;
  std::atomic<bool> stopped = false;
  ClusterOptions options = {.spec = spec, .layers = EvenSplit(kLayers, 3)};
  options.on_event = [&](int, const v1::RunEvent& event) {
    if (!event.has_step_done() || stopped.exchange(true)) return;
    for (int w = 0; w < 3; ++w) cluster->run(w).Stop("the user cancelled \xFF");
  };
  TestCluster made(options, files_);
  cluster = &made;
  ASSERT_THAT(made.prepared(), IsOk());
  made.Start();
  for (const absl::Status& status : made.Join()) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kAborted, HasSubstr("the user cancelled")));
  }
  // The first that was stopped blames nobody.
  EXPECT_TRUE(made.events(0).back().run_failed().peer().empty());
  EXPECT_THAT(made.events(0).back().run_failed().message(), HasSubstr("cancelled \uFFFD"));
}

// Nobody sends a single worker anything that could end its wait.
TEST_F(RunErrors, Stop_DuringValidationOnOneWorker_EndsItAtOnce) {
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_validation()->set_every_steps(1);
  spec.mutable_validation()->set_batches(50);
  TestCluster* cluster = nullptr;
  ClusterOptions options = {.spec = spec, .layers = EvenSplit(kLayers, 1)};
  options.on_event = [&](int, const v1::RunEvent& event) {
    if (event.has_cut_reached()) cluster->run(0).Stop("the user cancelled");
  };
  TestCluster made(options, files_);
  cluster = &made;
  ASSERT_THAT(made.prepared(), IsOk());
  made.Start();
  EXPECT_THAT(made.Join()[0],
              StatusIs(absl::StatusCode::kAborted, HasSubstr("the user cancelled")));
  EXPECT_TRUE(made.Validations().empty());
}

TEST_F(RunErrors, Prepare_StoppedMeanwhile_EndsWithTheReason) {
  MemoryNetwork network({"worker-0"}, {0});
  PENSTOCK_ASSERT_OK_AND_ASSIGN(const auto backend, MakeCpuBackend(1));
  const v1::PrepareRunRequest request = MakeRequest(SmallJob("1f1b"), EvenSplit(kLayers, 1), 0);
  for (int asked_before = 0; asked_before < 3; ++asked_before) {
    const std::unique_ptr<Transport> transport = network.MakeTransport(0);
    int left = asked_before;
    const auto run = Run::Prepare(
        request,
        {.clock = RealClock(),
         .files = files_,
         .backend = *backend,
         .transport = *transport,
         .data_root = "/",
         .events = [](const v1::RunEvent&) {},
         .may_go_on =
             [&] { return left-- > 0 ? absl::OkStatus() : absl::AbortedError("not wanted"); }});
    EXPECT_THAT(run, StatusIs(absl::StatusCode::kAborted, "not wanted")) << asked_before;
  }
}

TEST_F(RunErrors, Prepare_ActivationOverTheLimit_SaysWhatToChange) {
  ClusterOptions options = {.spec = SmallJob("1f1b"), .layers = EvenSplit(kLayers, 2)};
  options.limits.tensor_bytes_max = 1000;
  TestCluster cluster(options, files_);
  EXPECT_THAT(cluster.prepared(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("1024 bytes"), HasSubstr("training.microbatches"))));
}

TEST_F(RunErrors, Reports_WhileTraining_AreConsistent) {
  v1::JobSpec spec = SmallJob("1f1b");
  spec.mutable_training()->set_steps(200);
  TestCluster cluster({.spec = spec, .layers = EvenSplit(kLayers, 3)}, files_);
  ASSERT_THAT(cluster.prepared(), IsOk());
  EXPECT_GT(cluster.run(0).memory_bytes(), 0);
  cluster.Start();
  int64_t actions = 0;
  while (actions < 1000) {
    for (int w = 0; w < 3; ++w) {
      for (const v1::StageReport& report : cluster.run(w).Reports()) {
        EXPECT_EQ(report.stage(), w);
        EXPECT_GE(report.idle_seconds(), 0.0);
        EXPECT_LE(report.busy_seconds(), report.window_seconds() + 1e-3);
      }
      EXPECT_LE(cluster.run(w).RecentTimeline().spans.size(), 1u << 12);
    }
    actions = cluster.run(2).actions_done();
  }
  for (const absl::Status& status : cluster.Join()) EXPECT_THAT(status, IsOk());
  for (const v1::StageReport& report : cluster.Reports()) {
    double causes = 0.0;
    for (const v1::IdleCause& cause : report.idle_causes()) causes += cause.seconds();
    EXPECT_LE(causes, report.idle_seconds() + 1e-3);
    EXPECT_EQ(report.updates(), 200);
    // 4 microbatches a step, each a tensor of [2, 8, 16] floats on every edge out of the stage.
    const int64_t edges = report.stage() == 1 ? 2 : 1;
    EXPECT_EQ(report.messages_sent(), 200 * 4 * edges);
    EXPECT_EQ(report.bytes_sent(), 200 * 4 * edges * 2 * 8 * 16 * 4);
    // Bounded by the windows of the edges, which may fill late; never in proportion to the steps.
    EXPECT_LE(report.allocations_steady(), 8);
  }
}

}  // namespace
}  // namespace penstock
