// Runs that measure: workers as threads, over a memory transport.
#include "worker/profile_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "job/profile/cluster_profile.h"
#include "job/profile/device_times.h"
#include "job/profile/model_profile.h"
#include "tests/support/memory_files.h"
#include "tests/support/status_matchers.h"
#include "tests/worker/memory_transport.h"
#include "tests/worker/test_job.h"

namespace penstock {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

v1::PrepareProfileRequest RequestOf(int worker, int workers, bool times_layers) {
  v1::PrepareProfileRequest request;
  request.set_job_id("profile-1");
  request.set_epoch(1);
  *request.mutable_spec() = SmallJob("1f1b");
  request.set_worker_index(worker);
  for (int i = 0; i < workers; ++i) {
    v1::StageAssignment& stage = *request.mutable_plan()->add_stages();
    stage.set_stage(i);
    stage.set_worker_index(i);
    stage.set_worker("w" + std::to_string(i));
  }
  request.set_times_layers(times_layers);
  request.mutable_profile()->add_samples(1);
  request.mutable_profile()->add_samples(2);
  return request;
}

// The first worker times layers, all measure links.
class ProfileRuns {
 public:
  explicit ProfileRuns(int workers) : network_(Names(workers), Indices(workers)) {
    workers_.resize(workers);
    for (int i = 0; i < workers; ++i) workers_[i].transport = network_.MakeTransport(i);
  }

  RunEnvironment EnvironmentOf(int worker) {
    Worker& own = workers_[worker];
    return {.clock = RealClock(),
            .files = files_,
            .backend = *own.backend,
            .transport = *own.transport,
            .data_root = "/",
            .limits = {},
            .events =
                [this, worker](v1::RunEvent event) {
                  if (on_event) on_event(worker, event);
                  workers_[worker].events.push_back(std::move(event));
                },
            .emulated_device = emulated_device,
            .offload_directory = offload_directory};
  }

  absl::Status Prepare() {
    const int count = static_cast<int>(workers_.size());
    for (int i = 0; i < count; ++i) {
      absl::StatusOr<std::unique_ptr<Run>> run =
          Run::Prepare(RequestOf(i, count, i == 0), EnvironmentOf(i));
      if (!run.ok()) return run.status();
      workers_[i].run = *std::move(run);
    }
    return absl::OkStatus();
  }

  // Returns what each ended with. Those that are `dead` do nothing.
  std::vector<absl::Status> Execute(int dead = -1) {
    std::vector<absl::Status> ends(workers_.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < workers_.size(); ++i) {
      threads.emplace_back([this, i, dead, &ends] {
        if (static_cast<int>(i) == dead) return network_.Disconnect(dead);
        ends[i] = workers_[i].run->Execute();
      });
    }
    for (std::thread& thread : threads) thread.join();
    return ends;
  }

  Run& run(int worker) { return *workers_[worker].run; }
  const std::vector<v1::RunEvent>& events(int worker) const { return workers_[worker].events; }
  const v1::RunEvent* Find(int worker, v1::RunEvent::KindCase kind) const {
    for (const v1::RunEvent& event : events(worker)) {
      if (event.kind_case() == kind) return &event;
    }
    return nullptr;
  }

  std::function<void(int worker, const v1::RunEvent&)> on_event;
  std::optional<EmulatedDevice> emulated_device;
  std::string offload_directory = "/tmp";

 private:
  struct Worker {
    std::unique_ptr<Backend> backend = *MakeCpuBackend(1);
    std::unique_ptr<Transport> transport;
    std::unique_ptr<Run> run;
    std::vector<v1::RunEvent> events;
  };
  static std::vector<std::string> Names(int workers) {
    std::vector<std::string> names;
    for (int i = 0; i < workers; ++i) names.push_back("w" + std::to_string(i));
    return names;
  }
  static std::vector<int> Indices(int workers) {
    std::vector<int> indices;
    for (int i = 0; i < workers; ++i) indices.push_back(i);
    return indices;
  }

  MemoryFiles files_;
  MemoryNetwork network_;
  std::vector<Worker> workers_;
};

TEST(ProfileRun, ThreeWorkers_ReportTheirLinksAndOneTheLayers) {
  ProfileRuns runs(3);
  ASSERT_THAT(runs.Prepare(), IsOk());
  for (const absl::Status& end : runs.Execute()) EXPECT_THAT(end, IsOk());
  for (int worker = 0; worker < 3; ++worker) {
    const v1::RunEvent* links = runs.Find(worker, v1::RunEvent::kLinksMeasured);
    ASSERT_NE(links, nullptr);
    ASSERT_EQ(links->links_measured().links_size(), 2);
    for (const v1::MeasuredLink& link : links->links_measured().links()) {
      EXPECT_NE(link.to_worker_index(), worker);
      EXPECT_THAT(CheckLinkNumbers("link", link.latency_us(), link.bytes_per_second()), IsOk());
    }
    EXPECT_EQ(runs.Find(worker, v1::RunEvent::kLayersTimed) != nullptr, worker == 0);
    EXPECT_TRUE(runs.events(worker).back().has_run_done());
  }
  const v1::ModelProfile& model = runs.Find(0, v1::RunEvent::kLayersTimed)->layers_timed().model();
  EXPECT_THAT(CheckModelProfile(model), IsOk());
  EXPECT_THAT(CheckProfileFits(model, ChainOf(SmallJob("1f1b"))), IsOk());
  EXPECT_EQ(model.shapes(0).sizes_size(), 2);
}

TEST(ProfileRun, WorkersThatCanOffload_SayHowFast) {
  ProfileRuns runs(2);
  ASSERT_THAT(runs.Prepare(), IsOk());
  for (const absl::Status& end : runs.Execute()) ASSERT_THAT(end, IsOk());
  for (int worker = 0; worker < 2; ++worker) {
    const v1::RunEvent* copies = runs.Find(worker, v1::RunEvent::kCopiesMeasured);
    ASSERT_NE(copies, nullptr);
    EXPECT_THAT(CheckRate("copies", copies->copies_measured().bytes_per_second()), IsOk());
  }
}

TEST(ProfileRun, WorkerThatCannotOffload_SaysNothingOfIt) {
  for (const char* directory : {"", "/no/such/place"}) {
    ProfileRuns runs(1);
    runs.offload_directory = directory;
    ASSERT_THAT(runs.Prepare(), IsOk());
    EXPECT_THAT(runs.Execute()[0], IsOk());
    EXPECT_EQ(runs.Find(0, v1::RunEvent::kCopiesMeasured), nullptr) << directory;
  }
}

TEST(ProfileRun, Progress_CountsLinksAndLayersOnce) {
  ProfileRuns runs(2);
  ASSERT_THAT(runs.Prepare(), IsOk());
  for (const absl::Status& end : runs.Execute()) ASSERT_THAT(end, IsOk());
  std::vector<int64_t> done;
  for (const v1::RunEvent& event : runs.events(0)) {
    if (event.has_measurement_begun()) done.push_back(event.measurement_begun().done());
  }
  const int shapes = runs.Find(0, v1::RunEvent::kLayersTimed)->layers_timed().model().shapes_size();
  ASSERT_EQ(done.size(), 1u + 2 * shapes);  // the links, then every shape with both sizes
  EXPECT_EQ(done.front(), 0);
  for (size_t i = 1; i < done.size(); ++i) EXPECT_EQ(done[i], static_cast<int64_t>(i));
  EXPECT_GT(runs.run(0).actions_done(), 2 * shapes);
}

TEST(ProfileRun, PeerThatIsGone_IsNamedAsTheCause) {
  ProfileRuns runs(3);
  ASSERT_THAT(runs.Prepare(), IsOk());
  const std::vector<absl::Status> ends = runs.Execute(/*dead=*/2);
  bool any = false;
  for (const int worker : {0, 1}) {
    EXPECT_FALSE(ends[worker].ok());
    const v1::RunEvent& last = runs.events(worker).back();
    ASSERT_TRUE(last.has_run_failed());
    any = any || last.run_failed().peer() == "w2";
  }
  EXPECT_TRUE(any) << "the other may have lost the one that noticed first";
}

TEST(ProfileRun, StoppedWhileItTimesLayers_EndsSoonWithAborted) {
  ProfileRuns runs(1);
  ASSERT_THAT(runs.Prepare(), IsOk());
  int begun = 0;
  runs.on_event = [&](int, const v1::RunEvent& event) {
    if (event.has_measurement_begun() && ++begun == 3) runs.run(0).Stop("enough");
  };
  EXPECT_THAT(runs.Execute()[0], StatusIs(absl::StatusCode::kAborted, HasSubstr("enough")));
  EXPECT_EQ(begun, 3);
  ASSERT_TRUE(runs.events(0).back().has_run_failed());
  EXPECT_EQ(runs.events(0).back().run_failed().peer(), "");
}

TEST(ProfileRun, StoppedWhileItWaitsForAPeer_BlamesNobody) {
  ProfileRuns runs(2);
  ASSERT_THAT(runs.Prepare(), IsOk());
  absl::Status end;
  std::thread waits([&] { end = runs.run(0).Execute(); });  // the other never starts
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  runs.run(0).Stop("cancelled by the user");
  waits.join();
  EXPECT_THAT(end, StatusIs(absl::StatusCode::kAborted, HasSubstr("cancelled by the user")));
  EXPECT_EQ(runs.events(0).back().run_failed().peer(), "");
}

TEST(ProfileRun, HoldAndCut_AreRefused) {
  ProfileRuns runs(1);
  ASSERT_THAT(runs.Prepare(), IsOk());
  EXPECT_THAT(runs.run(0).Hold(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no steps")));
  EXPECT_THAT(runs.run(0).CutAt(1),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("no steps")));
}

TEST(ProfileRun, RequestsThatMakeNoSense_AreRefused) {
  ProfileRuns runs(2);
  const auto prepared = [&](const std::function<void(v1::PrepareProfileRequest&)>& edit) {
    v1::PrepareProfileRequest request = RequestOf(0, 2, true);
    edit(request);
    return Run::Prepare(request, runs.EnvironmentOf(0)).status();
  };
  const auto invalid = [](const char* what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
  };
  EXPECT_THAT(prepared([](auto& request) { request.set_worker_index(2); }),
              invalid("worker_index: is 2; expected 0 to 1"));
  EXPECT_THAT(prepared([](auto& request) { request.mutable_plan()->clear_stages(); }),
              invalid("worker_index: is 0"));
  EXPECT_THAT(prepared([](auto& request) {
                request.mutable_plan()->mutable_stages(1)->set_worker_index(0);
              }),
              invalid("one stage on every worker"));
  EXPECT_THAT(prepared([](auto& request) { request.mutable_profile()->clear_samples(); }),
              invalid("profile.samples: has 0"));
  EXPECT_THAT(
      prepared([](auto& request) { request.mutable_spec()->mutable_training()->set_batch(0); }),
      invalid("training.batch"));
}

v1::LayerTimes TimesOf(const std::string& layer, double forward_ms) {
  v1::LayerTimes times;
  times.set_layer(layer);
  times.mutable_times()->set_forward_ms(forward_ms);
  times.mutable_times()->set_backward_input_ms(2 * forward_ms);
  times.mutable_times()->set_backward_weight_ms(3 * forward_ms);
  times.mutable_times()->set_update_ms(0.5);
  return times;
}

v1::DeviceTimes EmulatedTimes() {
  v1::DeviceTimes times;
  times.set_device("phantom");
  for (const char* layer : {"embedding", "final_norm", "head"})
    *times.add_layers() = TimesOf(layer, 1.0);
  *times.add_layers() = TimesOf("attention", 4.0);
  *times.add_layers() = TimesOf("mlp", 8.0);
  return times;
}

TEST(ProfileRun, EmulatedDevice_ReportsItsTimesAndTheMemoryOfItsOwn) {
  ProfileRuns own(1);
  ASSERT_THAT(own.Prepare(), IsOk());
  ASSERT_THAT(own.Execute()[0], IsOk());
  ProfileRuns emulated(1);
  emulated.emulated_device = EmulatedDevice{.times = EmulatedTimes()};
  ASSERT_THAT(emulated.Prepare(), IsOk());
  ASSERT_THAT(emulated.Execute()[0], IsOk());

  const v1::ModelProfile& measured =
      own.Find(0, v1::RunEvent::kLayersTimed)->layers_timed().model();
  const v1::ModelProfile& model =
      emulated.Find(0, v1::RunEvent::kLayersTimed)->layers_timed().model();
  EXPECT_EQ(model.device(), measured.device() + " as " + NameOfTimes(EmulatedTimes()));
  ASSERT_EQ(model.shapes_size(), measured.shapes_size());
  for (int i = 0; i < model.shapes_size(); ++i) {
    const v1::ShapeProfile& shape = model.shapes(i);
    EXPECT_EQ(shape.weight_bytes(), measured.shapes(i).weight_bytes());
    EXPECT_EQ(shape.update().ms(), 0.5);
    const bool is_mlp = shape.shape().starts_with("mlp");
    const bool is_attention = shape.shape().starts_with("attention");
    for (const v1::SizeProfile& size : shape.sizes()) {
      EXPECT_DOUBLE_EQ(size.forward().ms(), is_mlp ? 8.0 : is_attention ? 4.0 : 1.0);
      EXPECT_DOUBLE_EQ(size.backward_weight().ms(), 3 * size.forward().ms());
    }
  }
}

TEST(ProfileRun, EmulatedDeviceWithOtherTimesForEqualLayers_NamesBoth) {
  ProfileRuns runs(1);
  v1::DeviceTimes times = EmulatedTimes();
  *times.add_layers() = TimesOf("h.1.mlp", 9.0);
  runs.emulated_device = EmulatedDevice{.times = times};
  EXPECT_THAT(runs.Prepare(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                       AllOf(HasSubstr("h.0.mlp"), HasSubstr("h.1.mlp"))));
}

// Which number a worker has in the job that the file is of is not known here.
TEST(ProfileRun, EmulatedSpeedsOrLinks_AreRefused) {
  for (const bool speeds : {true, false}) {
    ProfileRuns runs(1);
    v1::DeviceTimes times = EmulatedTimes();
    if (speeds) {
      times.add_speeds(2.0);
    } else {
      times.add_links()->set_latency_ms(1.0);
    }
    runs.emulated_device = EmulatedDevice{.times = times};
    EXPECT_THAT(runs.Prepare(),
                StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("`speeds` or `links`")));
  }
}

}  // namespace
}  // namespace penstock
